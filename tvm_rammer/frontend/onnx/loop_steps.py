"""``Loop`` and ``Scan``, step by step: their bodies again and again, as ordinary nodes.

What a step computes from constants is known before the next one begins, so that a condition may be
found out on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSet
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.infer import Types, Values, domain_of, static_shape
from tvm_rammer.frontend.onnx.names import attributes_of, describe, fresh, renamed, subgraphs
from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.run_time_steps import MOST_OPERATORS

#: Since these versions of ONNX's operators the axes of Unsqueeze are an input, and Scan has no
#: batches.
_AXES_ARE_INPUTS_SINCE = 13
_SCAN_SINCE = 9


@dataclass(frozen=True)
class Slices:
    """Which slice of a tensor each step reads or writes: along ``axis``, perhaps the last first."""

    axis: int = 0
    reverse: bool = False


@dataclass(frozen=True)
class Unrolling:
    """A loop of which some steps are unrolled.

    Attributes
    ----------
    node : onnx.NodeProto
    body : onnx.GraphProto
    counts : bool
        Whether the body reads a number and a condition, and writes a condition: that of a ``Loop``.
    steps : int or None
        Most steps, where there is a limit.
    condition : str
        What decides whether there is a next step; empty if nothing does.
    states : tuple of str
        What the next step reads of the one before it.
    scanned : tuple of (str, Slices)
        Tensors of which each step reads a slice.
    stacked : tuple of Slices
        How the slices that each step writes become tensors.
    begins : tuple of (int, int)
        How many nodes were kept before its first step, and what was left of the budget.
    done : tuple of tuple of str
        These slices, for every step so far.
    shared : mapping of str to str
        Names of the body's constants outside of it: all steps read the same.
    """

    node: onnx.NodeProto
    body: onnx.GraphProto
    counts: bool
    steps: int | None
    condition: str
    states: tuple[str, ...]
    scanned: tuple[tuple[str, Slices], ...]
    stacked: tuple[Slices, ...]
    begins: tuple[int, int] = (0, 0)
    done: tuple[tuple[str, ...], ...] = ()
    shared: Mapping[str, str] = field(default_factory=dict)


class UndecidedLoop(Exception):
    """A ``Loop`` of which only the run tells whether there is a next step, or of too many."""

    def __init__(self, loop: Unrolling) -> None:
        super().__init__(describe(loop.node))
        self.loop = loop


@dataclass
class Budget:
    """How many operators the loops of a model may still become."""

    left: int = field(default_factory=lambda: MOST_OPERATORS)

    def spend(self, loop: Unrolling, where: str) -> None:
        """Take away what one step needs.

        Raises
        ------
        UndecidedLoop
            It is not there, for a ``Loop``.
        ModelError
            It is not there, for a ``Scan``.
        """
        self.left -= _size(loop.body)
        if self.left < 0:
            if loop.counts:
                raise UndecidedLoop(loop)
            raise ModelError(
                f"{where}: the loops become more than {MOST_OPERATORS} operators, "
                f"{describe(loop.node)} {_size(loop.body)} in each step; take fewer steps, or "
                "compile its body as a model of its own"
            )


def unrolling(
    node: onnx.NodeProto, types: Types, values: Values, version: int, where: str
) -> Unrolling | None:
    """A loop before its first step; ``None`` for any other node.

    So it is for a ``Loop`` of which only the run tells how many steps it has.

    Raises
    ------
    ModelError
        How many steps a ``Scan`` has is not known.
    """
    if domain_of(node) or node.op_type not in ("Loop", "Scan"):
        return None
    attributes = attributes_of(node)
    body = attributes["body"]
    if node.op_type == "Scan":
        if version < _SCAN_SINCE:
            raise _refused(node, where, f"it is of version {version} of ONNX's operators")
        return _scan(node, body, attributes, types, where)
    limit, condition, *states = (*node.input, "", "")[: max(2, len(node.input))]
    if limit and limit not in values:
        return None
    steps = int(numpy_helper.to_array(values[limit]).item()) if limit else None
    stacked = (Slices(),) * (len(body.output) - 1 - len(states))
    return Unrolling(node, body, True, steps, condition, tuple(states), (), stacked)


def _scan(
    node: onnx.NodeProto,
    body: onnx.GraphProto,
    attributes: Mapping[str, Any],
    types: Types,
    where: str,
) -> Unrolling:
    number = len(node.input) - int(attributes["num_scan_inputs"])
    states, read = node.input[:number], node.input[number:]
    slices = _slices(attributes, "input", len(read))
    steps = set()
    for name, each in zip(read, slices, strict=True):
        shape = static_shape(types.get(name))
        if shape is None:
            raise _refused(node, where, f"the shape of {name!r} is not known")
        steps.add(shape[each.axis])
    if len(steps) != 1:
        raise _refused(node, where, f"its inputs have {sorted(steps)} steps")
    stacked = _slices(attributes, "output", len(body.output) - number)
    scanned = tuple(zip(read, slices, strict=True))
    return Unrolling(node, body, False, steps.pop(), "", tuple(states), scanned, stacked)


def _slices(attributes: Mapping[str, Any], kind: str, count: int) -> tuple[Slices, ...]:
    axes = attributes.get(f"scan_{kind}_axes", [0] * count)
    reverse = attributes.get(f"scan_{kind}_directions", [0] * count)
    return tuple(Slices(axis, bool(way)) for axis, way in zip(axes, reverse, strict=True))


def has_next(loop: Unrolling, values: Values) -> bool:
    """Whether there is a step after those that are unrolled.

    Raises
    ------
    UndecidedLoop
        That is not known.
    """
    if loop.steps is not None and len(loop.done) >= loop.steps:
        return False
    if loop.condition and loop.condition not in values:
        raise UndecidedLoop(loop)
    return not loop.condition or bool(numpy_helper.to_array(values[loop.condition]).all())


def next_step(
    loop: Unrolling, graph: onnx.GraphProto, version: int, taken: MutableSet[str]
) -> tuple[list[onnx.NodeProto], Unrolling]:
    """The nodes of the next step, and the loop after it.

    Before the first one initialisers of the body become those of ``graph``.
    """
    first = not loop.done
    shared = _shared(loop.body, graph, taken) if first else loop.shared
    computed = [node for node in loop.body.node if first or node.op_type != "Constant"]
    made = onnx.GraphProto()
    given = _given(loop, Nodes(made, version, "unrolled", taken))
    names = {value.name: name for value, name in zip(loop.body.input, given, strict=True)}
    names |= shared
    for name in (name for node in computed for name in node.output if name not in shared):
        names[name] = fresh(name, taken) if name else ""
    results = [names.get(value.name, value.name) for value in loop.body.output]
    condition = results.pop(0) if loop.counts else ""
    count = len(loop.states)
    after = replace(
        loop,
        condition=condition,
        states=tuple(results[:count]),
        done=(*loop.done, tuple(results[count:])),
        shared=shared,
    )
    return [*made.node, *(renamed(node, names) for node in computed)], after


def _shared(
    body: onnx.GraphProto, graph: onnx.GraphProto, taken: MutableSet[str]
) -> dict[str, str]:
    constants = [node.output[0] for node in body.node if node.op_type == "Constant"]
    names = {name: fresh(name, taken) for name in constants}
    for tensor in body.initializer:
        names[tensor.name] = fresh(tensor.name, taken)
        graph.initializer.add().CopyFrom(tensor)
        graph.initializer[-1].name = names[tensor.name]
    return names


def _given(loop: Unrolling, nodes: Nodes) -> Iterator[str]:
    """What the next step reads, in the order of the body's inputs; ``nodes`` compute it."""
    step = len(loop.done)
    if loop.counts:
        yield _constant(nodes, np.array(step, np.int64))
        yield _constant(nodes, np.array(True))
    yield from loop.states
    for name, slices in loop.scanned:
        place = (loop.steps or 0) - 1 - step if slices.reverse else step
        index = _constant(nodes, np.array(place, np.int64))
        yield nodes.op("Gather", name, index, axis=slices.axis)


