"""SqueezeNet 1.0 with complex bypass (Iandola et al., 2016)."""

from __future__ import annotations

import onnx

from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.models.layers import concat, conv, conv_bias_relu, max_pool, relu

#: Channels of the squeeze layer and of each expand layer of fire2 to fire9.
_FIRE = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
_POOL_BEFORE = (0, 3, 7)


def squeezenet_bypass(
    size: int = 224, classes: int = 1000, batch: int = 1, seed: int = 0
) -> onnx.ModelProto:
    """Every fire module has a bypass: a 1x1 convolution where the channels change, else a wire."""
    g = GraphBuilder("squeezenet_bypass", seed)
    x = conv_bias_relu(g, g.input("x", (batch, 3, size, size)), 96, 7, stride=2, padding=0)
    for number, (squeeze, expand) in enumerate(_FIRE):
        if number in _POOL_BEFORE:
            x = max_pool(g, x, 3, 2)
        with g.scope(f"fire{number + 2}"):
            x = g.op("Add", _fire(g, x, squeeze, expand), _bypass(g, x, 2 * expand))
    x = g.op("GlobalAveragePool", conv_bias_relu(g, x, classes, 1))
    g.output("out", g.op("Softmax", g.op("Flatten", x, axis=1), axis=-1))
    return g.build()


def _fire(g: GraphBuilder, x: str, squeeze: int, expand: int) -> str:
    squeezed = conv_bias_relu(g, x, squeeze, 1)
    # The bypass adds its own share: together they keep the scale.
    sides = [relu(g, conv(g, squeezed, expand, k, bias=True, scale=0.5)) for k in (1, 3)]
    return concat(g, *sides)


def _bypass(g: GraphBuilder, x: str, channels: int) -> str:
    return x if g.shape(x)[1] == channels else conv(g, x, channels, 1, bias=True, scale=0.4)
