"""Mixtures of experts of com.microsoft, as products with matrices that data choose.

How many tokens an expert gets is known only when the model runs. So tokens are put into blocks of
one number of them, each of one expert: as many blocks as there may be at most. A block reads the
matrices of its expert where they lie, once for all of its tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, prod

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode
from tvm_rammer.frontend.row_blocks import most_blocks, rows_of_block

#: Attributes that change what an expert computes, and the only value that is known.
_KNOWN = {"use_sparse_mixer": 0, "swiglu_limit_after_activation": 0}


def mixture(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """com.microsoft.MoE: tokens, what the router says, the experts' three products."""
    for name, known in _KNOWN.items():
        if node.attributes.get(name, known) != known:
            raise node.refusal(f"its {name} is {node.attributes[name]}, and only {known} is known")
    shape, (tokens, experts) = node.shape(node.input(0)), node.shape(node.input(1))
    if tokens != prod(shape[:-1]):
        raise node.refusal(f"its router names experts for {tokens} tokens of {prod(shape[:-1])}")
    each = _Experts(node, nodes, tokens, experts, int(node.attributes.get("k", 1)))
    return (nodes.reshape(each.together(), *shape),)


@dataclass(frozen=True)
class _Blocks:
    """Blocks of tokens, each of one expert.

    Attributes
    ----------
    expert : str
        Of each block, ``[count]``.
    token : str
        At each place of a block, ``[count * size]``; any where nobody is.
    place : str
        Of each token with each of its experts.
    count, size : int
        Blocks, and tokens of a block.
    """

    expert: str
    token: str
    place: str
    count: int
    size: int


