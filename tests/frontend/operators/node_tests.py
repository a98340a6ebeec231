"""ONNX's own node tests of the operators that are rewritten."""

from __future__ import annotations

import warnings
from collections.abc import Set
from functools import cache
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from tvm import relax

from tvm_rammer import load_model
from tvm_rammer.frontend.onnx.operators.table import FUNCTIONS, RULES

#: Operands that models have as constants, and ONNX's tests as inputs.
_SHAPE_OPERANDS = {
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "CumProd": (1,),
    "HannWindow": (0,),
    "HammingWindow": (0,),
    "BlackmanWindow": (0,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "AffineGrid": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "STFT": (1, 3),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "Dropout": (1, 2),
    **{f"Reduce{name}": (1,) for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean")},
    **{f"Reduce{name}": (1,) for name in ("Min", "Prod", "Sum", "SumSquare")},
}

#: Numbers that numpy does not have, training, results of 16 bits computed in another order, and
#: tensors without elements, which the inputs of a model cannot be; what is refused; elements that
#: TVM does not sort; rows of an attention that see nothing, whose NaN TVM takes for something else.
LEFT_OUT = (
    "_expanded",
    "training_dropout",
    "e4m3",
    "e5m2",
    "int2",
    "int4",
    "float4",
    "celu_float16",
    "celu_bfloat16",
    "empty_set",
    "maxpool_with_argmax",
    "roialign_mode_max",
    "top_k_uint64",
    "_fp16",
    "_bf16",
    "nan_robustness",
    "structural_empty",
    "mode3",
    "local_window_gqa_rank4_mask",
    "blocked_symmetric",
    "silu_fp16",
)


#: Operators that TVM's importer has no converter for, but ours has.
CONVERTED = frozenset(
    {"BitCast", "Col2Im", "CumProd", "DFT", "DeformConv", "Det", "LinearAttention", "STFT"}
)


@cache
def node_tests() -> dict[str, Any]:
    """Those whose single node is an operator that is rewritten, by name."""
    return _tests_of({name for domain, name in {*RULES, *FUNCTIONS} if not domain})


@cache
def converted_node_tests() -> dict[str, Any]:
    """Those whose single node is one of ``CONVERTED``, by name."""
    return _tests_of(CONVERTED)


def _tests_of(owned: Set[str]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return {
        case.name.removeprefix("test_"): case
        for case in cases
        if {node.op_type for node in case.model.graph.node} <= owned
        and not any(part in case.name for part in LEFT_OUT)
    }


def some_of_each() -> list[str]:
    """Names of the first tests of each operator."""
    seen: dict[str, list[str]] = {}
    for name, case in node_tests().items():
        seen.setdefault(case.model.graph.node[0].op_type, []).append(name)
    return [name for names in seen.values() for name in names[:2]]


def bound(case: Any) -> tuple[onnx.ModelProto, list[np.ndarray], list[np.ndarray]]:
    """The model with its shape operands as constants; the other inputs, and the results."""
    inputs, expected = ([np.asarray(value) for value in values] for values in case.data_sets[0])
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    (node,) = model.graph.node
    names = {node.input[k] for k in _SHAPE_OPERANDS.get(node.op_type, ()) if k < len(node.input)}
    declared = list(model.graph.input)
    del model.graph.input[:]
    fed = []
    for value, array in zip(declared, inputs, strict=True):
        if value.name in names:
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            model.graph.input.append(value)
            fed.append(array)
    return model, fed, expected


def run_with_tvm(model: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What our front end and stock TVM make of a model."""
    module = load_model(model).module
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(each) for each in inputs))
    return [each.numpy() for each in ([found] if isinstance(found, tvm.runtime.Tensor) else found)]


def check(found: list[np.ndarray], expected: list[np.ndarray], case: Any) -> None:
    """The tolerances are the test's own; integers are exact."""
    assert [each.shape for each in found] == [each.shape for each in expected]
    assert [each.dtype for each in found] == [each.dtype for each in expected]
    for one, other in zip(found, expected, strict=True):
        if one.dtype.kind in "biu":
            np.testing.assert_array_equal(one, other)
        else:
            scale = np.abs(other[np.isfinite(other)]).max(initial=0)
            np.testing.assert_allclose(one, other, rtol=case.rtol, atol=case.atol + 1e-6 * scale)
