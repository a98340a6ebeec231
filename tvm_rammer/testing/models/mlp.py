"""Networks of small dense layers: parallel towers, and experts behind a gate."""

from __future__ import annotations

import numpy as np
import onnx

from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.models.layers import concat, linear, relu


def mlp(widths: tuple[int, ...] = (16, 32, 8), batch: int = 1, seed: int = 0) -> onnx.ModelProto:
    """A plain multi-layer perceptron, the smallest model worth a run."""
    g = GraphBuilder("mlp", seed)
    g.output("out", _mlp(g, g.input("x", (batch, widths[0])), widths[1:]))
    return g.build()


def recommender(
    towers: int = 32,
    widths: tuple[int, ...] = (64, 256, 128, 32),
    top: tuple[int, ...] = (256, 1),
    batch: int = 1,
    seed: int = 0,
) -> onnx.ModelProto:
    """Independent MLP towers, one per group of features, joined by a top MLP."""
    g = GraphBuilder("recommender", seed)
    features = []
    for tower in range(towers):
        x = g.input(f"x{tower}", (batch, widths[0]))
        with g.scope(f"tower{tower}"):
            features.append(relu(g, _mlp(g, x, widths[1:])))
    with g.scope("top"):
        g.output("out", g.op("Sigmoid", _mlp(g, concat(g, *features), top)))
    return g.build()


def mixture_of_experts(
    experts: int = 8, hidden: int = 512, inner: int = 2048, batch: int = 1, seed: int = 0
) -> onnx.ModelProto:
    """Two-layer experts, all computed; the gate weighs the best two and zeroes the others."""
    g = GraphBuilder("mixture_of_experts", seed)
    x = g.input("x", (batch, hidden))
    with g.scope("gate"):
        shares = g.ops("Split", [_top_two(g, linear(g, x, experts))], experts, axis=1)
    results = []
    for expert, share in enumerate(shares):
        with g.scope(f"expert{expert}"):
            results.append(g.op("Mul", _mlp(g, x, (inner, hidden)), share))
    while len(results) > 1:
        results = [
            g.op("Add", *results[i : i + 2]) if i + 1 < len(results) else results[i]
            for i in range(0, len(results), 2)
        ]
    g.output("out", results[0])
    return g.build()


def _mlp(g: GraphBuilder, x: str, widths: tuple[int, ...]) -> str:
    for width in widths[:-1]:
        x = relu(g, linear(g, x, width, gain=2.0))
    return linear(g, x, widths[-1])


def _top_two(g: GraphBuilder, logits: str) -> str:
    """Softmax over the two largest logits of a row, zero elsewhere, without a sort."""
    lowest = g.constant(np.finfo(np.float32).min)
    best = g.op("ReduceMax", logits, axes=[1], keepdims=1)
    is_best = g.op("GreaterOrEqual", logits, best)
    rest = g.op("Where", is_best, lowest, logits)
    second = g.op("ReduceMax", rest, axes=[1], keepdims=1)
    chosen = g.op("GreaterOrEqual", logits, second)
    return g.op("Softmax", g.op("Where", chosen, logits, lowest), axis=1)
