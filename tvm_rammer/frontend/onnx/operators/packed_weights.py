"""Operators of com.microsoft whose weights have a few bits each, and blocks with a scale of their
own: what language models are quantised to.
"""

from __future__ import annotations

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode

_BITS_OF_BYTE = 8


def matmul_nbits(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """MatMulNBits: A, packed weights [N, blocks, bytes], scales, zero points, groups, bias.

    The real weights are float32, whatever A is: those of 16 bits would be rounded.
    """
    a, dtype = node.inputs[0], node.dtype(node.inputs[0])
    k, n, size = (int(node.attributes[name]) for name in ("K", "N", "block_size"))
    bits = _bits(node)
    values = unpacked(_bytes(node.needed_constant(1, "weights")).reshape(n, -1), bits, k)
    groups = node.needed_constant(4, "index of groups") if node.input(4) else None
    where = np.arange(k) // size if groups is None else groups.reshape(-1)[:k]
    scales = node.needed_constant(2, "scales").reshape(n, -1)
    points = _zero_points(node, node.input(3), bits, scales.shape)
    real = values.astype(np.float32) - points.astype(np.float32)[:, where]
    real *= scales.astype(np.float32)[:, where]
    result = nodes.op("MatMul", nodes.cast(a, np.float32), nodes.constant(real.T, np.float32))
    if node.input(5):
        result = nodes.op("Add", result, nodes.cast(node.input(5), np.float32))
    return (nodes.cast(result, dtype),)


def gather_block_quantized(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """GatherBlockQuantized: packed data, indices, scales, zero points; slices are taken as integers
    of 8 bits, and become real behind that.
    """
    data = node.needed_constant(0, "data")
    bits, size = _bits(node), int(node.attributes.get("block_size", 128))
    axis, rank = int(node.attributes.get("gather_axis", 0)) % data.ndim, data.ndim
    if int(node.attributes.get("quantize_axis", 1)) % rank != rank - 1 or axis == rank - 1:
        raise node.refusal("its blocks do not lie along the last axis, or slices are taken there")
    scales = node.needed_constant(2, "scales")
    if data.dtype == np.uint8 and bits < _BITS_OF_BYTE:
        data = unpacked(data, bits, data.shape[-1] * _BITS_OF_BYTE // bits)
        points = _zero_points(node, node.input(3), bits, scales.shape)
    else:
        default = 1 << (bits - 1) if data.dtype == np.uint8 else 0
        points = np.full(scales.shape, default)
        if node.input(3):
            points = node.needed_constant(3, "zero points").astype(np.int64)
    where = np.arange(data.shape[-1]) // size
    values = data.astype(np.int64) - points[..., where]
    small = np.int8 if np.array_equal(values, values.astype(np.int8)) else np.int16
    indices, blocks = node.inputs[1], nodes.constant(where, np.int64)
    rows = nodes.op("Gather", nodes.constant(values, small), indices, axis=axis)
    steps = nodes.op("Gather", node.inputs[2], indices, axis=axis)
    steps = nodes.op("Gather", steps, blocks, axis=-1)
    return (nodes.op("Mul", nodes.cast(rows, scales.dtype), steps),)


def unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first ``count`` numbers of so many bits in every row of bytes, the lowest bits first.

    Parameters
    ----------
    packed : ndarray of uint8, [..., bytes]
    bits, count : int

    Returns
    -------
    ndarray of uint8, [..., count]
    """
    shifts = np.arange(0, _BITS_OF_BYTE, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)[..., :count]


def _zero_points(node: OperatorNode, name: str, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    """One for each scale; half of the range where none are given."""
    if not name:
        return np.full(shape, 1 << (bits - 1))
    given = node.value(name)
    if given is None:
        raise node.refusal("its zero points are known only at run time; make them constant")
    if given.dtype.kind == "f":
        return given.reshape(shape).astype(np.float32)
    return unpacked(_bytes(given).reshape(*shape[:-1], -1), bits, shape[-1]).astype(np.int64)


def _bytes(packed: np.ndarray) -> np.ndarray:
    """Integers of any type as their bytes."""
    return np.ascontiguousarray(packed).view(np.uint8)


def _bits(node: OperatorNode) -> int:
    bits = int(node.attributes.get("bits", 4))
    if bits not in (2, 4, _BITS_OF_BYTE):
        raise node.refusal(f"weights of {bits} bits are not supported; quantise to 2, 4 or 8")
    return bits
