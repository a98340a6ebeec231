"""Names in an ONNX graph: what nodes read and write, new names, and what messages call nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableSet
from typing import Any

import onnx
from onnx import helper

from tvm_rammer.frontend.input_shapes import show


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes by name."""
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes: branches, bodies of loops."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node, in sub-graphs too."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from all_nodes(inner)


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads; its sub-graphs read names of the graphs around them too."""
    yield from filter(None, node.input)
    for graph in subgraphs(node):
        yield from free(graph)


def free(graph: onnx.GraphProto) -> Iterator[str]:
    """What a graph reads of those around it."""
    own = _defined(graph)
    wanted = [name for node in graph.node for name in reads(node)]
    wanted += [value.name for value in graph.output]
    yield from (name for name in wanted if name not in own)


def all_names(graph: onnx.GraphProto) -> set[str]:
    """Every name of a value, in sub-graphs too."""
    found = _defined(graph) | {value.name for value in graph.output}
    for node in graph.node:
        found |= set(node.input)
        for inner in subgraphs(node):
            found |= all_names(inner)
    return found


def fresh(wanted: str, taken: MutableSet[str]) -> str:
    """A name that nobody has; from now on it is taken."""
    name, number = wanted, len(taken)
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of a node under other names, in its sub-graphs as well."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    _rename([copy], names)
    return copy


def _rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for graph in subgraphs(node):
            own = _defined(graph)
            seen = {old: new for old, new in names.items() if old not in own}
            _rename(graph.node, seen)
            for value in graph.output:
                value.name = seen.get(value.name, value.name)


def _defined(graph: onnx.GraphProto) -> set[str]:
    found = {value.name for value in (*graph.input, *graph.initializer)}
    return found | {name for node in graph.node for name in node.output if name}


def describe(node: onnx.NodeProto) -> str:
    """Its operator and its name, or what it computes where it has none."""
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    if not all(part.isidentifier() for part in operator.split(".")):
        operator = repr(operator)
    return f"{operator} (node {node.name or ', '.join(node.output)!r})"


def describe_type(kind: onnx.TypeProto) -> str:
    """Dtype and shape of a tensor."""
    tensor = kind.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return f"{dtype} {show(None)}"
    sizes = (
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in tensor.shape.dim
    )
    return f"{dtype} {show(sizes)}"
