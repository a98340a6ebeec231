from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

SCRIPT = Path(__file__).parents[2] / "python" / "bench_peers.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_peers", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_peers"] = module
    spec.loader.exec_module(module)
    return module


def run(bench: ModuleType, *arguments: object) -> Result:
    return CliRunner().invoke(bench.main, [str(argument) for argument in arguments])


def test_results_are_written_and_not_measured_again(bench: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path, markdown = tmp_path / "r.json", tmp_path / "r.md"
    fixed = ("--models", "mlp", "--blocks", 2, "--runs", 3, "--json", path, "--quick")
    first = run(bench, *fixed, "--contenders", "onnxruntime")
    assert first.exit_code == 0, first.output
    before = json.loads(path.read_text())["models"]["mlp"]["onnxruntime"]

    both = ("--contenders", "onnxruntime,onnxruntime-1")
    second = run(bench, *fixed, *both, "--markdown", markdown)
    assert second.exit_code == 0, second.output
    records = json.loads(path.read_text())["models"]["mlp"]
    assert records["onnxruntime"] == before
    assert len(records["onnxruntime-1"]["outcome"]["blocks_ns"]) == 2
    assert records["onnxruntime-1"]["ratio"]["value"] > 0
    assert "| model | onnxruntime | onnxruntime-1 | best / best peer |" in markdown.read_text()


def test_results_under_another_setting_are_not_mixed(bench: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    setting = {"quick": True, "threads": 1, "baseline": "onnxruntime"}
    path.write_text(json.dumps({"format": 1, "setting": setting, "models": {}}))
    result = run(bench, "--models", "mlp", "--threads", 1, "--json", path)
    assert result.exit_code == 1
    assert result.output == (f"Error: {path} was measured with {setting}; give another file\n")


def test_a_file_that_is_no_result_is_refused(bench: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("[]")
    result = run(bench, "--models", "mlp", "--json", path)
    assert result.output == (f"Error: {path} is not a result of this program; give another file\n")


def test_unknown_names_suggest_the_nearest(bench: ModuleType) -> None:
    assert run(bench, "--models", "alexnett").output == (
        "Error: there is no model 'alexnett'; did you mean 'alexnet'?\n"
    )
    assert run(bench, "--models", "mlp", "--contenders", "openvin").output == (
        "Error: there is no contender 'openvin'; did you mean 'openvino'?\n"
    )


def test_the_baseline_must_take_part(bench: ModuleType) -> None:
    assert run(bench, "--contenders", "openvino").output == (
        "Error: the baseline 'onnxruntime' is not among the contenders; add it\n"
    )


def test_who_failed_or_is_missing_is_shown_with_a_note(bench: ModuleType) -> None:
    missing = bench.Outcome("openvino", "missing", "No module named 'openvino'")
    failed = bench.Outcome("tvm", "failed", "set-up: out of memory")
    good = bench.Outcome("onnxruntime", "ok", "", ((2_000_000,),))
    ours = bench.Outcome("wavefront", "ok", "", ((1_000_000,),))
    results = {"mlp": {o.name: bench.Record(o, None) for o in (missing, failed, good, ours)}}
    names = ["onnxruntime", "openvino", "tvm", "wavefront"]
    assert bench._rows(results, names) == [["mlp", "2", "-", "failed", "1", "0.50x"]]
    assert bench._notes(results, names) == [
        "openvino missing: No module named 'openvino' (mlp)",
        "tvm failed: set-up: out of memory (mlp)",
    ]
