"""The layers that several families share.

Weights follow He's rule (variance ``gain / fan-in``), so that activations keep their scale through
a hundred layers. A batch norm's ``scale`` below one tames sums of branches.
"""

from __future__ import annotations

import math

import numpy as np

from tvm_rammer.testing.models.builder import GraphBuilder

_BN_EPSILON = 1e-3
# One over what a ReLU leaves of a unit variance: as second moment, and about its mean.
_RELU_GAIN = 2.0
_CENTRED_RELU_GAIN = 2 / (1 - 1 / math.pi)


def conv_weight(
    rng: np.random.Generator, shape: tuple[int, ...], after_relu: bool = True
) -> np.ndarray:
    """Filters of [out, in, height, width] that keep the scale and let results vary with the input.

    A ReLU leaves all channels positive. Filters with a random mean pass that common part on, and
    after some dozens of layers the result no longer depends on the input: any error would go
    unseen. So each filter's mean is taken away. A depthwise filter keeps its mean, which is all
    that a smooth channel gives it.
    """
    weight = rng.standard_normal(shape, dtype=np.float32)
    gain = _RELU_GAIN if after_relu else 1.0
    if shape[1] > 1:
        weight -= weight.mean(axis=(1, 2, 3), keepdims=True)
        gain = _CENTRED_RELU_GAIN if after_relu else 1.0
    weight *= np.float32(math.sqrt(gain / math.prod(shape[1:])))
    return weight


def conv(
    g: GraphBuilder,
    x: str,
    channels: int,
    kernel: int | tuple[int, int],
    *,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] | None = None,
    groups: int = 1,
    bias: bool = False,
    after_relu: bool = True,
    scale: float = 1.0,
) -> str:
    """A 2-D convolution; ``padding=None`` keeps the size at stride 1 (odd kernels).

    Its results vary ``scale`` times as much as what it reads, given whether that is positive.
    """
    kh, kw = _pair(kernel)
    ph, pw = (kh // 2, kw // 2) if padding is None else _pair(padding)
    shape = (channels, g.shape(x)[1] // groups, kh, kw)
    inputs = [x, g.initialiser(conv_weight(g.rng, shape, after_relu) * np.float32(scale))]
    if bias:
        inputs.append(g.weight((channels,), 0.05))
    return g.op(
        "Conv",
        *inputs,
        kernel_shape=[kh, kw],
        strides=list(_pair(stride)),
        pads=[ph, pw, ph, pw],
        group=groups,
    )


def batch_norm(g: GraphBuilder, x: str, scale: float = 1.0) -> str:
    """Batch normalisation with the statistics of a trained network's order of magnitude."""
    channels = (g.shape(x)[1],)
    gamma = g.uniform(channels, 0.8 * scale, 1.2 * scale)
    beta, mean = g.weight(channels, 0.05 * scale), g.weight(channels, 0.05)
    variance = g.uniform(channels, 0.8, 1.2)
    return g.op("BatchNormalization", x, gamma, beta, mean, variance, epsilon=_BN_EPSILON)


def relu(g: GraphBuilder, x: str) -> str:
    """max(x, 0)."""
    return g.op("Relu", x)


def conv_bn_relu(
    g: GraphBuilder,
    x: str,
    channels: int,
    kernel: int | tuple[int, int],
    *,
    stride: int = 1,
    padding: int | tuple[int, int] | None = None,
) -> str:
    """Convolution without bias, batch norm, ReLU."""
    return relu(g, batch_norm(g, conv(g, x, channels, kernel, stride=stride, padding=padding)))


def conv_bias_relu(
    g: GraphBuilder,
    x: str,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int | None = None,
) -> str:
    """Convolution with bias, ReLU."""
    return relu(g, conv(g, x, channels, kernel, stride=stride, padding=padding, bias=True))


def separable_conv(g: GraphBuilder, x: str, channels: int, kernel: int, *, stride: int = 1) -> str:
    """A depthwise convolution and the 1x1 convolution that mixes its channels."""
    depthwise = conv(g, x, g.shape(x)[1], kernel, stride=stride, groups=g.shape(x)[1])
    return conv(g, depthwise, channels, 1, after_relu=False)


def max_pool(g: GraphBuilder, x: str, kernel: int, stride: int, padding: int = 0) -> str:
    """Maximum over windows."""
    return g.op("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4)


def avg_pool(g: GraphBuilder, x: str, kernel: int, stride: int, padding: int = 0) -> str:
    """Mean over windows; padding does not count."""
    return g.op(
        "AveragePool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4
    )


def concat(g: GraphBuilder, *values: str, axis: int = 1) -> str:
    """Values joined along an axis (channels unless said)."""
    return g.op("Concat", *values, axis=axis)


def linear(g: GraphBuilder, x: str, features: int, *, gain: float = 1.0) -> str:
    """``x @ W + b`` over the last axis."""
    fan_in = g.shape(x)[-1]
    product = g.op("MatMul", x, g.weight((fan_in, features), math.sqrt(gain / fan_in)))
    return g.op("Add", product, g.weight((features,), 0.05))


def classifier(g: GraphBuilder, x: str, classes: int) -> str:
    """Global average pooling, a dense layer, softmax."""
    features = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    return g.op("Softmax", linear(g, features, classes, gain=2.0), axis=-1)


def layer_norm(g: GraphBuilder, x: str) -> str:
    """Normalisation over the last axis."""
    features = (g.shape(x)[-1],)
    gamma, beta = g.uniform(features, 0.8, 1.2), g.weight(features, 0.05)
    return g.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=1e-5)


def gelu(g: GraphBuilder, x: str) -> str:
    """``x * (1 + erf(x / sqrt 2)) / 2``."""
    inner = g.op("Erf", g.op("Mul", x, g.constant(math.sqrt(0.5))))
    half = g.op("Mul", x, g.constant(0.5))
    return g.op("Mul", half, g.op("Add", inner, g.constant(1.0)))


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value
