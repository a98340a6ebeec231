"""Recurrent modules become what the ONNX operators of the same module become."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import onnx
import pytest
import tvm

torch = pytest.importorskip("torch")

from torch_programs import floats  # noqa: E402

from tvm_rammer.frontend import LoadedModel, load_model  # noqa: E402
from tvm_rammer.relax_util import operator_name  # noqa: E402
from tvm_rammer.transform.fold_constants import FoldConstants  # noqa: E402
from tvm_rammer.transform.prepare import Prepare  # noqa: E402

LAYERS, DIRECTIONS, STEPS, FEATURES, HIDDEN = 2, 2, 5, 4, 6
SIZES = FEATURES, HIDDEN, LAYERS
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


class Last(torch.nn.Module):
    """The last step of a recurrent module."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = getattr(torch.nn, kind)(*SIZES, bidirectional=True, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layers(x)[0][:, -1]


def from_torch(kind: str) -> LoadedModel:
    inputs = (floats(1, STEPS, FEATURES),)
    return load_model(torch.export.export(Last(kind).eval(), inputs))


def from_onnx(kind: str) -> LoadedModel:
    file = io.BytesIO()
    inputs = (floats(1, STEPS, FEATURES),)
    torch.onnx.export(Last(kind).eval(), inputs, file, dynamo=False)
    return load_model(onnx.load_from_string(file.getvalue()))


def operators(module: tvm.IRModule) -> list[Any]:
    bindings = (b for block in module["main"].body.blocks for b in block.bindings)
    return [binding.value for binding in bindings if operator_name(binding.value)]


def prepared(loaded: LoadedModel) -> tvm.IRModule:
    with tvm.target.Target("llvm"):
        return tvm.transform.Sequential([Prepare()])(loaded.module)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_as_many_operators_as_from_onnx(kind):
    ours, theirs = (prepared(load(kind)) for load in (from_torch, from_onnx))
    assert len(operators(ours)) == len(operators(theirs))


@pytest.mark.parametrize("kind", GATES)
def test_a_product_for_every_gate_and_step_whose_weight_is_a_constant(kind):
    module = FoldConstants()(from_torch(kind).module)
    products = [call for call in operators(module) if operator_name(call) == "relax.matmul"]
    cells = LAYERS * DIRECTIONS * STEPS
    # The first step of every direction starts from zeros: its products of them are constants.
    folded = LAYERS * DIRECTIONS * GATES[kind]
    assert len(products) == 2 * GATES[kind] * cells - folded
    assert all(isinstance(call.args[1], tvm.ir.GenericConst) for call in products)


@pytest.mark.parametrize("kind", GATES)
def test_a_weight_is_split_once_for_all_steps(kind):
    module = FoldConstants()(from_torch(kind).module)
    products = [call for call in operators(module) if operator_name(call) == "relax.matmul"]
    readers = Counter(call.args[1].value for call in products)
    assert len(readers) == 2 * GATES[kind] * LAYERS * DIRECTIONS
    assert set(readers.values()) == {STEPS, STEPS - 1}


def test_layers_read_each_others_steps():
    """Only the input is taken apart; what is between layers never was together."""
    module = FoldConstants()(from_torch("LSTM").module)
    assert [operator_name(call) for call in operators(module)].count("relax.split") == 1
