from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
from stress import soak as soaking
from stress.soak import busy

from tvm_rammer.errors import RammerError

SCRIPT = Path(__file__).parents[2] / "python" / "soak.py"


def test_a_hundred_thousand_synchronisations(tmp_path):
    """On cores that another process keeps busy, with up to twice as many workers as two cores."""
    path = tmp_path / "soak.json"
    numbers = ("--synchronisations", "100000", "--plans", "5", "--json", str(path))
    printed = subprocess.run(
        [sys.executable, SCRIPT, *numbers], check=True, capture_output=True, text=True
    ).stdout
    assert "no hang, no wrong result" in " ".join(printed.split())
    content = json.loads(path.read_text())
    plans = content["plans"]
    assert content["synchronisations"] == sum(plan["synchronisations"] for plan in plans) >= 100_000
    assert {plan["veus"] for plan in plans} == {1, 2, 3, 4}
    assert all(plan["workers"] == plan["veus"] for plan in plans)
    assert all(plan["synchronisations"] == plan["runs"] * plan["waits"] for plan in plans)


@pytest.fixture(scope="module")
def case():
    return next(soaking._cases(0))


def test_a_wrong_result_is_found(case):
    output = case.wanted[1][0]
    output.view("int32")[0, 0] ^= 1
    with pytest.raises(RammerError) as caught:
        soaking._watched(case, 0, lambda done: None)
    output.view("int32")[0, 0] ^= 1
    assert re.fullmatch(
        f"{case.label}: run [0-9]+ gave another result than alone", str(caught.value)
    )


def test_a_hang_is_found(case, monkeypatch):
    monkeypatch.setattr(soaking, "_PATIENCE", 0.2)
    monkeypatch.setattr(case.compiled, "bind", lambda *arrays: lambda: time.sleep(2))
    with pytest.raises(RammerError) as caught:
        soaking._watched(case, 0, lambda done: None)
    assert str(caught.value) == (
        f"{case.label}: run 0 has not ended in 0 s; look where its threads are"
    )


def test_the_same_seed_gives_the_same_plans(case):
    again = next(soaking._cases(0))
    assert again.compiled.program == case.compiled.program
    assert next(soaking._cases(1)).label != case.label


def test_an_interrupted_soak_goes_on(tmp_path):
    """Plans that have run do not run again, and the others are the same ones."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    command = [sys.executable, SCRIPT, "--synchronisations", "2000", "--load", "0"]
    subprocess.run([*command, "--plans", "3", "--json", first], check=True, capture_output=True)
    rest = ["--plans", "6", "--resume", first, "--json", second]
    subprocess.run([*command, *rest], check=True, capture_output=True)
    before, after = (json.loads(path.read_text())["plans"] for path in (first, second))
    assert len(before) == 3
    assert after[:3] == before
    labels = [f"{p['model']}, {p['policy']}, {p['veus']} vEUs" for p in after]
    assert labels == [case.label for case in islice(soaking._cases(0), 6)]


def test_other_processes_end():
    with busy(2) as processes:
        assert all(process.poll() is None for process in processes)
    assert all(process.poll() is not None for process in processes)


_HOLDS_A_BUSY_PROCESS = f"""
import sys
sys.path[:0] = {sys.path!r}
import time
from stress.soak import busy
with busy(1) as (process,):
    print(process.pid, flush=True)
    time.sleep(600)
"""


def test_other_processes_end_with_one_that_was_killed():
    parent = subprocess.Popen(
        [sys.executable, "-c", _HOLDS_A_BUSY_PROCESS], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout
    child = Path("/proc", parent.stdout.readline().strip())
    assert (child / "stat").exists()
    parent.terminate()
    parent.communicate()
    end = time.monotonic() + 60
    while _runs(child):
        assert time.monotonic() < end, "a busy process has outlived its parent"
        time.sleep(0.05)


def _runs(process: Path) -> bool:
    """Whether a process is there; one that has ended may wait for its status to be read."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
