"""NASNet-A (Zoph et al., 2018) as in its reference code, without the auxiliary classifier."""

from __future__ import annotations

import onnx

from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.models.layers import (
    avg_pool,
    batch_norm,
    classifier,
    concat,
    conv,
    max_pool,
    relu,
    separable_conv,
)

#: A block adds two branches; this scale keeps the variance of the sum that of a branch.
_HALF_VARIANCE = 0.7


def nasnet_cifar(
    repeats: int = 6, filters: int = 32, size: int = 32, batch: int = 1, seed: int = 0
) -> onnx.ModelProto:
    """NASNet-A for 32x32 images: 3 x ``repeats`` normal and two reduction cells."""
    g = GraphBuilder("nasnet_cifar", seed)
    x = g.input("x", (batch, 3, size, size))
    x = batch_norm(g, conv(g, x, 3 * filters, 3))
    g.output("out", _body(g, [x, x], repeats, filters, 10, skip_reduction_input=False))
    return g.build()


def nasnet_imagenet(
    repeats: int,
    filters: int,
    stem: int,
    size: int,
    skip_reduction_input: bool,
    batch: int = 1,
    seed: int = 0,
) -> onnx.ModelProto:
    """NASNet-A for ImageNet: a strided stem of two reduction cells, then as for CIFAR.

    ``skip_reduction_input`` makes the cell after a reduction read what the reduction cell read
    second (the large network) and not what it read first (the mobile one).
    """
    g = GraphBuilder("nasnet", seed)
    x = g.input("x", (batch, 3, size, size))
    x = batch_norm(g, conv(g, x, stem, 3, stride=2, padding=0))
    with g.scope("stem0"):
        first = _reduction_cell(g, x, x, filters // 4)
    with g.scope("stem1"):
        second = _reduction_cell(g, first, x, filters // 2)
    g.output("out", _body(g, [first, second], repeats, filters, 1000, skip_reduction_input))
    return g.build()


def nasnet_mobile() -> onnx.ModelProto:
    """NASNet-A (4 @ 1056), 224x224."""
    return nasnet_imagenet(4, 44, 32, 224, skip_reduction_input=False)


def nasnet_large() -> onnx.ModelProto:
    """NASNet-A (6 @ 4032), 331x331."""
    return nasnet_imagenet(6, 168, 96, 331, skip_reduction_input=True)


def _body(
    g: GraphBuilder,
    cells: list[str],
    repeats: int,
    filters: int,
    classes: int,
    skip_reduction_input: bool,
) -> str:
    for stage in range(3):
        previous = cells[-2]
        if stage:
            filters *= 2
            with g.scope(f"reduction{stage}"):
                cells.append(_reduction_cell(g, cells[-1], cells[-2], filters))
            if not skip_reduction_input:
                previous = cells[-2]
        for cell in range(repeats):
            with g.scope(f"stage{stage}/cell{cell}"):
                cells.append(_normal_cell(g, cells[-1], previous, filters))
            previous = cells[-2]
    return classifier(g, relu(g, cells[-1]), classes)


def _normal_cell(g: GraphBuilder, current: str, previous: str, filters: int) -> str:
    left = _fit(g, previous, current, filters)
    right = _squeeze(g, current, filters)
    blocks = [
        _add(g, _separable(g, right, filters, 5), _separable(g, left, filters, 3)),
        _add(g, _separable(g, left, filters, 5), _separable(g, left, filters, 3)),
        _add(g, avg_pool(g, right, 3, 1, 1), left),
        _add(g, avg_pool(g, left, 3, 1, 1), avg_pool(g, left, 3, 1, 1)),
        _add(g, _separable(g, right, filters, 3), right),
    ]
    return concat(g, left, *blocks)


def _reduction_cell(g: GraphBuilder, current: str, previous: str, filters: int) -> str:
    # The very first cell reads the same value twice and takes it as it is the second time.
    left = previous if previous == current else _fit(g, previous, current, filters)
    right = _squeeze(g, current, filters)
    first = _add(
        g, _separable(g, right, filters, 5, stride=2), _separable(g, left, filters, 7, stride=2)
    )
    second = _add(g, max_pool(g, right, 3, 2, 1), _separable(g, left, filters, 7, stride=2))
    third = _add(g, avg_pool(g, right, 3, 2, 1), _separable(g, left, filters, 5, stride=2))
    fourth = _add(g, avg_pool(g, first, 3, 1, 1), second)
    fifth = _add(g, _separable(g, first, filters, 3), max_pool(g, right, 3, 2, 1))
    return concat(g, second, third, fourth, fifth)


def _separable(g: GraphBuilder, x: str, filters: int, kernel: int, stride: int = 1) -> str:
    """Twice ReLU, separable convolution, batch norm; the stride is in the first."""
    x = batch_norm(g, separable_conv(g, relu(g, x), filters, kernel, stride=stride))
    return batch_norm(g, separable_conv(g, relu(g, x), filters, kernel), _HALF_VARIANCE)


def _squeeze(g: GraphBuilder, x: str, filters: int) -> str:
    return batch_norm(g, conv(g, relu(g, x), filters, 1), _HALF_VARIANCE)


def _fit(g: GraphBuilder, previous: str, current: str, filters: int) -> str:
    """The older cell's result with ``filters`` channels in the younger one's size."""
    if g.shape(previous)[2:] == g.shape(current)[2:]:
        return _squeeze(g, previous, filters)
    return _factorised_reduction(g, relu(g, previous), filters)


def _factorised_reduction(g: GraphBuilder, x: str, filters: int) -> str:
    """Halve the size with two 1x1 convolutions, one on even pixels and one on odd ones."""
    ends = g.constant([2**31 - 1] * 2, "int64")
    odd = g.op("Slice", x, g.constant([1, 1], "int64"), ends, g.constant([2, 3], "int64"))
    even_half = conv(g, avg_pool(g, x, 1, 2), filters // 2, 1)
    odd_half = conv(g, avg_pool(g, odd, 1, 2), filters - filters // 2, 1)
    if g.shape(odd_half) != g.shape(even_half):  # the last odd pixel lies outside: zero
        odd_half = g.op("Pad", odd_half, g.constant([0, 0, 0, 0, 0, 0, 1, 1], "int64"))
    return batch_norm(g, concat(g, even_half, odd_half))


def _add(g: GraphBuilder, left: str, right: str) -> str:
    return g.op("Add", left, right)
