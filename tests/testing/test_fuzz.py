"""The fuzzer's cases in a fast form: what was found stays mended, and what goes wrong is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from emulated_cuda import run_emulated
from fuzzing.kinds import KINDS

FUZZ = Path(__file__).parents[2] / "python" / "fuzz.py"


def verdict(kind: str, seed: int, folder: Path) -> str:
    return KINDS[kind](Random(f"{kind} {seed}"), folder)


def test_two_hundred_damaged_libraries_are_refused(tmp_path):
    # The last ones have headers that led out of the file.
    seeds = [*range(200), 4377, 6927, 7907, 10632, 13071, 19528]
    assert {verdict("libraries", seed, tmp_path) for seed in seeds} <= {"refused", "unchanged"}


@pytest.mark.parametrize("seed", range(4))
def test_builds_succeed_whatever_lies_in_the_cache(tmp_path, monkeypatch, seed):
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path))
    assert verdict("caches", seed, tmp_path) == "built"


@pytest.mark.parametrize(
    ("seed", "found"), [(19, "right"), (27, "refused"), (130, "refused"), (2, "no model")]
)
def test_models_are_right_or_refused(tmp_path, seed, found):
    assert verdict("models", seed, tmp_path) == found


@pytest.mark.parametrize("seed", range(2))
def test_random_networks_are_right(tmp_path, seed):
    assert verdict("networks", seed, tmp_path) == "right"


@pytest.mark.parametrize("seed", range(3))
def test_random_layers_are_right(tmp_path, seed):
    assert verdict("layers", seed, tmp_path) == "right"


@pytest.mark.parametrize("seed", range(3))
def test_random_layers_are_right_on_an_emulated_gpu(tmp_path, seed):
    assert run_emulated(verdict, "emulated", seed, tmp_path) == "right"


@pytest.mark.parametrize("seed", range(20))
def test_plans_of_random_graphs_are_safe_and_others_refused(tmp_path, seed):
    assert verdict("graphs", seed, tmp_path) in ("safe", "refused", "too large")


@pytest.mark.parametrize("seed", [0, 1, 394])
def test_commands_end_well(tmp_path, monkeypatch, seed):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path))
    assert verdict("commands", seed, tmp_path) in ("done", "refused")


def fuzz(tmp_path: Path, kind: str, *options: str) -> dict:
    """What the fuzzer reports on a kind of cases that a module beside it defines."""
    report = tmp_path / "fuzz.json"
    code = (
        "import sys; sys.argv[0] = 'fuzz.py'\n"
        f"sys.path.insert(0, {str(FUZZ.parent)!r})\n"
        "import fuzz\n"
        f"fuzz.Worker.module = {str(tmp_path / 'stand_in.py')!r}\n"
        "fuzz.main()"
    )
    arguments = ["--only", kind, "--finds", str(tmp_path / "finds"), "--json", str(report)]
    command = [sys.executable, "-c", code, *arguments, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    found = json.loads(report.read_text())
    assert done.returncode == bool(found["finds"]), done.stderr
    return found


STAND_IN = """
import json, os, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    seed = int(line)
    if seed % 4 == 1:
        os.abort()
    if seed % 4 == 2:
        time.sleep(60)
    verdict = "wrong" if seed % 4 == 3 else "refused"
    print(json.dumps({"seed": seed, "verdict": verdict, "said": "it is"}), flush=True)
"""


def test_crashes_hangs_and_wrong_answers_are_finds(tmp_path):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    report = fuzz(tmp_path, "plans", "--cases", "4", "--limit", "5")
    counts = report["verdicts"]["plans"]
    assert set(counts) == {"refused", "crash", "hang", "wrong"}
    first = report["finds"][:3]
    assert [(find["seed"], find["verdict"]) for find in first] == [
        (1, "crash"),
        (2, "hang"),
        (3, "wrong"),
    ]
    assert first[0]["command"] == "python python/fuzz.py --case plans 1"
    assert json.loads((tmp_path / "finds" / "plans-3.json").read_text()) == first[2]
