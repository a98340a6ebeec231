"""Refuses models that contradict ONNX, before anything is made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod

import onnx
from onnx import defs, helper

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.infer import Types, opsets_of, schema_of, static_shape
from tvm_rammer.frontend.onnx.names import all_nodes, describe, subgraphs

#: The version of ONNX's format since which a model says which operators it uses.
_SAYS_OPSETS = 3

_T = onnx.TensorProto
#: Bits of the elements of numbers, by their type.
_BITS: dict[int, int] = {
    _T.BOOL: 8,
    _T.INT8: 8,
    _T.UINT8: 8,
    _T.INT16: 16,
    _T.UINT16: 16,
    _T.FLOAT16: 16,
    _T.BFLOAT16: 16,
    _T.INT32: 32,
    _T.UINT32: 32,
    _T.FLOAT: 32,
    _T.INT64: 64,
    _T.UINT64: 64,
    _T.DOUBLE: 64,
}


def validate(model: onnx.ModelProto, where: str) -> None:
    """Raise a ModelError for what ONNX forbids and no importer would notice, or not clearly.

    What a node may read and what its attributes may be is told where types are known, by
    :func:`~tvm_rammer.frontend.onnx.fold.fold`.
    """
    for text, what in _texts(model.graph):
        # Protobuf gives bytes where a text is not in UTF-8.
        if isinstance(text, bytes):
            raise ModelError(
                f"{where}: {text!r}, the name of {what}, is no text in UTF-8, the file may be "
                "damaged; export the model again"
            )
    if not model.graph.output:
        raise ModelError(f"{where}: the graph has no outputs; there is nothing to compile")
    _validate_opset(model, where)
    opsets = opsets_of(model)
    for node in all_nodes(model.graph):
        if problem := _node_problem(node, opsets):
            raise ModelError(f"{where}: {describe(node)} {problem}; export the model again")
    _validate_graph(model.graph, set(), where)


def _texts(graph: onnx.GraphProto) -> Iterator[tuple[str | bytes, str]]:
    """Names that decide what is computed, and of what; sub-graphs have more."""
    yield from ((value.name, "an input") for value in graph.input)
    yield from ((value.name, "an output") for value in graph.output)
    yield from ((tensor.name, "a weight") for tensor in graph.initializer)
    for node in graph.node:
        yield from ((text, "an operator") for text in (node.op_type, node.domain))
        yield from ((name, "a value") for name in (*node.input, *node.output))
        yield from ((attribute.name, "an attribute") for attribute in node.attribute)
        for inner in subgraphs(node):
            yield from _texts(inner)


def contradiction(node: onnx.NodeProto, types: Types, opsets: Mapping[str, int]) -> str | None:
    """What ONNX's inference lets pass although ONNX forbids it, or nothing.

    ``types`` are those of the node's operands and results.
    """
    for name in filter(None, node.output):
        shape = static_shape(types.get(name)) or ()
        if any(size < 0 for size in shape):
            return f"its result would have the shape {shape}"
    if mixed := _mixed(node, types, opsets):
        return f"{mixed[0]!r} and {mixed[1]!r} must have one element type"
    if node.op_type not in ("Conv", "ConvTranspose"):
        return None
    weights = static_shape(types.get(node.input[1])) or ()
    for attribute in node.attribute:
        if attribute.name == "kernel_shape" and weights and (*attribute.ints,) != weights[2:]:
            return f"Attribute kernel_shape is {(*attribute.ints,)}, not that of the weights"
    return None


def _mixed(node: onnx.NodeProto, types: Types, opsets: Mapping[str, int]) -> tuple[str, str] | None:
    """Two inputs whose element types differ where the operator has one type for both."""
    if len({types[name].tensor_type.elem_type for name in node.input if name in types}) < 2:
        return None
    schema = schema_of(node, opsets)
    if schema is None or not schema.inputs:
        return None
    generic = {constraint.type_param_str for constraint in schema.type_constraints}
    first: dict[str, str] = {}
    for number, name in enumerate(node.input):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if name not in types or formal.type_str not in generic or not formal.is_homogeneous:
            continue
        other = first.setdefault(formal.type_str, name)
        if types[other].tensor_type.elem_type != types[name].tensor_type.elem_type:
            return other, name
    return None


def _validate_opset(model: onnx.ModelProto, where: str) -> None:
    newest = defs.onnx_opset_version()
    version = opsets_of(model).get("", 1 if model.ir_version < _SAYS_OPSETS else None)
    if version is None:
        raise ModelError(
            f"{where}: does not say which version of ONNX's operators it uses; "
            "export the model again"
        )
    if not 1 <= version <= newest:
        raise ModelError(
            f"{where}: uses version {version} of ONNX's operators; onnx {onnx.__version__} knows 1 "
            f"to {newest}; export the model with one of these, or upgrade onnx"
        )


def _node_problem(node: onnx.NodeProto, opsets: dict[str, int]) -> str | None:
    if not node.op_type:
        return "has no operator"
    if not any(node.output):
        return "has no results"
    schema = schema_of(node, opsets)
    if schema is None:
        return None
    count = len(node.input)
    if not schema.min_input <= count <= schema.max_input:
        return f"has {count} inputs; ONNX says {_between(schema.min_input, schema.max_input)}"
    return None


def _between(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"{least} to {most}" if most < 2**31 - 1 else f"{least} or more"


def _validate_graph(graph: onnx.GraphProto, outside: set[str], where: str) -> None:
    """Every name is computed once, before it is read; weights have the bytes that they need."""
    for sparse in graph.sparse_initializer:
        raise ModelError(
            f"{where}: the weight {sparse.values.name!r} is sparse; export it as a dense tensor"
        )
    for tensor in graph.initializer:
        if problem := _weight_problem(tensor):
            raise ModelError(
                f"{where}: the weight {tensor.name!r} {problem}; export the model again"
            )
    for value in graph.input:
        kind = value.type.tensor_type.elem_type
        if value.type.HasField("tensor_type") and kind not in onnx.TensorProto.DataType.values():
            raise ModelError(
                f"{where}: input {value.name!r} has the element type {kind}, which ONNX does not "
                "know; export the model again"
            )
    inputs = Counter(value.name for value in graph.input)
    own = set(inputs) | {tensor.name for tensor in graph.initializer}
    if twice := [name for name, count in inputs.items() if count > 1]:
        raise ModelError(f"{where}: has two inputs {twice[0]!r}; export the model again")
    for node in graph.node:
        for name in node.input:
            if name and name not in own and name not in outside:
                raise ModelError(
                    f"{where}: {describe(node)} reads {name!r}, which nothing computes before it; "
                    "export the model again"
                )
        for inner in subgraphs(node):
            _validate_graph(inner, outside | own, where)
        for name in filter(None, node.output):
            if name in own:
                raise ModelError(
                    f"{where}: {describe(node)} computes {name!r}, which is there already; "
                    "export the model again"
                )
            own.add(name)
    for value in graph.output:
        if value.name not in own and value.name not in outside:
            raise ModelError(
                f"{where}: nothing computes the output {value.name!r}; export the model again"
            )


def _weight_problem(tensor: onnx.TensorProto) -> str | None:
    if tensor.data_type not in onnx.TensorProto.DataType.values() or not tensor.data_type:
        return f"has the element type {tensor.data_type}, which ONNX does not know"
    if any(size < 0 for size in tensor.dims):
        return f"has the shape {tuple(tensor.dims)}"
    bits = _BITS.get(tensor.data_type)
    if bits is None or tensor.HasField("segment"):
        return None
    if tensor.data_location == onnx.TensorProto.EXTERNAL and not tensor.HasField("raw_data"):
        return "is in another file, which was not loaded"
    count = prod(tensor.dims)
    if tensor.HasField("raw_data"):
        wanted = (count * bits + 7) // 8
        if len(tensor.raw_data) != wanted:
            return f"has {len(tensor.raw_data)} bytes; its shape and element type need {wanted}"
        return None
    found = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
    if bits >= 8 and found != count:
        return f"has {found} elements; its shape has {count}"
    return None
