"""AlexNet in its one-tower form (Krizhevsky, 2014)."""

from __future__ import annotations

import onnx

from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.models.layers import conv_bias_relu, linear, max_pool, relu


def alexnet(
    size: int = 227, dense: int = 4096, classes: int = 1000, batch: int = 1, seed: int = 0
) -> onnx.ModelProto:
    """Five convolutions (64, 192, 384, 256, 256) and three dense layers."""
    g = GraphBuilder("alexnet", seed)
    x = conv_bias_relu(g, g.input("x", (batch, 3, size, size)), 64, 11, stride=4, padding=0)
    x = conv_bias_relu(g, max_pool(g, x, 3, 2), 192, 5)
    x = max_pool(g, x, 3, 2)
    for channels in (384, 256, 256):
        x = conv_bias_relu(g, x, channels, 3)
    x = g.op("Flatten", max_pool(g, x, 3, 2), axis=1)
    for _ in range(2):
        x = relu(g, linear(g, x, dense, gain=2.0))
    g.output("out", g.op("Softmax", linear(g, x, classes, gain=2.0), axis=-1))
    return g.build()
