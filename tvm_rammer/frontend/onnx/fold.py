"""Computes what shapes and constants decide in a graph: shapes of shapes, branches of ``If``.

ONNX's own shape inference and its reference implementation do the work, node by node in one pass;
so every node is also checked against what ONNX allows. Nothing else is rewritten.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping, MutableSet, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import onnx
from onnx import helper, numpy_helper, shape_inference

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.loaded_model import one_line
from tvm_rammer.frontend.onnx.infer import (
    LARGEST_OPERAND,
    domain_of,
    opsets_of,
    result_types,
    result_values,
    type_of,
)
from tvm_rammer.frontend.onnx.loop_steps import (
    Budget,
    UndecidedLoop,
    Unrolling,
    has_next,
    next_step,
    results,
    unrolling,
)
from tvm_rammer.frontend.onnx.loop_types import in_common, stacked_type, state_type
from tvm_rammer.frontend.onnx.names import (
    all_names,
    describe,
    describe_type,
    fresh,
    reads,
    renamed,
    subgraphs,
)
from tvm_rammer.frontend.onnx.partly_known import PartlyKnown
from tvm_rammer.frontend.onnx.validate import contradiction
from tvm_rammer.units import listed


@dataclass(frozen=True)
class _Scope:
    """What is known where a graph's nodes are.

    Attributes
    ----------
    types : mapping of str to onnx.TypeProto
    values : mapping of str to onnx.TensorProto
        Constants, except large ones.
    opsets : mapping of str to int
    partly : PartlyKnown
        What is known of other vectors of sizes.
    taken : set of str
        All names in the model.
    where : str
        The model, for messages.
    budget : Budget
        What loops may become.
    """

    types: ChainMap[str, onnx.TypeProto]
    values: ChainMap[str, onnx.TensorProto]
    opsets: Mapping[str, int]
    partly: PartlyKnown
    taken: MutableSet[str]
    where: str
    budget: Budget = field(default_factory=Budget)


def fold(model: onnx.ModelProto, where: str) -> None:
    """Replace by constants what the shapes of the inputs and the constants decide, in place.

    ``If`` with a known condition gives way to its branch, and loops to their steps, in sub-graphs
    too. Afterwards ``value_info`` says what is known about the results of all nodes.

    Parameters
    ----------
    model : onnx.ModelProto
        Its inputs have static shapes.
    where : str
        The model, for messages.

    Raises
    ------
    ModelError
        A node contradicts its inputs or attributes, or a loop cannot be unrolled.
    """
    graph = model.graph
    opsets = opsets_of(model)
    partly = PartlyKnown(opsets)
    scope = _Scope(ChainMap(), ChainMap(), opsets, partly, all_names(graph), where)
    _fold_graph(graph, scope, {value.name: value.type for value in graph.input})


def _fold_graph(
    graph: onnx.GraphProto, outer: _Scope, inputs: Mapping[str, onnx.TypeProto]
) -> None:
    scope = replace(outer, types=outer.types.new_child(), values=outer.values.new_child())
    scope.types.update(inputs)
    for tensor in graph.initializer:
        _note(tensor, scope)
    declared = {value.name: value.type for value in (*graph.value_info, *graph.output)}
    waiting: list[onnx.NodeProto | Unrolling] = list(reversed(graph.node))
    kept: list[onnx.NodeProto] = []
    changed = False
    while waiting:
        node = waiting.pop()
        try:
            parts = _parts(node, graph, scope, len(kept))
        except UndecidedLoop as undecided:
            # Its steps are forgotten: it stays a loop.
            node, parts = undecided.loop.node, None
            count, scope.budget.left = undecided.loop.begins
            del kept[count:]
        if isinstance(node, Unrolling) or parts is not None:
            waiting.extend(reversed(parts or []))
            changed = True
            continue
        known = {name: declared[name] for name in node.output if name in declared}
        # What a branch gives is known better when the branch is folded.
        if node.op_type == "Loop" and not domain_of(node):
            known |= _fold_body(node, scope)
        else:
            for inner in subgraphs(node):
                _fold_graph(inner, scope, {value.name: value.type for value in inner.input})
            known |= _types(node, scope)
        scope.types.update(known)
        values = result_values(node, scope.types, scope.values, scope.opsets)
        if values is None:
            values = scope.partly.note(node, scope.types, scope.values)
        for value in (values or {}).values():
            _note(value, scope)
        if values is not None:
            changed = True
            continue
        kept.append(node)
    if changed:
        _rewrite(graph, kept, scope)
    _describe_values(graph, scope)


def _note(tensor: onnx.TensorProto, scope: _Scope) -> None:
    """Remember a constant."""
    scope.types[tensor.name] = type_of(tensor)
    if prod(tensor.dims) <= LARGEST_OPERAND:
        scope.values[tensor.name] = tensor


def _types(node: onnx.NodeProto, scope: _Scope) -> dict[str, onnx.TypeProto]:
    try:
        types = result_types(node, scope.types, scope.values, scope.opsets)
        types |= scope.partly.shaped(node, scope.types)
        reason = contradiction(node, scope.types.new_child(types), scope.opsets)
    except shape_inference.InferenceError as error:
        reason = re.sub(r"\[\w+\] ?", "", one_line(error))
    if reason is not None:
        inputs = listed(
            f"{name!r} {describe_type(scope.types.get(name, onnx.TypeProto()))}"
            for name in node.input
            if name
        )
        raise ModelError(
            f"{scope.where}: ONNX forbids {describe(node)}: {reason}; its inputs are {inputs}; "
            "correct the model, or the shapes that were given"
        )
    return types


def _fold_body(node: onnx.NodeProto, scope: _Scope) -> dict[str, onnx.TypeProto]:
    """Fold the body of a loop that only the run counts; the types of the loop's results.

    What steps have in common is known of the states: first what they begin with, then what is left
    of it after a step, until that stays as it is.
    """
    (body,) = subgraphs(node)
    types = [state_type(node, name, scope.types, scope.where) for name in node.input[2:]]
    while True:
        folded = onnx.GraphProto()
        folded.CopyFrom(body)
        for value, kind in zip(folded.input[2:], types, strict=True):
            value.type.CopyFrom(kind)
        inside = replace(scope, budget=replace(scope.budget))
        _fold_graph(folded, inside, {value.name: value.type for value in folded.input})
        after = [value.type for value in folded.output[1 : 1 + len(types)]]
        common = [in_common(node, *pair, scope.where) for pair in zip(types, after, strict=True)]
        if common == types:
            break
        types = common
    for value, kind in zip(folded.output[1:], types, strict=False):
        value.type.CopyFrom(kind)
    body.CopyFrom(folded)
    stacked = [stacked_type(node, value, scope.where) for value in body.output[1 + len(types) :]]
    return {name: kind for name, kind in zip(node.output, [*types, *stacked], strict=False) if name}


def _parts(
    node: onnx.NodeProto | Unrolling, graph: onnx.GraphProto, scope: _Scope, kept: int
) -> list[onnx.NodeProto | Unrolling] | None:
    """What takes the place of a conditional or a loop; ``None`` for an operator."""
    version = scope.opsets.get("", 1)
    if not isinstance(node, Unrolling):
        if (branch := _decided(node, scope)) is not None:
            return [*_inlined(node, branch, graph, scope)]
        loop = unrolling(node, scope.types, scope.values, version, scope.where)
        return None if loop is None else [replace(loop, begins=(kept, scope.budget.left))]
    if not has_next(node, scope.values):
        return [*results(node, version, scope.taken, scope.where)]
    scope.budget.spend(node, scope.where)
    count = len(graph.initializer)
    step, after = next_step(node, graph, version, scope.taken)
    for tensor in graph.initializer[count:]:
        _note(tensor, scope)
    return [*step, after]


def _decided(node: onnx.NodeProto, scope: _Scope) -> onnx.GraphProto | None:
    """The branch that an ``If`` takes, if that is known."""
    if node.op_type != "If" or domain_of(node):
        return None
    condition = scope.values.get(node.input[0])
    if condition is None:
        return None
    wanted = "then_branch" if numpy_helper.to_array(condition).all() else "else_branch"
    return next(each.g for each in node.attribute if each.name == wanted)


def _inlined(
    node: onnx.NodeProto, branch: onnx.GraphProto, graph: onnx.GraphProto, scope: _Scope
) -> list[onnx.NodeProto]:
    """The nodes of a branch under names of the graph around it; its constants are moved there."""
    computed = {name for each in branch.node for name in each.output if name}
    names: dict[str, str] = {}
    passed: list[onnx.NodeProto] = []
    for inner, outer in zip(branch.output, node.output, strict=True):
        if inner.name in computed and inner.name not in names and outer:
            names[inner.name] = outer
        elif outer:
            passed.append(helper.make_node("Identity", [inner.name], [outer]))
    for name in (*computed, *(tensor.name for tensor in branch.initializer)):
        if name not in names:
            names[name] = fresh(name, scope.taken)
    for tensor in branch.initializer:
        tensor.name = names[tensor.name]
        graph.initializer.append(tensor)
        _note(graph.initializer[-1], scope)
    return [renamed(each, names) for each in (*branch.node, *passed)]


def _rewrite(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], scope: _Scope) -> None:
    """Leave the nodes that the outputs need, and make initialisers of new constants."""
    needed = {value.name for value in graph.output}
    live = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(reads(node))
            live.append(node)
    del graph.node[:]
    graph.node.extend(reversed(live))
    known = {tensor.name for tensor in graph.initializer}
    own = scope.values.maps[0]
    graph.initializer.extend(own[name] for name in sorted(needed & own.keys() - known))


def _describe_values(graph: onnx.GraphProto, scope: _Scope) -> None:
    """Write down the types of all results."""
    for value in graph.output:
        if value.name in scope.types:
            value.type.CopyFrom(scope.types[value.name])
    said = {value.name for value in graph.output}
    results = (name for node in graph.node for name in node.output if name not in said)
    del graph.value_info[:]
    for name in results:
        if name in scope.types:
            graph.value_info.add(name=name, type=scope.types[name])