def results(
    loop: Unrolling, version: int, taken: MutableSet[str], where: str
) -> list[onnx.NodeProto]:
    """What computes the results of a loop whose steps are all unrolled.

    Raises
    ------
    ModelError
        There are no steps, and the shape of what they would have written is not known.
    """
    made = onnx.GraphProto()
    nodes = Nodes(made, version, "unrolled", taken)
    count = len(loop.states)
    for name, state in zip(loop.node.output[:count], loop.states, strict=False):
        if name:
            nodes.op("Identity", state, output=name)
    written = loop.body.output[len(loop.body.output) - len(loop.stacked) :]
    for number, name in enumerate(loop.node.output[count:]):
        slices = loop.stacked[number]
        parts = [each[number] for each in loop.done][:: -1 if slices.reverse else 1]
        if not name:
            continue
        if not parts:
            empty = _empty(loop.node, name, written[number], slices, where)
            nodes.op("Constant", output=name, value=empty)
            continue
        wide = [_unsqueezed(nodes, part, slices.axis, version) for part in parts]
        nodes.op("Concat", *wide, output=name, axis=slices.axis)
    return list(made.node)


def _empty(
    node: onnx.NodeProto, name: str, part: onnx.ValueInfoProto, slices: Slices, where: str
) -> onnx.TensorProto:
    shape = static_shape(part.type)
    if shape is None:
        raise _refused(node, where, f"it has no steps, and the shape of {name!r} is not known")
    axis = slices.axis % (len(shape) + 1)
    dtype = helper.tensor_dtype_to_np_dtype(part.type.tensor_type.elem_type)
    return numpy_helper.from_array(np.empty((*shape[:axis], 0, *shape[axis:]), dtype))


def _unsqueezed(nodes: Nodes, part: str, axis: int, version: int) -> str:
    if version < _AXES_ARE_INPUTS_SINCE:
        return nodes.op("Unsqueeze", part, axes=[axis])
    return nodes.op("Unsqueeze", part, _constant(nodes, np.array([axis], np.int64)))


def _constant(nodes: Nodes, value: np.ndarray) -> str:
    """A node, so that nothing is left of what nobody reads."""
    return nodes.op("Constant", value=numpy_helper.from_array(value))


def _size(graph: onnx.GraphProto) -> int:
    """How many operators a graph has, in sub-graphs too."""
    return len(graph.node) + sum(_size(inner) for node in graph.node for inner in subgraphs(node))


def _refused(node: onnx.NodeProto, where: str, reason: str) -> ModelError:
    return ModelError(
        f"{where}: {describe(node)} cannot be unrolled: {reason}; fix the inputs that decide it "
        "with constants=, or compile its body as a model of its own"
    )
