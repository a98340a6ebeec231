"""Operators that choose or reorder elements."""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode


def one_hot(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """OneHot: a new axis of the given depth; an index outside of it is nowhere."""
    indices, _, values = node.inputs
    depth = int(node.needed_constant(1, "depth").reshape(()))
    rank = len(node.shape(indices)) + 1
    axis = node.attributes.get("axis", -1) % rank
    dtype = node.dtype(indices)
    shape = list(node.shape(indices))
    shape.insert(axis, 1)
    if np.issubdtype(dtype, np.floating):
        indices, dtype = nodes.cast(indices, np.int64), np.dtype(np.int64)
    where = nodes.reshape(indices, *shape)
    if np.issubdtype(dtype, np.signedinteger):
        # A negative index counts from the end.
        zero, size = (nodes.constant(number, dtype) for number in (0, depth))
        from_end = nodes.op("Add", where, size)
        where = nodes.op("Where", nodes.op("Less", where, zero), from_end, where)
    column = [1] * rank
    column[axis] = depth
    steps = nodes.constant(np.arange(depth).reshape(column), dtype)
    off, on = nodes.split(values, 0, 2)
    return (nodes.op("Where", nodes.op("Equal", where, steps), on, off),)


def reverse_sequence(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """ReverseSequence: of each sequence the first so many steps, backwards."""
    x, lengths = node.inputs
    shape = node.shape(x)
    batch_axis = node.attributes.get("batch_axis", 1)
    time_axis = node.attributes.get("time_axis", 0)
    steps, batch = shape[time_axis], shape[batch_axis]
    grid = (steps, 1) if time_axis == 0 else (1, steps)
    time = nodes.constant(np.arange(steps).reshape(grid), np.int64)
    count = nodes.reshape(
        nodes.cast(lengths, np.int64), *((1, batch) if time_axis == 0 else (batch, 1))
    )
    mirrored = nodes.op("Sub", nodes.op("Sub", count, nodes.constant(1, np.int64)), time)
    where = nodes.op("Where", nodes.op("Less", time, count), mirrored, time)
    wide = nodes.reshape(where, *(shape[:2]), *[1] * (len(shape) - 2))
    wide = nodes.op("Expand", wide, nodes.constant(shape, np.int64))
    return (nodes.op("GatherElements", x, wide, axis=time_axis),)


def non_max_suppression(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """NonMaxSuppression: the smaller corner of a box first.

    ONNX allows any two opposite corners, and centers with sizes.
    """
    boxes, scores = node.inputs[:2]
    for number, what in enumerate(("number of boxes", "IoU threshold", "score threshold"), start=2):
        if node.input(number):
            node.needed_constant(number, what)
    first, second = nodes.slice(boxes, 2, 0, 2), nodes.slice(boxes, 2, 2, 4)
    if node.attributes.get("center_point_box", 0):
        half = nodes.op("Mul", second, nodes.constant(0.5, np.float32))
        first, second = nodes.op("Sub", first, half), nodes.op("Add", first, half)
    corners = nodes.op("Min", first, second), nodes.op("Max", first, second)
    boxes = nodes.op("Concat", *corners, axis=2)
    limits = [node.input(number) for number in (2, 3, 4)]
    return (nodes.op("NonMaxSuppression", boxes, scores, *limits),)


def compress(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """Compress where it is known what is kept: that many elements, at known places."""
    condition, x = node.constant(1), node.inputs[0]
    if condition is None or not condition.any():
        return None
    axis = node.attributes.get("axis")
    if axis is None:
        x, axis = nodes.reshape(x, -1), 0
    places = nodes.constant(np.flatnonzero(condition), np.int64)
    return (nodes.op("Gather", x, places, axis=axis),)


def slice_elements(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """Slice: version 1 has its bounds as attributes."""
    if "starts" not in node.attributes:
        return None
    starts, ends = node.attributes["starts"], node.attributes["ends"]
    axes = node.attributes.get("axes", range(len(starts)))
    bounds = (nodes.constant(list(numbers), np.int64) for numbers in (starts, ends, axes))
    return (nodes.op("Slice", node.inputs[0], *bounds),)


def reshape(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """Reshape: version 1 has its shape as an attribute."""
    if "shape" not in node.attributes:
        return None
    shape = nodes.constant(list(node.attributes["shape"]), np.int64)
    return (nodes.op("Reshape", node.inputs[0], shape),)


def top_k(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """TopK in any order, for which the sorted one will do."""
    if node.attributes.get("sorted", 1):
        return None
    return nodes.ops("TopK", *node.inputs, count=2, **{**node.attributes, "sorted": 1})


def onnx_own(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """An operator of com.microsoft that ONNX has since taken over."""
    return (nodes.op(node.kind, *filter(None, node.inputs), **node.attributes),)


def expand_dims(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """ExpandDims: another axis, where a constant says."""
    x = node.inputs[0]
    shape = list(node.shape(x))
    axis = int(node.needed_constant(1, "axis").reshape(()))
    shape.insert(axis % (len(shape) + 1), 1)
    return (nodes.reshape(x, *shape),)
