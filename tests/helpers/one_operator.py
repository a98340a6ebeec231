"""Models of one ONNX operator, what becomes of them and what ONNX's reference says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tvm_rammer

#: The first version of ONNX's operators that has all that are tested by it.
VERSION = 27


def one_operator(
    kind: str,
    inputs: Sequence[np.ndarray | None],
    results: int = 1,
    constants: Sequence[int] = (),
    version: int = VERSION,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; operands that are ``None`` are left out, some others are constants."""
    given = {number: value for number, value in enumerate(inputs) if value is not None}
    names = [f"x{number}" if number in given else "" for number in range(len(inputs))]
    declared = [
        helper.make_tensor_value_info(
            names[number], helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for number, value in given.items()
        if number not in constants
    ]
    known = [numpy_helper.from_array(np.asarray(given[k]), names[k]) for k in constants]
    outputs = [f"y{number}" for number in range(results)]
    node = helper.make_node(kind, names, outputs, name="node", **attributes)
    wanted = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "graph", declared, wanted, known)
    opsets = [helper.make_opsetid("", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def fed(model: onnx.ModelProto, inputs: Sequence[np.ndarray | None]) -> dict[str, np.ndarray]:
    """Values of the inputs that are no constants."""
    names = {value.name for value in model.graph.input}
    numbered = {f"x{number}": value for number, value in enumerate(inputs) if value is not None}
    return {name: value for name, value in numbered.items() if name in names}


def compiled(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What a compiled model computes, one operator after the other."""
    instance = tvm_rammer.build(model, "llvm", policy="sequential", num_veus=1).create()
    for name, value in feed.items():
        instance.set_input(name, value)
    instance.run()
    return [instance.get_output(number).numpy() for number in range(instance.get_num_outputs())]


def reference(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX's own implementation in numpy computes."""
    return [np.asarray(value) for value in ReferenceEvaluator(model).run(None, feed)]
