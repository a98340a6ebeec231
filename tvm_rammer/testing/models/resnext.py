"""ResNeXt with every branch of a block as convolutions of its own, not one grouped convolution."""

from __future__ import annotations

import onnx

from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.models.layers import (
    batch_norm,
    classifier,
    concat,
    conv,
    conv_bn_relu,
    max_pool,
    relu,
)


def resnext29(
    branches: int = 16,
    width: int = 64,
    widening: bool = False,
    blocks: int = 3,
    batch: int = 1,
    seed: int = 0,
) -> onnx.ModelProto:
    """ResNeXt-29 for 32x32 images in ten classes.

    Parameters
    ----------
    width : int
        Channels of a branch.
    widening : bool
        Double the branches' channels from stage to stage, as the ResNeXt paper does (68.1 M
        weights); otherwise they stay the same.
    blocks : int
        Blocks in each of the three stages.
    """
    g = GraphBuilder("resnext29", seed)
    x = conv_bn_relu(g, g.input("x", (batch, 3, 32, 32)), 64, 3)
    for stage in range(3):
        channels = width << stage if widening else width
        x = _stage(g, x, stage, blocks, branches, channels, 256 << stage)
    g.output("out", classifier(g, x, 10))
    return g.build()


def resnext101(
    branches: int = 64,
    width: int = 4,
    blocks: tuple[int, ...] = (3, 4, 23, 3),
    size: int = 224,
    batch: int = 1,
    seed: int = 0,
) -> onnx.ModelProto:
    """ResNeXt-101 64x4d for ImageNet; a branch's channels double from stage to stage."""
    g = GraphBuilder("resnext101", seed)
    x = conv_bn_relu(g, g.input("x", (batch, 3, size, size)), 64, 7, stride=2)
    x = max_pool(g, x, 3, 2, 1)
    for stage, count in enumerate(blocks):
        x = _stage(g, x, stage, count, branches, width << stage, 256 << stage)
    g.output("out", classifier(g, x, 1000))
    return g.build()


def _stage(
    g: GraphBuilder, x: str, stage: int, blocks: int, branches: int, width: int, channels: int
) -> str:
    for block in range(blocks):
        with g.scope(f"stage{stage}/block{block}"):
            stride = 2 if stage and not block else 1
            x = _block(g, x, branches, width, channels, stride)
    return x


def _block(g: GraphBuilder, x: str, branches: int, width: int, channels: int, stride: int) -> str:
    results = []
    for branch in range(branches):
        with g.scope(f"branch{branch}"):
            reduced = conv_bn_relu(g, x, width, 1)
            results.append(conv_bn_relu(g, reduced, width, 3, stride=stride))
    # A small last scale keeps the sum of dozens of blocks from growing block by block.
    residual = batch_norm(g, conv(g, concat(g, *results), channels, 1), scale=0.25)
    if g.shape(x)[1] != channels or stride != 1:
        x = batch_norm(g, conv(g, x, channels, 1, stride=stride, scale=0.7))
    return relu(g, g.op("Add", x, residual))
