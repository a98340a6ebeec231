"""What rounding data costs is told beside what it gains."""

from __future__ import annotations

import json
from pathlib import Path

import bench_rounding
import numpy as np
import onnx
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper


def model(path: Path) -> Path:
    """Two products with weights of 8 bits, of any number of rows."""
    rng = np.random.default_rng(0)
    nodes, parts, data = [], [], "x"
    for number in range(2):
        words, scale, point, real, out = (f"{name}{number}" for name in "wszro")
        parts += [
            numpy_helper.from_array(rng.integers(-127, 128, (64, 64)).astype("int8"), words),
            numpy_helper.from_array(rng.uniform(0.001, 0.002, 64).astype("float32"), scale),
            numpy_helper.from_array(np.zeros(64, "int8"), point),
        ]
        nodes.append(helper.make_node("DequantizeLinear", [words, scale, point], [real], axis=1))
        nodes.append(helper.make_node("MatMul", [data, real], [out]))
        data = out
    graph = helper.make_graph(
        nodes,
        "bytes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info(data, TensorProto.FLOAT, ["n", 64])],
        parts,
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def test_all_contenders_take_turns(tmp_path):
    path = model(tmp_path / "m.onnx")
    given = [str(path), "--shape", "x=16,64", "--seconds", "1"]
    result = CliRunner().invoke(bench_rounding.main, [*given, "--json"])
    assert result.exit_code == 0, result.output
    rows = {row["contender"]: row for row in json.loads(result.stdout)}
    assert list(rows) == ["as it is", "rounded", "onnxruntime", "openvino"]
    assert rows["as it is"]["error"] == 0
    assert 1e-4 < rows["rounded"]["error"] < 3e-2
    assert all(rows[name]["ms"] > 0 for name in ("as it is", "rounded"))
    assert all(row["ms"] or row["note"] for row in rows.values())


def test_what_is_refused_is_one_line(tmp_path):
    path = model(tmp_path / "m.onnx")
    result = CliRunner().invoke(bench_rounding.main, [str(path), "--shape", "q=16,64"])
    assert result.exit_code == 1
    assert "there is no input 'q'" in result.output
