"""RandWire (Xie et al., 2019): stages wired by seeded Watts-Strogatz graphs."""

from __future__ import annotations

import math

import numpy as np
import onnx

from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.models.layers import batch_norm, classifier, conv, relu, separable_conv


def watts_strogatz(
    nodes: int, neighbours: int, rewiring: float, rng: np.random.Generator
) -> list[list[int]]:
    """For each node the lower-numbered nodes it reads.

    Nodes stand in a ring and know their nearest ``neighbours`` (half on each side); every edge is
    moved to a random other end with probability ``rewiring``. An edge runs from the lower-numbered
    node to the higher.
    """
    edges = set()
    for distance in range(1, neighbours // 2 + 1):
        edges |= {_edge(node, (node + distance) % nodes) for node in range(nodes)}
    for distance in range(1, neighbours // 2 + 1):
        for node in range(nodes):
            old = _edge(node, (node + distance) % nodes)
            free = [n for n in range(nodes) if n != node and _edge(node, n) not in edges]
            if old in edges and free and rng.random() < rewiring:
                edges = edges - {old} | {_edge(node, int(rng.choice(free)))}
    return [sorted(low for low, high in edges if high == node) for node in range(nodes)]


def randwire(
    channels: int = 109,
    nodes: tuple[int, ...] = (16, 32, 32, 32),
    size: int = 224,
    batch: int = 1,
    seed: int = 0,
) -> onnx.ModelProto:
    """RandWire in its regular regime: WS(k=4, p=0.75) stages with channels doubling from 109."""
    g = GraphBuilder("randwire", seed)
    x = conv(g, g.input("x", (batch, 3, size, size)), math.ceil(channels / 2), 3, stride=2)
    x = batch_norm(g, x)
    for stage, count in enumerate(nodes):
        with g.scope(f"stage{stage}"):
            x = _stage(g, x, watts_strogatz(count, 4, 0.75, g.rng), channels << stage)
    x = relu(g, batch_norm(g, conv(g, relu(g, x), 1280, 1)))
    g.output("out", classifier(g, x, 1000))
    return g.build()


def _stage(g: GraphBuilder, x: str, wiring: list[list[int]], channels: int) -> str:
    """Nodes without a producer halve the stage's input; what nobody reads is averaged."""
    results: list[str] = []
    for node, producers in enumerate(wiring):
        with g.scope(f"node{node}"):
            total = _weighted_sum(g, [results[p] for p in producers]) if producers else x
            stride = 1 if producers else 2
            mixed = separable_conv(g, relu(g, total), channels, 3, stride=stride)
            results.append(batch_norm(g, mixed))
    read = {producer for producers in wiring for producer in producers}
    ends = [value for node, value in enumerate(results) if node not in read]
    total = _sum(g, ends)
    return g.op("Mul", total, g.constant(1 / len(ends))) if len(ends) > 1 else total


def _weighted_sum(g: GraphBuilder, values: list[str]) -> str:
    """The sum under the trained weights' sigmoids, already folded, of norm about one."""
    if len(values) == 1:
        return values[0]
    middle = 1 / math.sqrt(len(values))
    scales = [g.constant(float(g.rng.uniform(0.9, 1.1) * middle)) for _ in values]
    return _sum(g, [g.op("Mul", v, s) for v, s in zip(values, scales, strict=True)])


def _sum(g: GraphBuilder, values: list[str]) -> str:
    total = values[0]
    for value in values[1:]:
        total = g.op("Add", total, value)
    return total


def _edge(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)
