"""The script on small models of the test's own: no downloads."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import check_models
import numpy as np
import onnx
import pytest
from bench.corpus_page import corpus_page
from bench.corpus_records import (
    CorpusResults,
    CorpusSetting,
    ModelRecord,
    load_corpus,
)
from click.testing import CliRunner, Result
from corpus.checking import Checked, Files
from corpus.entries import TrainedModel
from corpus.input_makers import normal
from corpus.racing import RaceTimes, write_fixed
from onnx import TensorProto, helper

from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing.timing_results import Ratio


def entry(name: str) -> TrainedModel:
    return TrainedModel(
        name, "some-package", "1.0", "model.onnx", "testing", {"x": normal(2, 8)}, "MIT"
    )


def model(operator: str, domain: str = "") -> onnx.ModelProto:
    return helper.make_model(
        helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "w"], ["y"]),
                helper.make_node(operator, ["y"], ["z"], name="last", domain=domain),
            ],
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 4])],
            [onnx.numpy_helper.from_array(np.ones((8, 4), "float32"), "w")],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)],
        ir_version=9,
    )


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with two entries: one that compiles, and one that no one knows."""
    monkeypatch.setattr(check_models, "ENTRIES", (entry("plain"), entry("unknown")))
    folder = tmp_path / "cache" / "trained"
    folder.mkdir(parents=True)
    onnx.save(model("Relu"), str(folder / "plain-1.0.onnx"))
    onnx.save(model("Mystery", "com.example"), str(folder / "unknown-1.0.onnx"))
    return check_models


def run(script: ModuleType, folder: Path, *arguments: object) -> Result:
    fixed = ["--cache", folder / "cache", "--json", folder / "models.json"]
    return CliRunner().invoke(script.main, [str(part) for part in (*fixed, *arguments)])


def test_models_are_checked_once_and_the_page_says_what_was_found(
    script: ModuleType, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "models_notes.json").write_text('{"unknown/onnx": "nobody knows Mystery"}')
    first = run(script, tmp_path, "--no-timing", "--jobs", 2)
    assert first.exit_code == 0, first.output
    assert "2 checks of 2 to do" in first.output
    assert "onnx: 1 models, 1 compile, 1 agree (100.0 %)" in first.output
    records = load_corpus(tmp_path / "models.json").records
    plain, unknown = records["plain/onnx"], records["unknown/onnx"]
    assert plain.agrees and plain.checked.difference is not None
    assert plain.checked.build["build_s"] > 0
    assert unknown.checked.stage == "reference"
    assert "Mystery" in unknown.checked.cause
    assert str(tmp_path) not in (tmp_path / "models.json").read_text().split('"records"')[1]
    page = (tmp_path / "models.md").read_text()
    assert "- unknown (onnx): nobody knows Mystery" in page
    assert "| plain | onnx | some-package 1.0 | testing |" in page

    second = run(script, tmp_path, "--no-timing")
    assert "0 checks of 2 to do" in second.output
    third = run(script, tmp_path, "--no-timing", "--failed")
    assert "1 check of 2 to do" in third.output
    fourth = run(script, tmp_path, "--no-timing", "--again", "--only", "pl*")
    assert "1 check of 1 to do" in fourth.output


def test_what_agrees_is_timed_against_its_peers(script: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = run(script, tmp_path, "--only", "plain", "--seconds", 0.2)
    assert found.exit_code == 0, found.output
    record = load_corpus(tmp_path / "models.json").records["plain/onnx"]
    assert record.race is not None and record.race.ratio is not None
    assert record.race.best in record.race.ms
    assert f"{record.race.ratio.value:.2f}x" in (tmp_path / "models.md").read_text()
    again = run(script, tmp_path, "--only", "plain")
    assert "0 checks of 1 to do" in again.output


def test_one_table_has_times_of_one_cpu() -> None:
    times = RaceTimes({"auto": 1.0})
    records = {
        f"{cpu}/onnx": ModelRecord(cpu, "onnx", "p 1", "t", "c", "d", Checked("done"), times, cpu)
        for cpu in ("one", "other")
    }
    results = CorpusResults(CorpusSetting(2), {}, records).without_times_of_others("one")
    assert results.records["one/onnx"].race is times
    assert results.records["other/onnx"].race is None and results.records["other/onnx"].agrees
    assert "Checks: 1 on one (1 timed), 1 on other (0 timed)." in corpus_page(results, {})


def test_trained_models_and_architectures_have_means_of_their_own() -> None:
    def record(name: str, source: str, ratio: float) -> ModelRecord:
        times = RaceTimes({"openvino": 1.0, "auto": ratio}, "openvino", Ratio(ratio, ratio, ratio))
        return ModelRecord(name, "onnx", source, "t", "c", "d", Checked("done"), times)

    records = [record("one", "p 1", 0.5), record("two", "timm", 0.4), record("three", "timm", 1.6)]
    found = {f"{each.name}/onnx": each for each in records}
    page = corpus_page(CorpusResults(CorpusSetting(2), {}, found), {})
    assert (
        "Geometric mean of our time over the fastest peer's: **0.50x** over 1 trained models, "
        "**0.80x** over 2 architectures; 1 of them above 1.05x."
    ) in page


def test_a_process_that_computes_for_too_long_is_ended(script: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = run(script, tmp_path, "--only", "plain", "--no-timing", "--limit", 1)
    assert found.exit_code == 0, found.output
    checked = load_corpus(tmp_path / "models.json").records["plain/onnx"].checked
    assert checked.stage == "build"
    assert checked.cause.startswith("no end within 1 s of CPU time")


def test_bad_options_are_refused(script: ModuleType, tmp_path: Path) -> None:
    wrong = run(script, tmp_path, "--only", "plian")
    assert wrong.exit_code == 1
    assert "--only: there is no model 'plian'; did you mean 'plain'?" in wrong.output
    busy = run(script, tmp_path, "--jobs", 2)
    assert "--jobs: timings need the machine for themselves; add --no-timing" in busy.output


def test_peers_get_what_a_user_knows(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path, fixed = tmp_path / "model.onnx", tmp_path / "fixed.onnx"
    proto = model("Relu")
    proto.graph.input.append(helper.make_tensor_value_info("rate", TensorProto.INT64, []))
    proto.graph.node.append(helper.make_node("Identity", ["rate"], ["same"]))
    proto.graph.output.append(helper.make_tensor_value_info("same", TensorProto.INT64, []))
    onnx.save(proto, str(path))
    inputs = tmp_path / "inputs.npz"
    files = Files(path, inputs, path, inputs, {"x": (2, 8)}, {"rate": 16000})
    write_fixed(files, fixed)
    written = onnx.load(str(fixed))
    assert [info.name for info in written.graph.input] == ["x"]
    assert [d.dim_value for d in written.graph.input[0].type.tensor_type.shape.dim] == [2, 8]
    z, same = run_onnxruntime(written, {"x": np.ones((2, 8), "float32")})
    np.testing.assert_array_equal(z, np.full((2, 4), 8, "float32"))
    assert same == 16000


def test_the_page_of_nothing_is_a_page() -> None:
    from bench.corpus_records import CorpusResults, CorpusSetting

    assert corpus_page(CorpusResults(CorpusSetting(2)), {}).startswith("# The models that people")
