"""Replaces operators that TVM's importer lacks, or takes for something else, by ones that it knows.

One walk over the nodes, with the types and the constants of all tensors before each. What a rule
appends is walked as well, so that rules may use each other's operators. Behind an operator that
ONNX does not know shapes are known only now: what they decide is computed here too.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable

import onnx
from onnx import helper

from tvm_rammer.frontend.onnx.infer import (
    domain_of,
    opsets_of,
    result_types,
    result_values,
    schema_of,
    static_shape,
    type_of,
)
from tvm_rammer.frontend.onnx.names import all_nodes, reads, subgraphs
from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.elementwise_forms import BROADCASTS_SINCE, old_broadcast
from tvm_rammer.frontend.onnx.operators.functions import inline_function
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode, parse
from tvm_rammer.frontend.onnx.operators.table import FUNCTIONS, RULES
from tvm_rammer.frontend.onnx.recurrent.node import QUANTIZED


def rewrite_operators(model: onnx.ModelProto, where: str, states: Collection[str] = ()) -> None:
    """Replace the operators that TVM's importer lacks or gets wrong, in place.

    Parameters
    ----------
    model : onnx.ModelProto
        Its inputs have static shapes.
    where : str
        The model, for messages.
    states : collection of str
        Inputs that are what outputs were after the run before.

    Raises
    ------
    ModelError
        A node of a known operator asks for what cannot be compiled.
    """
    version = opsets_of(model).get("", 1)
    if not any(_may_change(node, version) for node in all_nodes(model.graph)):
        return
    # Before version 4 constants had to be inputs as well.
    model.ir_version = max(model.ir_version, 4)
    _drop_unread_results(model)
    _Walk(model, where, states).graph(model.graph)
    _drop_unread_constants(model.graph)


def _may_change(node: onnx.NodeProto, version: int) -> bool:
    key = domain_of(node), node.op_type
    if RULES.get(key) is old_broadcast:
        return version < BROADCASTS_SINCE
    return key in RULES or key in FUNCTIONS


def _drop_unread_results(model: onnx.ModelProto) -> None:
    """A rule need not compute what nobody reads, such as a mask or a mean for training."""
    read, opsets = _read_names(model.graph), opsets_of(model)
    for node in all_nodes(model.graph):
        if not _may_change(node, opsets.get("", 1)):
            continue
        schema = schema_of(node, opsets)
        required = 1 if schema is None else schema.min_output
        kept = [name if k < required or name in read else "" for k, name in enumerate(node.output)]
        while len(kept) > 1 and not kept[-1]:
            kept.pop()
        if any(kept):
            node.output[:] = kept


def _drop_unread_constants(graph: onnx.GraphProto) -> None:
    """TVM's importer makes tensors of all, also of those that rules read in its place."""
    read = _read_names(graph)
    for number in reversed(range(len(graph.initializer))):
        if graph.initializer[number].name not in read:
            del graph.initializer[number]


def _read_names(graph: onnx.GraphProto) -> set[str]:
    """The tensors that nodes read, in inner graphs too, or that are results."""
    nodes = list(all_nodes(graph))
    graphs = [graph, *(inner for node in nodes for inner in subgraphs(node))]
    read = {name for node in nodes for name in node.input}
    return read | {value.name for each in graphs for value in each.output}


