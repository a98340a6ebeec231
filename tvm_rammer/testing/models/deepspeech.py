"""DeepSpeech2 (Amodei et al., 2016) as Rammer measures it: convolutions, unrolled LSTM layers."""

from __future__ import annotations

import onnx

from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.models.layers import batch_norm, concat, conv, linear
from tvm_rammer.testing.models.recurrent import unrolled_lstm


def deepspeech2(
    frames: int = 300,
    frequencies: int = 171,
    channels: int = 32,
    layers: int = 7,
    hidden: int = 256,
    seed: int = 0,
) -> onnx.ModelProto:
    """A spectrogram of [1, 1, frames, frequencies] to 29 characters for every fourth frame."""
    g = GraphBuilder("deepspeech2", seed)
    x = g.input("x", (1, 1, frames, frequencies))
    x = _conv_clip(g, x, channels, (41, 11), (2, 2))
    x = _conv_clip(g, x, channels, (21, 11), (2, 1))
    steps = g.op("Transpose", x, perm=[2, 0, 1, 3])
    count = g.shape(steps)[0]
    steps = g.op("Reshape", steps, g.constant([count, -1], "int64"))
    inputs = g.ops("Split", [steps, g.constant([1] * count, "int64")], count, axis=0)
    outputs, _ = unrolled_lstm(g, inputs, layers, hidden)
    characters = linear(g, concat(g, *outputs, axis=0), 29, gain=4.0)
    g.output("out", g.op("Softmax", characters, axis=-1))
    return g.build()


def _conv_clip(
    g: GraphBuilder, x: str, channels: int, kernel: tuple[int, int], stride: tuple[int, int]
) -> str:
    normal = batch_norm(g, conv(g, x, channels, kernel, stride=stride))
    return g.op("Clip", normal, g.constant(0.0), g.constant(20.0))
