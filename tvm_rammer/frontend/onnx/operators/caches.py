"""Keys and values that a decoder remembers: buffers of a fixed length, of which a step writes some.

What is replaced is chosen place by place: compiled, a state of which a row is replaced is written
where it is (:mod:`tvm_rammer.kernel.replacement`).
"""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode


def tensor_scatter(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """TensorScatter: an update in a cache, from a place of its own in every sequence on."""
    past, new = node.inputs[:2]
    shape, steps = node.shape(past), node.shape(new)
    axis = node.attributes.get("axis", -2) % len(shape)
    if node.input(2):
        first = nodes.reshape(nodes.cast(node.input(2), np.int64), shape[0], 1)
    else:
        first = nodes.constant(np.zeros((shape[0], 1)), np.int64)
    circular = node.attributes.get("mode", b"linear") == b"circular"
    return (written(nodes, past, new, first, (shape, steps[axis], axis), circular=circular),)


def written(
    nodes: Nodes,
    past: str,
    new: str,
    first: str,
    sizes: tuple[tuple[int, ...], int, int],
    *,
    circular: bool = False,
) -> str:
    """A cache in which new entries stand from the place ``first`` on, [batch, 1].

    ``sizes`` are the shape of the cache, the number of new entries and the axis that they follow
    each other along; ``circular``, those beyond its end go on at its beginning.
    """
    shape, count, axis = sizes
    places = nodes.constant(np.arange(shape[axis])[None], np.int64)
    number = nodes.op("Sub", places, first)
    if circular:
        number = nodes.op("Mod", number, nodes.constant(shape[axis], np.int64))
    zero = nodes.constant(0, np.int64)
    if count == 1:
        here = nodes.op("Equal", number, zero)
    else:
        behind = nodes.op("Less", number, nodes.constant(count, np.int64))
        here = nodes.op("And", behind, nodes.op("Not", nodes.op("Less", number, zero)))
        inside = nodes.op("Min", nodes.op("Max", number, zero), nodes.constant(count - 1, np.int64))
        whole = nodes.constant(shape, np.int64)
        which = nodes.op("Expand", _along(nodes, inside, shape, axis), whole)
        new = nodes.op("GatherElements", new, which, axis=axis)
    return nodes.op("Where", _along(nodes, here, shape, axis), new, past)


def _along(nodes: Nodes, value: str, shape: tuple[int, ...], axis: int) -> str:
    """What every sequence has for each place, such that it fits a cache."""
    sizes = [shape[0], *[1] * (len(shape) - 1)]
    sizes[axis] = shape[axis]
    return nodes.reshape(value, *sizes)
