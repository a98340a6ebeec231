"""Constants of 2 and 4 bits become bytes where a change of scale reads them: TVM has no others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tvm_rammer.frontend.onnx.names import all_nodes, subgraphs

#: Types of bytes, by the names of those of fewer bits.
_BYTES = {"INT2": np.int8, "INT4": np.int8, "UINT2": np.uint8, "UINT4": np.uint8}
_WIDER = {
    getattr(TensorProto, name): dtype
    for name, dtype in _BYTES.items()
    if hasattr(TensorProto, name)
}


def widen_small_integers(graph: onnx.GraphProto) -> None:
    """Make bytes of the small integers that only DequantizeLinear reads, in place.

    What it computes is the same. Others would compute something else: QuantizeLinear has the
    limits of the type of its zero point.
    """
    constants = {tensor.name: tensor for tensor in _constants(graph)}
    kept = {value.name for value in graph.output}
    for node in all_nodes(graph):
        read = [name for name in node.input if name in constants]
        whole = {*node.input[:1], *node.input[2:]} - {""} <= set(constants)
        if read and not (node.op_type == "DequantizeLinear" and whole):
            kept.update(read)
    widened = constants.keys() - kept
    for name in widened:
        tensor = constants[name]
        values = numpy_helper.to_array(tensor).astype(_WIDER[tensor.data_type])
        tensor.CopyFrom(numpy_helper.from_array(values, name))
    for value in (*graph.input, *graph.value_info):
        if value.name in widened:
            value.type.tensor_type.elem_type = constants[value.name].data_type


def _constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The initializers of small integers, in inner graphs too."""
    yield from (tensor for tensor in graph.initializer if tensor.data_type in _WIDER)
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _constants(inner)
