"""``tvm-rammer tune``, and a library by its records."""

from __future__ import annotations

import json

import onnx
import pytest

from tvm_rammer.errors import TuningError
from tvm_rammer.testing.models import get_model


def test_tuned_and_compiled(call, tmp_path):
    path, records = tmp_path / "mlp.onnx", tmp_path / "records"
    onnx.save(get_model("mlp").tiny(), path)
    result = call("tune", path, "-o", records, "--trials", 4, "--json")
    document = json.loads(result.stdout)
    assert document["measured"] >= 1
    assert document["operators"][0]["untuned_seconds"] > 0
    assert all(each["gain"] >= 1 for each in document["operators"])
    assert call("explain", path, "--database", records).exit_code == 0
    assert call("show", path, "--kernels", "--database", records).exit_code == 0
    plot = tmp_path / "gain.svg"
    result = call("tune", "--status", records, "--plot", plot, "--json")
    told = json.loads(result.stdout)
    assert not told["running"]
    assert told["trials"] == told["of_trials"] == 4
    assert told["operators"] == document["operators"]
    assert told["gains"][-1] == [4, document["plan_gain"]]
    assert plot.read_text().startswith("<svg")
    text = call("tune", "--status", records).stdout
    assert f"{records}: no process is tuning, 4 of 4, trials done" in text.replace("\n", " ")


def test_status_of_nothing(call, tmp_path):
    result = call("tune", "--status", tmp_path)
    assert result.exit_code == 1
    assert "nothing was tuned here (no tuning.log with results)" in result.stderr


def test_neither_model_nor_status(call, tmp_path):
    result = call("tune", tmp_path / "model.onnx")
    assert result.exit_code == 2
    assert "give MODEL and -o DIR, or --status DIR" in result.stderr
    result = call("tune", tmp_path / "model.onnx", "-o", tmp_path, "--plot", tmp_path / "x.svg")
    assert result.exit_code == 2
    assert "--plot goes with --status DIR" in result.stderr


@pytest.mark.parametrize(
    "given",
    [
        ["MODEL"],
        ["--output", "ours"],
        ["--trials", "500"],
        ["--seed", "1"],
        ["--key", "rpi5"],
        ["--space", "both"],
        ["--shape", "x=1,2"],
        ["--target", "llvm"],
    ],
)
def test_what_tunes_does_not_go_with_status(call, tmp_path, given):
    """Also where its value is what it is by default."""
    result = call("tune", "--status", tmp_path, *given)
    assert result.exit_code == 2
    assert f"{given[0]} does not go with --status DIR, which tunes nothing" in result.stderr


def test_no_trials(call, tmp_path):
    result = call("tune", tmp_path / "model.onnx", "-o", tmp_path, "--trials", 0)
    assert result.exit_code == 2
    assert "0 is not in the range x>=1" in result.stderr


def test_the_space(call, tmp_path, monkeypatch):
    model, given = tmp_path / "mlp.onnx", []
    onnx.save(get_model("mlp").tiny(), model)

    def tune(*arguments, space, **options):
        given.append(space)
        raise TuningError("enough")

    monkeypatch.setattr("tvm_rammer.tuning.model.tune", tune)
    call("tune", model, "-o", tmp_path)
    call("tune", model, "-o", tmp_path, "--space", "both")
    assert given == ["template", "both"]
    result = call("tune", model, "-o", tmp_path, "--space", "everything")
    assert result.exit_code == 2
    assert "'everything' is not one of 'template', 'sketch', 'both'" in result.stderr


def test_options_of_a_tracker(call, tmp_path):
    model, records = tmp_path / "mlp.onnx", tmp_path / "records"
    onnx.save(get_model("mlp").tiny(), model)
    result = call("tune", model, "-o", records, "--tracker", "127.0.0.1:9190")
    assert result.exit_code == 2
    assert "--tracker HOST:PORT needs --key KEY" in result.stderr
    result = call("tune", model, "-o", records, "--parallel", 2)
    assert result.exit_code == 2
    assert "--key and --parallel go with --tracker HOST:PORT" in result.stderr
    result = call("tune", model, "-o", records, "--tracker", "here", "--key", "rpi5", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"] == (
        "the tracker's address is 'here': give HOST:PORT, such as 127.0.0.1:9190"
    )
    result = call("tune", model, "-o", records, "--parallel", 0)
    assert result.exit_code == 2
    assert "0 is not in the range x>=1" in result.stderr
