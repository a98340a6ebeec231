"""Graphs of 16-bit floats compute in float32; their inputs and outputs keep their types.

ONNX Runtime computes each operator on float16 in float32 and rounds its result. Sums that are kept
in float16 are off by 0.5 %, and there are no fast kernels for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tvm_rammer.frontend.onnx.infer import opsets_of, result_types, type_of
from tvm_rammer.frontend.onnx.names import all_names, all_nodes, fresh, renamed, subgraphs

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: Attributes that are the element type of a result.
_TYPES = ("to", "dtype", "output_dtype", "output_datatype")


def compute_in_float32(model: onnx.ModelProto) -> bool:
    """Compute in float32 what has 16-bit floats, in place; returns whether there are any.

    Weights are converted. Inputs and outputs are cast where they enter and leave the graph, and a
    Cast to a 16-bit float rounds, as the model says.

    Parameters
    ----------
    model : onnx.ModelProto
        Without functions.
    """
    graph = model.graph
    if not any(_kinds(graph)):
        return False
    say_types(model)
    taken = all_names(graph)
    read_as_bits = _read_as_bits(model)
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {v.name: v for v in graph.input if _is_half(v) and v.name not in constants}
    outputs = {v.name: v for v in graph.output if _is_half(v) and v.name not in inputs}
    names = {name: fresh(f"{name}/float32", taken) for name in (*inputs, *outputs)}
    nodes = [renamed(node, names) for node in graph.node]
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for value in (*graph.input, *graph.value_info):
        if value.name in constants:
            value.name = names.get(value.name, value.name)
    kept = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    before = [_cast(name, names[name], TensorProto.FLOAT) for name in inputs]
    after = [_cast(names[name], name, kept[name]) for name in outputs]
    del graph.node[:]
    graph.node.extend(nodes)
    read_as_bits = {names.get(name, name): kind for name, kind in read_as_bits.items()}
    _widen(graph, taken, read_as_bits)
    for value in (*inputs.values(), *outputs.values()):
        value.type.tensor_type.elem_type = kept[value.name]
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend([*before, *nodes, *after])
    return True


def say_types(model: onnx.ModelProto) -> bool:
    """Outputs get the element type that ONNX infers where the model says none, and each CastLike
    becomes a Cast to the type of its second operand; returns whether there was something to say.
    """
    graph, opsets = model.graph, opsets_of(model)
    untyped = [v for v in graph.output if not v.type.tensor_type.elem_type]
    if not untyped and all(node.op_type != "CastLike" for node in graph.node):
        return False
    types = {value.name: value.type for value in (*graph.value_info, *graph.input)}
    types |= {tensor.name: type_of(tensor) for tensor in graph.initializer}
    for node in graph.node:
        # What ONNX does not allow is refused with its reason where the graph is folded.
        with suppress(onnx.shape_inference.InferenceError):
            types |= result_types(node, types, {}, opsets)
        if node.op_type == "CastLike" and node.input[1] in types:
            kind = types[node.input[1]].tensor_type.elem_type
            node.CopyFrom(_cast(node.input[0], node.output[0], kind))
    for value in untyped:
        if value.name in types:
            value.type.tensor_type.elem_type = types[value.name].tensor_type.elem_type
    return True


def _kinds(graph: onnx.GraphProto) -> Iterator[bool]:
    """For each place that says so, whether something is a 16-bit float."""
    yield from (tensor.data_type in _HALF for tensor in graph.initializer)
    yield from map(_is_half, (*graph.input, *graph.value_info, *graph.output))
    for node in all_nodes(graph):
        for attribute in node.attribute:
            yield attribute.t.data_type in _HALF
            yield _is_type(attribute)
        for inner in subgraphs(node):
            yield from (tensor.data_type in _HALF for tensor in inner.initializer)


def _is_half(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type in _HALF


def _is_type(attribute: onnx.AttributeProto) -> bool:
    """Whether an attribute is the element type of a result that has 16-bit floats."""
    return attribute.name in _TYPES and attribute.i in _HALF


def _read_as_bits(model: onnx.ModelProto) -> dict[str, int]:
    """The 16-bit floats whose bits a BitCast reads, and what they are."""
    read = {node.input[0] for node in all_nodes(model.graph) if node.op_type == "BitCast"}
    types: dict[str, onnx.TypeProto] = {}
    if read:
        _note_types(model.graph, opsets_of(model), types)
    kinds = {name: types[name].tensor_type.elem_type for name in read & types.keys()}
    return {name: kind for name, kind in kinds.items() if kind in _HALF}


def _note_types(
    graph: onnx.GraphProto, opsets: Mapping[str, int], types: dict[str, onnx.TypeProto]
) -> None:
    """Types of what a graph computes, in sub-graphs too."""
    types |= {value.name: value.type for value in (*graph.value_info, *graph.input)}
    types |= {tensor.name: type_of(tensor) for tensor in graph.initializer}
    for node in graph.node:
        for inner in subgraphs(node):
            _note_types(inner, opsets, types)
        # What ONNX does not allow is refused with its reason where the graph is folded.
        with suppress(onnx.shape_inference.InferenceError):
            types |= result_types(node, types, {}, opsets)


def _widen(graph: onnx.GraphProto, taken: set[str], read_as_bits: Mapping[str, int]) -> None:
    """Make float32 of all 16-bit floats, in sub-graphs too.

    Bits are those of the 16-bit floats: of ``read_as_bits``, and of what a BitCast makes.
    """
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.value_info, *graph.output):
        if _is_half(value):
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        for inner in subgraphs(node):
            _widen(inner, taken, read_as_bits)
        if node.op_type == "BitCast":
            graph.node.extend(_of_bits(node, taken, read_as_bits.get(node.input[0])))
            continue
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if not _is_type(attribute):
                continue
            if node.op_type == "Cast":
                rounded = fresh(f"{node.output[0]}/rounded", taken)
                graph.node.append(_cast(node.input[0], rounded, attribute.i))
                node.input[0] = rounded
            attribute.i = TensorProto.FLOAT
        graph.node.append(node)


def _of_bits(node: onnx.NodeProto, taken: set[str], given: int | None) -> list[onnx.NodeProto]:
    """A BitCast between casts from and to float32; ``given`` is the 16-bit float that it reads."""
    nodes = [node]
    if given is not None:
        narrow = fresh(f"{node.input[0]}/narrow", taken)
        nodes.insert(0, _cast(node.input[0], narrow, given))
        node.input[0] = narrow
    if any(map(_is_type, node.attribute)):
        wide, node.output[0] = node.output[0], fresh(f"{node.output[0]}/narrow", taken)
        nodes.append(_cast(node.output[0], wide, TensorProto.FLOAT))
    return nodes


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _HALF:
        value = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def _cast(source: str, result: str, kind: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [result], f"{result}/cast", to=kind)
