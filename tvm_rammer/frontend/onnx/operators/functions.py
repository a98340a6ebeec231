"""Inlines the operators that ONNX defines by others, from ONNX's own definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import defs

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode


def inline_function(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """Append the body of the function that a node's operator is.

    Raises
    ------
    ModelError
        ONNX has no such function for the model's version of the operators, or its operands are of
        types that it is not defined for.
    """
    body = _body(node)
    names: dict[str, str] = {"": ""}
    for number, name in enumerate(body.input):
        names[name] = node.input(number)
    given = {a.name: a for a in node.proto.attribute}
    given = _defaults(node) | {a.name: a for a in body.attribute_proto} | given
    for inner in body.node:
        copied = onnx.NodeProto()
        copied.CopyFrom(inner)
        _bind(copied, names, given, nodes)
        nodes.append(copied)
    return tuple(names.get(name, "") for name in body.output)


def _bind(
    node: onnx.NodeProto,
    names: dict[str, str],
    given: Mapping[str, onnx.AttributeProto],
    nodes: Nodes,
) -> None:
    """Give a node of a body the names and attributes of the place where it stands."""
    for number, name in enumerate(node.input):
        node.input[number] = names.get(name, name)
    for number, name in enumerate(node.output):
        if name:
            names[name] = nodes.new_name(node.op_type)
            node.output[number] = names[name]
    attributes = list(node.attribute)
    del node.attribute[:]
    for attribute in attributes:
        if not attribute.ref_attr_name:
            bound = node.attribute.add()
            bound.CopyFrom(attribute)
            for graph in (bound.g, *bound.graphs):
                for inner in graph.node:
                    _bind(inner, names, given, nodes)
                for value in graph.output:
                    value.name = names.get(value.name, value.name)
        elif attribute.ref_attr_name in given:
            bound = node.attribute.add()
            bound.CopyFrom(given[attribute.ref_attr_name])
            bound.name = attribute.name


def _body(node: OperatorNode) -> onnx.FunctionProto:
    try:
        # The package's own description of this class lacks what its extension module has.
        schema: Any = defs.get_schema(node.kind, node.version, node.domain)
    except defs.SchemaError:
        raise node.refusal(
            f"version {node.version} of ONNX's operators has none of this name"
        ) from None
    versions = sorted(v for v in schema.function_opset_versions if v <= node.version)
    content = schema.get_function_with_opset_version(versions[-1]) if versions else b""
    if not content:
        versions = sorted(
            v for v in schema.context_dependent_function_opset_versions if v <= node.version
        )
        types = [_type(node, name).SerializeToString() for name in node.inputs]
        content = (
            schema.get_context_dependent_function_with_opset_version(
                versions[-1], node.proto.SerializeToString(), types
            )
            if versions
            else b""
        )
    if not content:
        raise node.refusal("ONNX does not define it by other operators for these operands")
    body = onnx.FunctionProto()
    body.ParseFromString(content)
    _check_versions(node, body, versions[-1])
    return body


def _defaults(node: OperatorNode) -> dict[str, onnx.AttributeProto]:
    attributes = defs.get_schema(node.kind, node.version, node.domain).attributes.values()
    return {a.name: a.default_value for a in attributes if a.default_value.name}


def _type(node: OperatorNode, name: str) -> onnx.TypeProto:
    if not name:
        return onnx.TypeProto()
    if name not in node.types:
        raise node.refusal(f"the type of {name!r} is not known")
    return node.types[name]


def _check_versions(node: OperatorNode, body: onnx.FunctionProto, version: int) -> None:
    """The body is written for one version of the operators, and read in another."""
    for inner in body.node:
        then, now = (
            defs.get_schema(inner.op_type, number, inner.domain).since_version
            for number in (version, node.version)
        )
        if then < _BREAKS.get(inner.op_type, 0) <= now:
            raise node.refusal(
                f"ONNX defines it by {inner.op_type} of version {then}, which version {now} is not"
            )


#: Since these versions attributes of the operators are inputs.
_BREAKS = {
    **dict.fromkeys(("Squeeze", "Unsqueeze", "ReduceSum", "Split"), 13),
    **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare"), 18),
    **dict.fromkeys(("Slice", "TopK"), 10),
    **dict.fromkeys(("Clip", "Pad"), 11),
    **dict.fromkeys(("Softmax", "LogSoftmax"), 13),
}