@dataclass(frozen=True)
class _Experts:
    """What experts do with tokens, of which each chose ``count`` of them."""

    node: OperatorNode
    nodes: Nodes
    tokens: int
    experts: int
    count: int

    def together(self) -> str:
        """What the experts of each token come to, ``[tokens, hidden]``."""
        nodes, given = self.nodes, self.node.input(0)
        width = self.node.shape(given)[-1]
        weights, chosen = self._chosen(self.node.dtype(given))
        blocks = self._blocks(nodes.reshape(chosen, -1))
        rows = nodes.op("Gather", nodes.reshape(given, self.tokens, width), blocks.token, axis=0)
        read = nodes.reshape(rows, blocks.count, blocks.size, width)
        made = self._product(self._activated(read, blocks.expert), 4, 5, blocks.expert)
        found = nodes.op("Gather", nodes.reshape(made, -1, width), blocks.place, axis=0)
        each = nodes.reshape(found, self.tokens, self.count, width)
        counted = nodes.op("Mul", each, nodes.reshape(weights, self.tokens, self.count, 1))
        return nodes.reduce("ReduceSum", counted, (1,), keepdims=False)

    def _blocks(self, chosen: str) -> _Blocks:
        """Blocks for the experts that tokens chose, ``[tokens * count]`` of them."""
        nodes, pairs = self.nodes, self.tokens * self.count
        owners = np.arange(pairs) // self.count
        size = rows_of_block(pairs, self.experts)
        if size == 1:
            token, place = (nodes.constant(each, np.int64) for each in (owners, np.arange(pairs)))
            return _Blocks(chosen, token, place, pairs, 1)
        count = most_blocks(pairs, self.experts, size)
        numbers = nodes.constant(np.arange(self.experts), np.int64)
        own = nodes.cast(nodes.op("Equal", nodes.reshape(chosen, pairs, 1), numbers), np.int64)
        first = nodes.constant(0, np.int64)
        before = nodes.op("CumSum", own, first, exclusive=1)
        rank = nodes.reduce("ReduceSum", nodes.op("Mul", before, own), (1,), keepdims=False)
        total = nodes.reduce("ReduceSum", own, (0,), keepdims=False)
        sizes = nodes.constant(size, np.int64)
        filled = nodes.op("Add", total, nodes.constant(size - 1, np.int64))
        needed = nodes.op("Div", filled, sizes)
        ends = nodes.op("CumSum", needed, first)
        starts = nodes.op("Mul", nodes.op("Sub", ends, needed), sizes)
        place = nodes.op("Add", nodes.op("Gather", starts, chosen, axis=0), rank)
        empty = nodes.constant(np.zeros(count * size), np.int64)
        token = nodes.op("ScatterElements", empty, place, nodes.constant(owners, np.int64), axis=0)
        places = nodes.constant(np.arange(count)[:, None], np.int64)
        passed = nodes.cast(nodes.op("Not", nodes.op("Less", places, ends)), np.int64)
        expert = nodes.reduce("ReduceSum", passed, (1,), keepdims=False)
        last = nodes.constant(self.experts - 1, np.int64)
        return _Blocks(nodes.op("Min", expert, last), token, place, count, size)

    def _chosen(self, dtype: np.dtype) -> tuple[str, str]:
        """How much the chosen experts of each token count, and which they are."""
        nodes = self.nodes
        likely = nodes.op("Softmax", self.node.input(1), axis=-1)
        count = nodes.constant([self.count], np.int64)
        weights, chosen = nodes.ops("TopK", likely, count, count=2, axis=-1)
        if self.node.attributes.get("normalize_routing_weights", 0):
            weights = nodes.op("Div", weights, nodes.reduce("ReduceSum", weights, [1]))
        return weights, chosen

    def _activated(self, read: str, expert: str) -> str:
        """What the first products come to, activated."""
        node, nodes = self.node, self.nodes
        kind = node.text("activation_type", "relu")
        first = self._product(read, 2, 3, expert)
        if kind == "swiglu":
            return self._gated(first, read, expert)
        if kind not in ("identity", "relu", "gelu", "silu"):
            raise node.refusal(f"its activation {kind!r} is not known")
        if kind == "relu":
            first = nodes.op("Relu", first)
        elif kind == "silu":
            first = nodes.op("Mul", first, nodes.op("Sigmoid", first))
        elif kind == "gelu":
            first = self._gelu(first)
        return nodes.op("Mul", first, self._product(read, 6, 7, expert)) if node.input(6) else first

    def _gated(self, first: str, read: str, expert: str) -> str:
        """``G * sigmoid(alpha * G) * (L + beta)``, with both clamped."""
        node, nodes = self.node, self.nodes
        dtype = node.dtype(node.input(0))
        fusion = int(node.attributes.get("swiglu_fusion", 0))
        width = node.shape(node.input(2))[1]
        if fusion == 0:
            gate, linear = first, self._product(read, 6, 7, expert)
        elif fusion == 1:
            gate, linear = (nodes.slice(first, 2, start, width, 2) for start in (0, 1))
        else:
            gate, linear = nodes.split(first, 2, 2)
        if "swiglu_limit" in node.attributes:
            limit = float(node.attributes["swiglu_limit"])
            high, low = (nodes.constant(value, dtype) for value in (limit, -limit))
            gate = nodes.op("Min", gate, high)
            linear = nodes.op("Max", nodes.op("Min", linear, high), low)
        alpha = nodes.constant(node.attributes.get("activation_alpha", 1.0), dtype)
        beta = nodes.constant(node.attributes.get("activation_beta", 0.0), dtype)
        steep = nodes.op("Sigmoid", nodes.op("Mul", gate, alpha))
        return nodes.op("Mul", nodes.op("Mul", gate, steep), nodes.op("Add", linear, beta))

    def _gelu(self, x: str) -> str:
        """By a hyperbolic tangent, as ONNX Runtime's experts compute it."""
        nodes, dtype = self.nodes, self.node.dtype(self.node.input(0))
        half, one, cubic, scale = (
            nodes.constant(v, dtype) for v in (0.5, 1.0, 0.044715, (2 / pi) ** 0.5)
        )
        cube = nodes.op("Mul", nodes.op("Mul", nodes.op("Mul", x, x), x), cubic)
        angle = nodes.op("Mul", nodes.op("Add", x, cube), scale)
        part = nodes.op("Add", nodes.op("Tanh", angle), one)
        return nodes.op("Mul", nodes.op("Mul", x, half), part)

    def _product(self, x: str, weights: int, bias: int, expert: str) -> str:
        """Blocks of tokens times the matrices of their experts, and a bias."""
        node, nodes = self.node, self.nodes
        if not node.input(weights):
            raise node.refusal(f"it has no weights {weights - 1}")
        matrices = nodes.op("Gather", node.input(weights), expert, axis=0)
        result = nodes.op("MatMul", x, nodes.op("Transpose", matrices, perm=[0, 2, 1]))
        if not node.input(bias):
            return result
        added = nodes.op("Gather", node.input(bias), expert, axis=0)
        width = node.shape(node.input(weights))[1]
        return nodes.op("Add", result, nodes.reshape(added, -1, 1, width))
