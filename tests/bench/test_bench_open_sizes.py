"""What open sizes cost is measured against a plan for the sizes, and against peers."""

from __future__ import annotations

import json
from pathlib import Path

import bench_open_sizes
import numpy as np
import onnx
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper


def model(path: Path) -> Path:
    """A product of any number of rows."""
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(weight, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def called(path: Path, *arguments: str):
    given = [str(model(path / "m.onnx")), *arguments, "--seconds", "1"]
    return CliRunner().invoke(bench_open_sizes.main, given)


def test_all_contenders_take_turns(tmp_path):
    sizes = ["--sizes", "n=3", "--sizes", "n=40"]
    result = called(tmp_path, "--shape", "x=n,8", *sizes, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["sizes"] for row in rows] == [{"n": 3}, {"n": 40}]
    assert all(list(row)[1:] == ["open", "planned", "onnxruntime", "openvino"] for row in rows)
    assert all(row["open"] > 0 and row["planned"] > 0 for row in rows)


def test_what_is_refused_is_one_line(tmp_path):
    result = called(tmp_path, "--shape", "x=n,8", "--sizes", "m=3")
    assert result.exit_code == 1
    assert "'x' is of the shape ('n', 8), in which each run has sizes of its own" in result.output
    result = called(tmp_path, "--shape", "x=n,8", "--sizes", "n")
    assert result.exit_code == 2 and "'n' is not of the form b=1,t=16" in result.output
    result = called(tmp_path, "--shape", "x=n,8", "--shape", "x=2,8", "--sizes", "n=3")
    assert result.exit_code == 2 and "give every input one shape" in result.output
