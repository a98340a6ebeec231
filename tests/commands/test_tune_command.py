"""``tvm-rammer tune``, and a library by its records."""

from __future__ import annotations

import json

import onnx

from tvm_rammer.testing.models import get_model


def test_tuned_and_compiled(call, tmp_path):
    path, records = tmp_path / "mlp.onnx", tmp_path / "records"
    onnx.save(get_model("mlp").tiny(), path)
    result = call("tune", path, "-o", records, "--trials", 4, "--json")
    document = json.loads(result.stdout)
    assert document["measured"] >= 1
    assert document["operators"][0]["untuned_seconds"] > 0
    assert all(each["gain"] >= 1 for each in document["operators"])
    result = call("explain", path, "--database", records)
    assert result.exit_code == 0


def test_no_trials(call, tmp_path):
    result = call("tune", tmp_path / "model.onnx", "-o", tmp_path, "--trials", 0)
    assert result.exit_code == 2
    assert "0 is not in the range x>=1" in result.stderr
