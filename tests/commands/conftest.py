"""A small model, the library of it, and a way to call the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

from tvm_rammer.cli import main

Call = Callable[..., Result]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call ``tvm-rammer`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture
def refused(call: Call, tmp_path: Path) -> Callable[..., str]:
    """Call ``tvm-rammer`` with what it refuses; the error, after seeing that it left no file."""

    def refused(*arguments: object) -> str:
        before = sorted(tmp_path.rglob("*"))
        result = call(*arguments)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert sorted(tmp_path.rglob("*")) == before
        (line,) = result.stderr.splitlines()
        return line

    return refused


def write_model(path: Path, batch: int | str = 4, operator: str = "Tanh") -> Path:
    """Write a model of three operators: z = relu(x w), t = tanh(x w)."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            helper.make_node("Relu", ["y"], ["z"]),
            helper.make_node(operator, ["y"], ["t"], name="last"),
        ],
        "tiny",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 8]),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [8, 8]),
        ],
        [
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [batch, 8]),
            helper.make_tensor_value_info("t", TensorProto.FLOAT, [batch, 8]),
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def model(folder: Path) -> Path:
    return write_model(folder / "tiny.onnx")


@pytest.fixture(scope="session")
def library(folder: Path, model: Path) -> Path:
    path = folder / "tiny.so"
    result = CliRunner().invoke(main, ["compile", str(model), "-o", str(path)])
    assert result.exit_code == 0, result.stderr
    return path


@pytest.fixture
def x() -> np.ndarray:
    return np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