def _as_onnx_knows_it(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node without attributes of our own."""
    known = [attribute for attribute in node.attribute if attribute.name != QUANTIZED]
    if len(known) == len(node.attribute):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(known)
    return copy


class _Walk:
    """What is known at a node: types and constants of the tensors before it."""

    def __init__(self, model: onnx.ModelProto, where: str, states: Collection[str]) -> None:
        self._where, self._states = where, states
        self._opsets = opsets_of(model)
        self._version = self._opsets.get("", 1)
        self._types: ChainMap[str, onnx.TypeProto] = ChainMap()
        self._values: ChainMap[str, onnx.TensorProto] = ChainMap()
        # All new names are the outermost graph's: inner graphs see its tensors.
        self._nodes = Nodes(model.graph, self._version, "operators")

    def graph(self, graph: onnx.GraphProto) -> None:
        """Rewrite a graph in place."""
        outer = self._types, self._values
        self._types, self._values = self._types.new_child(), self._values.new_child()
        nodes = list(graph.node)
        del graph.node[:]
        self._note(graph.initializer)
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.tensor_type.HasField("shape"):
                self._types.setdefault(value.name, value.type)
        with self._nodes.into(graph):
            for node in nodes:
                self._visit(graph, node)
        self._describe(graph)
        self._types, self._values = outer

    def _visit(
        self, graph: onnx.GraphProto, proto: onnx.NodeProto, done: tuple[str, str] | None = None
    ) -> None:
        """Append a node, or what replaces it; ``done`` is the operator whose rule appended it."""
        for inner in subgraphs(proto):
            self.graph(inner)
        self._types.update(self._inferred(proto))
        if self._computed(graph, proto):
            return
        node = parse(proto, self._where, self._version, self._types, self._values, self._states)
        start, known = len(graph.node), len(graph.initializer)
        results = self._rewritten(node) if node.key != done else None
        if results is None:
            graph.node.append(proto)
            return
        self._note(graph.initializer[known:])
        emitted = list(graph.node[start:])
        del graph.node[start:]
        for each in emitted:
            self._visit(graph, each, done=node.key)
        for name, result in zip(proto.output, results, strict=False):
            if name and result:
                self._visit(graph, helper.make_node("Identity", [result], [name], name))

    def _rewritten(self, node: OperatorNode) -> tuple[str, ...] | None:
        rule = RULES.get(node.key)
        if rule is not None and (results := rule(node, self._nodes)) is not None:
            return results
        return inline_function(node, self._nodes) if node.key in FUNCTIONS else None

    def _computed(self, graph: onnx.GraphProto, proto: onnx.NodeProto) -> bool:
        """Whether the results are constants; then they are noted as such."""
        values = result_values(proto, self._types, self._values, self._opsets)
        if values is None:
            return False
        graph.initializer.extend(values.values())
        self._note(values.values())
        return True

    def _note(self, tensors: Iterable[onnx.TensorProto]) -> None:
        for tensor in tensors:
            self._types[tensor.name] = type_of(tensor)
            self._values[tensor.name] = tensor

    def _inferred(self, proto: onnx.NodeProto) -> dict[str, onnx.TypeProto]:
        """Types of results, where they are not known as a whole."""
        unknown = {
            name for name in proto.output if name and static_shape(self._types.get(name)) is None
        }
        if not unknown:
            return {}
        found = result_types(_as_onnx_knows_it(proto), self._types, self._values, self._opsets)
        if not found and proto.op_type == "Conv":
            found = self._inferred_of_integers(proto)
        return {name: kind for name, kind in found.items() if name in unknown}

    def _inferred_of_integers(self, proto: onnx.NodeProto) -> dict[str, onnx.TypeProto]:
        """Types of a convolution of integers, which TVM knows and ONNX does not."""
        names = [name for name in reads(proto) if name in self._types]
        shapes = {name: static_shape(self._types[name]) for name in names}
        if not names or None in shapes.values():
            return {}
        floats = {
            name: helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape)
            for name, shape in shapes.items()
        }
        kind = self._types[names[0]].tensor_type.elem_type
        return {
            name: helper.make_tensor_type_proto(kind, static_shape(found))
            for name, found in result_types(proto, floats, {}, self._opsets).items()
        }

    def _describe(self, graph: onnx.GraphProto) -> None:
        """Tell the steps behind this one what ONNX's inference could not know."""
        told = {value.name for value in (*graph.value_info, *graph.input, *graph.output)}
        for node in graph.node:
            for name in node.output:
                if name and name not in told and name in self._types:
                    graph.value_info.add(name=name, type=self._types[name])
