"""Replace the recurrent operators of a model by operators for each step.

Those of which the run decides how many steps or sequences there are stay (``open_steps``).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import onnx

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.infer import Types, opsets_of, static_shape, type_of
from tvm_rammer.frontend.onnx.names import all_nodes, attributes_of, subgraphs
from tvm_rammer.frontend.onnx.new_nodes import Nodes, bytes_and_scale
from tvm_rammer.frontend.onnx.recurrent.activations import activations
from tvm_rammer.frontend.onnx.recurrent.cells import Cell, Product, State, Weights, cell
from tvm_rammer.frontend.onnx.recurrent.node import (
    QUANTIZED,
    RecurrentNode,
    is_recurrent,
    parse,
)
from tvm_rammer.frontend.onnx.recurrent.open_steps import refuse_open

#: Steps of all recurrent operators and directions together. Each becomes some 20 operators, and
#: 25,000 operators take a minute to compile.
MOST_STEPS = 5000


def unroll_recurrent(model: onnx.ModelProto, where: str) -> None:
    """Replace LSTM, GRU and RNN, which TVM's importer does not know, in place.

    Parameters
    ----------
    model : onnx.ModelProto
        ``value_info`` tells the shapes of results.
    where : str
        The model, for messages.

    Raises
    ------
    ModelError
        The sizes of such an operator must be known and are not, or ONNX does not define what it
        asks for.
    """
    if not any(map(is_recurrent, all_nodes(model.graph))):
        return
    found: list[RecurrentNode] = []
    nodes = Nodes(model.graph, opsets_of(model).get("", 1), "unrolled")
    _unroll_graph(model.graph, nodes, ChainMap(), found, where)


def _unroll_graph(
    graph: onnx.GraphProto,
    nodes: Nodes,
    outside: ChainMap[str, onnx.TypeProto],
    found: list[RecurrentNode],
    where: str,
) -> None:
    """Unroll a graph and those inside; ``found`` are the recurrent nodes before it."""
    types = outside.new_child()
    types |= {v.name: v.type for v in (*graph.input, *graph.value_info, *graph.output)}
    types |= {tensor.name: type_of(tensor) for tensor in graph.initializer}
    parsed = [parse(node, types, where) for node in graph.node if is_recurrent(node)]
    found += [node for node in parsed if isinstance(node, RecurrentNode)]
    _refuse_long(found)
    protos = list(graph.node)
    del graph.node[:]
    known: dict[str, Steps] = {}
    with nodes.into(graph):
        for proto in protos:
            for inner in subgraphs(proto):
                _unroll_graph(inner, nodes, types, found, where)
            node = parse(proto, types, where) if is_recurrent(proto) else None
            if isinstance(node, RecurrentNode):
                known |= _unroll(nodes, proto, node, known)
                continue
            if node is not None:
                refuse_open(node)
            graph.node.append(proto)
            steps = known.get(proto.input[0]) if proto.input else None
            passed = passed_on(steps, proto, nodes, types) if steps is not None else None
            if passed is not None:
                known[proto.output[0]] = passed


def _refuse_long(found: Sequence[RecurrentNode]) -> None:
    """Raise a ModelError for so many steps that compiling them would take hours."""
    steps = sum(node.steps * len(node.directions) for node in found)
    if steps > MOST_STEPS:
        raise ModelError(
            f"{found[0].where} and what is like it have {steps:,} steps in all, of which no more "
            f"than {MOST_STEPS:,} are unrolled; compile the model for a shorter input"
        )


def _unroll(
    nodes: Nodes, proto: onnx.NodeProto, node: RecurrentNode, known: Mapping[str, Steps]
) -> dict[str, Steps]:
    """Append the steps of a node; returns those of its first result."""
    x, w, r, b, lengths, hidden, memory, peepholes = (*proto.input, *[""] * 8)[:8]
    scale = ""
    if QUANTIZED in node.attributes:
        x, scale = bytes_and_scale(nodes, x)
    inputs = _inputs(nodes, node, x, known)
    masks = _masks(nodes, node, lengths)
    starts = [_starts(nodes, node, state) for state in (hidden, memory)]
    if node.kind != "LSTM":
        starts.pop()
    applied = activations(nodes, node)
    results, finals = [], []
    count = len(node.directions)
    shared = [
        nodes.split(part, 0, count) if part else ("",) * count for part in (w, r, b, peepholes)
    ]
    for number, direction in enumerate(node.directions):
        own_w, own_r, own_b, own_peepholes = (parts[number] for parts in shared)
        biases = _rows(nodes, own_b, 2 * node.gates)
        weights = Weights(
            tuple(_product(nodes, m, scale) for m in _matrices(nodes, node, own_w)),
            _of_states(nodes, node, _matrices(nodes, node, own_r)),
            biases[: node.gates],
            biases[node.gates :],
            _rows(nodes, own_peepholes, 3),
        )
        order = range(node.steps) if direction == "forward" else range(node.steps)[::-1]
        start = tuple(state[number] for state in starts)
        step = cell(nodes, node, weights, applied[number])
        found, final = _run(nodes, node, step, start, inputs, masks, order)
        results.append(found)
        finals.append(final)
    outputs = (*proto.output, *[""] * 3)[:3]
    for name, state in zip(outputs[1:], zip(*finals, strict=True), strict=False):
        if name:
            _write_state(nodes, node, state, name)
    parts = tuple(zip(*results, strict=True))
    return _write_all(nodes, node, parts, outputs[0]) if outputs[0] else {}


def _product(nodes: Nodes, matrix: str, scale: str = "") -> Product:
    """The product of rows with a matrix; ``scale`` is what the rows are to be multiplied with."""

    def product(rows: str) -> str:
        sums = nodes.op("MatMul", rows, matrix)
        return nodes.op("Mul", sums, scale) if scale else sums

    return product


def _of_states(nodes: Nodes, node: RecurrentNode, matrices: Sequence[str]) -> tuple[Product, ...]:
    """The products of a hidden state; all gates of a quantised node see the same bytes of it."""
    if QUANTIZED not in node.attributes:
        return tuple(_product(nodes, matrix) for matrix in matrices)

    @lru_cache(maxsize=1)
    def rounded(state: str) -> tuple[str, str]:
        return bytes_and_scale(nodes, state)

    def product(matrix: str, state: str) -> str:
        rows, scale = rounded(state)
        return _product(nodes, matrix, scale)(rows)

    return tuple(partial(product, matrix) for matrix in matrices)


def _run(
    nodes: Nodes,
    node: RecurrentNode,
    step: Cell,
    state: State,
    inputs: Sequence[str],
    masks: Sequence[str],
    order: Iterable[int],
) -> tuple[list[str], State]:
    """The result of every step, and the state after the last one."""
    results = [""] * node.steps
    for time in order:
        after = step(inputs[time], state)
        if masks:
            # A sequence that is over keeps its state, and its results are 0.
            zero = nodes.constant(0, node.dtype)
            results[time] = nodes.op("Where", masks[time], after[0], zero)
            pairs = zip(after, state, strict=True)
            state = tuple(nodes.op("Where", masks[time], *pair) for pair in pairs)
        else:
            results[time], state = after[0], after
    return results, state


def _inputs(
    nodes: Nodes, node: RecurrentNode, x: str, known: Mapping[str, Steps]
) -> tuple[str, ...]:
    """For each step [batch, features]."""
    steps = known.get(x)
    if steps is not None and steps.axes == ("btf" if node.batch_first else "tbf"):
        return tuple(part for (part,) in steps.parts)
    parts = nodes.split(x, int(node.batch_first), node.steps)
    return tuple(nodes.reshape(part, node.batch, node.features) for part in parts)


def _masks(nodes: Nodes, node: RecurrentNode, lengths: str) -> tuple[str, ...]:
    """For each step which sequences still go on, [batch, 1]; nothing if all have all steps."""
    if not lengths:
        return ()
    column = nodes.reshape(lengths, node.batch, 1)
    times = (nodes.constant(time, np.int32) for time in range(node.steps))
    return tuple(nodes.op("Less", time, column) for time in times)


def _starts(nodes: Nodes, node: RecurrentNode, state: str) -> tuple[str, ...]:
    """For each direction the state before the first step, [batch, hidden]."""
    shape = (node.batch, node.hidden)
    if not state:
        return (nodes.constant(np.zeros(shape), node.dtype),) * len(node.directions)
    parts = nodes.split(state, int(node.batch_first), len(node.directions))
    return tuple(nodes.reshape(part, *shape) for part in parts)


def _matrices(nodes: Nodes, node: RecurrentNode, weights: str) -> tuple[str, ...]:
    """For each gate [inputs, hidden], from [1, gates * hidden, inputs]."""
    parts = nodes.split(weights, 1, node.gates)
    flat = (nodes.reshape(part, node.hidden, -1) for part in parts)
    return tuple(nodes.op("Transpose", part, perm=(1, 0)) for part in flat)


def _rows(nodes: Nodes, rows: str, count: int) -> tuple[str, ...]:
    """``count`` times [1, hidden], from [1, count * hidden]; nothing from nothing."""
    return nodes.split(rows, 1, count) if rows else ()


def _write_all(
    nodes: Nodes, node: RecurrentNode, parts: tuple[tuple[str, ...], ...], name: str
) -> dict[str, Steps]:
    """[steps, directions, batch, hidden], or [batch, steps, directions, hidden]."""
    steps = Steps(parts, node.batch, node.hidden, "btdf" if node.batch_first else "tdbf")
    one = (node.batch, 1, node.hidden) if node.batch_first else (1, node.batch, node.hidden)
    rows = [nodes.reshape(part, *one) for step in parts for part in step]
    whole = nodes.op("Concat", *rows, axis=int(node.batch_first))
    nodes.reshape(whole, *steps.shape(), output=name)
    return {name: steps}


def _write_state(nodes: Nodes, node: RecurrentNode, state: State, name: str) -> None:
    """[directions, batch, hidden], or [batch, directions, hidden]."""
    one = (node.batch, 1, node.hidden) if node.batch_first else (1, node.batch, node.hidden)
    parts = [nodes.reshape(part, *one) for part in state]
    nodes.op("Concat", *parts, axis=int(node.batch_first), output=name)


@dataclass(frozen=True)
class Steps:
    """A tensor that is known step by step.

    Between two recurrent layers an exported model has a Squeeze, or a Transpose and a Reshape. A
    layer that looks through them reads each step as soon as it is there.

    Attributes
    ----------
    parts : tuple of tuple of str
        For each step a tensor [batch, features] per direction.
    batch, features : int
    axes : str
        Those of the whole tensor, outermost first: t(ime), d(irection), b(atch), f(eatures).
    """

    parts: tuple[tuple[str, ...], ...]
    batch: int
    features: int
    axes: str

    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        directions = len(self.parts[0]) if self.parts else 1
        sizes = {"t": len(self.parts), "d": directions, "b": self.batch, "f": self.features}
        return tuple(sizes[axis] for axis in self.axes)


def passed_on(steps: Steps, node: onnx.NodeProto, nodes: Nodes, types: Types) -> Steps | None:
    """The steps of a node's result, given those of its first input; ``None`` if there are none."""
    if node.op_type == "Identity":
        return steps
    attributes = attributes_of(node)
    if node.op_type == "Transpose":
        order = attributes.get("perm") or range(len(steps.axes))[::-1]
        return replace(steps, axes="".join(steps.axes[axis] for axis in order))
    if node.op_type not in ("Squeeze", "Reshape"):
        return None
    joined = _without_directions(steps, nodes)
    shape = static_shape(types.get(node.output[0]))
    return joined if joined is not None and joined.shape() == shape else None


def _without_directions(steps: Steps, nodes: Nodes) -> Steps | None:
    """A step's directions as one tensor: there is only one, or they are neighbours."""
    axes = steps.axes.replace("d", "")
    if all(len(step) == 1 for step in steps.parts):
        return replace(steps, axes=axes)
    if not steps.axes.endswith("df"):
        return None
    parts = tuple((nodes.op("Concat", *step, axis=1),) for step in steps.parts)
    return Steps(parts, steps.batch, steps.features * len(steps.parts[0]), axes)
