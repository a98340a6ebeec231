"""Normalizations: those of com.microsoft, and the results of ONNX's that TVM's importer drops."""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode


def layer_normalization(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """LayerNormalization; its mean and inverse deviation where they are read."""
    if not node.wants(1) and not node.wants(2):
        return None
    x, scale = node.inputs[:2]
    rank, dtype = len(node.shape(x)), node.dtype(x)
    axes = tuple(range(node.attributes.get("axis", -1) % rank, rank))
    mean, centred, _, deviation = _moments(node, nodes, x, axes)
    inverse = nodes.op("Div", nodes.constant(1, dtype), deviation)
    result = nodes.op("Mul", nodes.op("Mul", centred, inverse), scale)
    if node.input(2):
        result = nodes.op("Add", result, node.input(2))
    return result, mean, inverse


def simplified(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """SimplifiedLayerNormalization: x over its root mean square; and the inverse of that."""
    x, scale = node.inputs[:2]
    rank = len(node.shape(x))
    first = node.attributes.get("axis", -1) % rank
    return _root_mean_square(node, nodes, x, scale, tuple(range(first, rank)), 1e-5)


def rms_normalization(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """RMSNormalization over all axes, which TVM cannot compile."""
    rank = len(node.shape(node.inputs[0]))
    if node.attributes.get("axis", -1) % rank:
        return None
    return simplified(node, nodes)[:1]


def skip_layer_normalization(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """SkipLayerNormalization of x + skip + bias; the sum is the fourth result."""
    x, skip, gamma = node.inputs[:3]
    total = _total(nodes, x, skip, node.input(4))
    outputs = 3 if node.wants(1) or node.wants(2) else 1
    results = nodes.ops(
        "LayerNormalization",
        *filter(None, (total, gamma, node.input(3))),
        count=outputs,
        axis=-1,
        epsilon=node.attributes.get("epsilon", 1e-12),
    )
    return (*results, *[""] * (3 - outputs), total)


def skip_simplified(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """SkipSimplifiedLayerNormalization of x + skip + bias; the sum is the fourth result."""
    x, skip, gamma = node.inputs[:3]
    total = _total(nodes, x, skip, node.input(3))
    last = (len(node.shape(x)) - 1,)
    result, inverse = _root_mean_square(node, nodes, total, gamma, last, 1e-12)
    return result, "", inverse, total


def embed_layer_normalization(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """EmbedLayerNormalization: three embeddings, their sum normalised; how many words are read."""
    ids, segments, words, positions, segment_table, gamma, beta = node.inputs[:7]
    batch, length = node.shape(ids)
    where = node.input(8)
    if not where:
        where = nodes.constant(np.arange(length)[None], np.int64)
    total = nodes.op("Add", nodes.op("Gather", words, ids), nodes.op("Gather", positions, where))
    if segments:
        total = nodes.op("Add", total, nodes.op("Gather", segment_table, segments))
    epsilon = node.attributes.get("epsilon", 1e-12)
    result = nodes.op("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)
    if node.input(7):
        mask = nodes.cast(node.input(7), np.int32)
        count = nodes.reduce("ReduceSum", mask, (1,), keepdims=False)
    else:
        count = nodes.constant(np.zeros(batch), np.int32)
    return result, count, total


def group_normalization(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """GroupNorm, and SkipGroupNorm of x + skip + bias, whose sum is the second result."""
    x, gamma, beta = node.inputs[:3]
    shape, last = node.shape(x), bool(node.attributes.get("channels_last", 1))
    channels = shape[-1] if last else shape[1]
    if node.kind == "SkipGroupNorm":
        skip = node.input(3)
        if len(node.shape(skip)) == 2:
            places = [1] * (len(shape) - 2)
            sizes = (*places, channels) if last else (channels, *places)
            skip = nodes.reshape(skip, node.shape(skip)[0], *sizes)
        x = nodes.op("Add", x, skip)
        if bias := node.input(4):
            sizes = (channels,) if last else (channels, *[1] * (len(shape) - 2))
            x = nodes.op("Add", x, nodes.reshape(bias, *sizes))
    total = x
    if last:
        x = nodes.op("Transpose", x, perm=[0, len(shape) - 1, *range(1, len(shape) - 1)])
    groups, dtype = int(node.attributes["groups"]), node.dtype(node.inputs[0])
    parts = nodes.reshape(x, shape[0], groups, -1)
    _, centred, _, deviation = _moments(node, nodes, parts, (2,))
    normal = nodes.op("Div", centred, deviation)
    places = [
        size for axis, size in enumerate(shape) if axis not in (0, len(shape) - 1 if last else 1)
    ]
    value = nodes.reshape(normal, shape[0], channels, *places)
    for kind, factor in (("Mul", gamma), ("Add", beta)):
        factor = nodes.cast(factor, dtype)
        value = nodes.op(kind, value, nodes.reshape(factor, channels, *[1] * len(places)))
    if node.attributes.get("activation", 0):
        value = nodes.op("Mul", value, nodes.op("Sigmoid", value))
    if last:
        value = nodes.op("Transpose", value, perm=[0, *range(2, len(shape)), 1])
    return value, total


def lp_normalization(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """LpNormalization: x over its norm along an axis; a norm of 0 leaves 0."""
    (x,) = node.inputs
    axis = node.attributes.get("axis", -1)
    kind = {1: "ReduceL1", 2: "ReduceL2"}[node.attributes.get("p", 2)]
    norm = nodes.reduce(kind, x, (axis,))
    dtype = node.dtype(x)
    empty = nodes.op("Equal", norm, nodes.constant(0, dtype))
    return (nodes.op("Div", x, nodes.op("Where", empty, nodes.constant(1, dtype), norm)),)


def batch_normalization(node: OperatorNode, nodes: Nodes) -> tuple[str, ...] | None:
    """BatchNormalization that computes its statistics (``training_mode``)."""
    if node.attributes.get("spatial", 1) != 1:
        raise node.refusal("it has spatial=0; export the model for version 9 of ONNX or later")
    if not node.attributes.get("training_mode", 0):
        if any(node.wants(number) for number in (1, 2, 3, 4)):
            raise node.refusal("it was exported for training; export the model for inference")
        return None
    x, scale, bias, old_mean, old_variance = node.inputs
    rank = len(node.shape(x))
    axes = (0, *range(2, rank))
    channels = [1, -1, *[1] * (rank - 2)]
    dtype = node.dtype(x)
    mean, centred, variance, deviation = _moments(node, nodes, x, axes)
    value = nodes.op("Div", centred, deviation)
    value = nodes.op("Mul", value, nodes.reshape(scale, *channels))
    value = nodes.op("Add", value, nodes.reshape(bias, *channels))
    momentum = node.attributes.get("momentum", 0.9)
    keep, learn = (nodes.constant(part, dtype) for part in (momentum, 1 - momentum))

    def running(old: str, new: str) -> str:
        return nodes.op("Add", nodes.op("Mul", old, keep), nodes.op("Mul", new, learn))

    return (
        value,
        running(old_mean, nodes.reshape(mean, -1)),
        running(old_variance, nodes.reshape(variance, -1)),
    )


def _total(nodes: Nodes, x: str, skip: str, bias: str) -> str:
    total = nodes.op("Add", x, skip)
    return nodes.op("Add", total, bias) if bias else total


def _root_mean_square(
    node: OperatorNode, nodes: Nodes, x: str, scale: str, axes: tuple[int, ...], epsilon: float
) -> tuple[str, str]:
    given = node.dtype(node.inputs[0])
    # Squares of float16 overflow from 256 on.
    half = given.itemsize == 2
    dtype = np.dtype(np.float32) if half else given
    real = nodes.cast(x, np.float32) if half else x
    square = nodes.reduce("ReduceMean", nodes.op("Mul", real, real), axes)
    epsilon = node.attributes.get("epsilon", epsilon)
    root = nodes.op("Sqrt", nodes.op("Add", square, nodes.constant(epsilon, dtype)))
    inverse = nodes.op("Div", nodes.constant(1, dtype), root)
    result = nodes.op("Mul", real, inverse)
    return nodes.op("Mul", nodes.cast(result, given) if half else result, scale), inverse


def _moments(
    node: OperatorNode, nodes: Nodes, x: str, axes: tuple[int, ...]
) -> tuple[str, str, str, str]:
    """The mean of a tensor, what differs from it, the variance, and the deviation."""
    mean = nodes.reduce("ReduceMean", x, axes)
    centred = nodes.op("Sub", x, mean)
    variance = nodes.reduce("ReduceMean", nodes.op("Mul", centred, centred), axes)
    epsilon = nodes.constant(node.attributes.get("epsilon", 1e-5), node.dtype(node.inputs[0]))
    return mean, centred, variance, nodes.op("Sqrt", nodes.op("Add", variance, epsilon))
