from __future__ import annotations

from pathlib import Path

import bench_peers
import pytest
from bench.records import Record, ResultFile, Setting, load_results
from click.testing import CliRunner, Result

from tvm_rammer.testing.timing_results import Outcome


def run(*arguments: object) -> Result:
    return CliRunner().invoke(bench_peers.main, [str(argument) for argument in arguments])


def saved(path: Path, setting: Setting, *outcomes: Outcome) -> None:
    records = {outcome.name: Record(outcome, "a session") for outcome in outcomes}
    ResultFile(setting, {}, {"mlp": records} if records else {}).save(path)


def test_results_are_written_and_not_measured_again(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path, page = tmp_path / "r.json", tmp_path / "r.md"
    fixed = ("--models", "mlp", "--blocks", 2, "--runs", 3, "--json", path, "--quick")
    first = run(*fixed, "--contenders", "onnxruntime-1")
    assert first.exit_code == 0, first.output
    assert "1 model, 1 contender: about 1 minute, at 12 s for a model" in first.output
    before = load_results(path).models["mlp"]["onnxruntime-1"]

    both = ("--contenders", "onnxruntime,onnxruntime-1")
    second = run(*fixed, *both, "--markdown", page)
    assert second.exit_code == 0, second.output
    found = load_results(path)
    assert found.models["mlp"]["onnxruntime-1"] == before
    assert len(found.models["mlp"]["onnxruntime"].outcome.blocks_ns) == 2
    assert found.machine["cpus"] >= 1
    columns = "| model | onnxruntime | onnxruntime-1 | to the best peer | goal |"
    assert columns in page.read_text()

    third = run(*fixed, *both)
    assert "0 models (1 are done), 2 contenders: about 0 minutes" in third.output
    assert load_results(path) == found


def test_a_baseline_that_others_are_compared_with_later_keeps_its_times(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "r.json"
    fixed = ("--models", "mlp", "--blocks", 1, "--runs", 3, "--json", path, "--quick")
    assert run(*fixed, "--contenders", "onnxruntime").exit_code == 0
    before = load_results(path).models["mlp"]["onnxruntime"]
    assert run(*fixed, "--contenders", "onnxruntime,onnxruntime-1").exit_code == 0
    after = load_results(path).models["mlp"]
    assert after["onnxruntime"] == before
    assert after["onnxruntime-1"].good


def test_who_failed_before_is_tried_again(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "r.json"
    setting = Setting(quick=True, threads=1)
    saved(path, setting, Outcome("onnxruntime", "failed", "set-up: out of memory"))
    arguments = ("--models", "mlp", "--contenders", "onnxruntime", "--threads", 1, "--quick")
    result = run(*arguments, "--json", path, "--blocks", 1)
    assert result.exit_code == 0, result.output
    assert load_results(path).models["mlp"]["onnxruntime"].good


def test_results_under_another_setting_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    setting = Setting(quick=True, threads=1)
    saved(path, setting)
    result = run("--models", "mlp", "--quick", "--threads", 1, "--winograd", "off", "--json", path)
    assert result.exit_code == 1
    assert result.output == (f"Error: {path} was measured with {setting}; give another file\n")


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("[]")
    result = run("--models", "mlp", "--json", path)
    assert result.output == (
        f"Error: {path} is not a result of bench_peers.py; give another file\n"
    )


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "r.json"
    result = run("--models", "mlp", "--json", path)
    assert result.output == f"Error: {path}: there is no folder {path.parent}; make it first\n"


def test_unknown_names_suggest_the_nearest() -> None:
    assert run("--models", "alexnett").output == (
        "Error: there is no model 'alexnett'; did you mean 'alexnet'?\n"
    )
    assert run("--models", "mlp", "--contenders", "openvin").output == (
        "Error: there is no contender 'openvin'; did you mean 'openvino'?\n"
    )


def test_no_model_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    result = run("--models", "mlp,bert_base", "--quick", "--minutes", 0, "--json", path)
    assert result.exit_code == 0, result.output
    last = "no time was left for mlp, bert_base: run it again with --json"
    assert last in " ".join(result.output.split())
    assert not path.exists()


def test_the_estimate_counts_what_is_left() -> None:
    assert bench_peers.estimate(20, 31, 5, 90.0) == (
        "20 models (11 are done), 5 contenders: about 30 minutes, at 90 s for a model"
    )
