"""The check compares a library with ONNX Runtime, or PyTorch, and says what it found."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
import tvm
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from onnx_values import tensor

import tvm_rammer
from tvm_rammer.cli import main
from tvm_rammer.errors import InputError, ModelError
from tvm_rammer.runtime.check import check_library


def embedding(factor: float = 2.0) -> onnx.ModelProto:
    """Looks tokens up in a table of two rows, and scales by a power that is an input."""
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["rows"]),
        helper.make_node("Cast", ["power"], ["p"], to=TensorProto.FLOAT),
        helper.make_node("Pow", ["factor", "p"], ["scale"]),
        helper.make_node("Mul", ["rows", "scale"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(np.float32([[1, -2, 3], [4, 5, 6]]), "table"),
        numpy_helper.from_array(np.float32(factor), "factor"),
    ]
    inputs = [tensor("tokens", (4,), TensorProto.INT64), tensor("power", (1,), TensorProto.INT32)]
    graph = helper.make_graph(nodes, "graph", inputs, [tensor("y", (4, 3))], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_model_that_agrees():
    """Tokens are drawn again, smaller, until ONNX Runtime takes them."""
    library = tvm_rammer.build(embedding(), constants={"power": 3}, check=True)
    (found,) = check_library(library, embedding(), {"power": 3})
    assert found.name == "y"
    assert found.error <= 1e-6
    assert found.tolerance == 1e-3


def test_a_model_that_does_not_agree():
    library = tvm_rammer.build(embedding(), constants={"power": 3})
    with pytest.raises(ModelError) as caught:
        check_library(library, embedding(4.0), {"power": 1})
    assert str(caught.value) == (
        "check: output 'y' differs from ONNX Runtime's by 1 of its largest value "
        "(allowed: 0.001); please report it with the model"
    )


def test_the_command_says_the_largest_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(embedding(), "m.onnx")
    command = ["compile", "m.onnx", "-o", "m.so", "--constant", "power=3", "--check"]
    result = CliRunner().invoke(main, [*command, "--json"])
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)["check"]
    assert found["name"] == "y"
    assert found["error"] <= 1e-6
    assert "of its largest value" in CliRunner().invoke(main, command).stdout


def test_without_onnx_runtime(monkeypatch):
    monkeypatch.setattr("tvm_rammer.runtime.check.find_spec", lambda name: None)
    with pytest.raises(InputError) as caught:
        tvm_rammer.build(embedding(), constants={"power": 3}, check=True)
    assert str(caught.value) == "check: compares with ONNX Runtime: pip install onnxruntime"


def test_a_module_of_relax():
    with pytest.raises(InputError) as caught:
        tvm_rammer.build(tvm.IRModule(), check=True)
    assert str(caught.value) == (
        "check: a Relax module cannot be compared with anything else; "
        "check the model that it was made of"
    )


def test_a_program_of_pytorch():
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def forward(self, x, scale=None):
            return torch.tanh(x) * scale, x + 1

    program = torch.export.export(Model(), (torch.randn(2, 3),), {"scale": torch.tensor([2.0])})
    library = tvm_rammer.build(program, check=True)
    assert [each.error < 1e-6 for each in check_library(library, program)] == [True, True]


def test_a_program_that_changes_its_input():
    """The library gets the input as it was."""
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def forward(self, x):
            x.add_(1)
            return x * 2

    with pytest.warns(UserWarning, match="changes its input"):
        tvm_rammer.build(torch.export.export(Model(), (torch.randn(2, 3),)), check=True)


def test_a_program_of_short_floats():
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def forward(self, x):
            return x.exp(), x.float() + 1

    program = torch.export.export(Model(), (torch.randn(2, 3).bfloat16(),))
    library = tvm_rammer.build(program, check=True)
    errors = check_library(library, program)
    assert [each.tolerance for each in errors] == [8 / 128, 1e-3]
    assert all(each.error < 0.01 for each in errors)


def test_data_that_only_the_library_rounds_may_differ_more():
    rng = np.random.default_rng(0)
    weights = rng.integers(-127, 128, (64, 48)).astype("int8")
    parts = {"w": weights, "scale": rng.uniform(0.01, 0.02, 48).astype("float32")}
    parts["point"] = np.zeros(48, "int8")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale", "point"], ["real"], axis=1),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "rounded",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 64])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [32, 48])],
        [numpy_helper.from_array(value, name) for name, value in parts.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exact, rounded = (
        check_library(tvm_rammer.build(model, round_data=each, check=True), model)[0]
        for each in (False, True)
    )
    assert (exact.tolerance, rounded.tolerance) == (1e-3, 5e-2)
    assert exact.error < 1e-6 and 1e-4 < rounded.error < 2e-2
