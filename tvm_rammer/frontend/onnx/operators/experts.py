"""Mixtures of experts of com.microsoft, as products that are planned together.

Of few tokens each takes the matrices of its experts where they lie. Of many, most experts are
somebody's: all of them compute, side by side, and those that were not chosen count nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, prod

import numpy as np

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode

#: Attributes that change what an expert computes, and the only value that is known.
_KNOWN = {"use_sparse_mixer": 0, "swiglu_limit_after_activation": 0}


def mixture(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """com.microsoft.MoE: tokens, what the router says, the experts' three products."""
    for name, known in _KNOWN.items():
        if node.attributes.get(name, known) != known:
            raise node.refusal(f"its {name} is {node.attributes[name]}, and only {known} is known")
    shape, (rows, experts) = node.shape(node.input(0)), node.shape(node.input(1))
    if rows != prod(shape[:-1]):
        raise node.refusal(f"its router names experts for {rows} tokens of {prod(shape[:-1])}")
    count = int(node.attributes.get("k", 1))
    each = _Experts(node, nodes, rows, experts, count, count * rows < experts)
    tokens = nodes.reshape(node.input(0), rows, shape[-1])
    return (nodes.reshape(each.together(tokens), *shape),)


@dataclass(frozen=True)
class _Experts:
    """What experts do; ``apart`` if each token takes its own, and ``count`` of them."""

    node: OperatorNode
    nodes: Nodes
    rows: int
    experts: int
    count: int
    apart: bool

    def together(self, tokens: str) -> str:
        """What the experts of each token come to, ``[rows, hidden]`` of ``[rows, hidden]``."""
        nodes, given = self.nodes, self.node.input(0)
        width, dtype = self.node.shape(given)[-1], self.node.dtype(given)
        weights, chosen = self._chosen(dtype)
        if self.apart:
            read = nodes.reshape(tokens, self.rows, 1, 1, width)
            weights = nodes.reshape(weights, self.rows, self.count, 1, 1)
            where = chosen
        else:
            read = nodes.reshape(tokens, 1, self.rows, width)
            none = nodes.constant(np.zeros((self.rows, self.experts)), dtype)
            spread = nodes.op("ScatterElements", none, chosen, weights, axis=1)
            turned = nodes.op("Transpose", spread, perm=[1, 0])
            weights = nodes.reshape(turned, self.experts, self.rows, 1)
            where = ""
        inner = self._activated(read, where)
        result = nodes.op("Mul", self._product(inner, 4, 5, where), weights)
        axes = (1, 2) if self.apart else (0,)
        return nodes.reduce("ReduceSum", result, axes, keepdims=False)

    def _chosen(self, dtype: np.dtype) -> tuple[str, str]:
        """How much the chosen experts of each token count, and which they are."""
        nodes = self.nodes
        likely = nodes.op("Softmax", self.node.input(1), axis=-1)
        count = nodes.constant([self.count], np.int64)
        weights, chosen = nodes.ops("TopK", likely, count, count=2, axis=-1)
        if self.node.attributes.get("normalize_routing_weights", 0):
            weights = nodes.op("Div", weights, nodes.reduce("ReduceSum", weights, [1]))
        return weights, chosen

    def _activated(self, read: str, where: str) -> str:
        """What the first products come to, activated."""
        node, nodes = self.node, self.nodes
        kind = node.text("activation_type", "relu")
        first = self._product(read, 2, 3, where)
        if kind == "swiglu":
            return self._gated(first, read, where)
        if kind not in ("identity", "relu", "gelu", "silu"):
            raise node.refusal(f"its activation {kind!r} is not known")
        if kind == "relu":
            first = nodes.op("Relu", first)
        elif kind == "silu":
            first = nodes.op("Mul", first, nodes.op("Sigmoid", first))
        elif kind == "gelu":
            first = self._gelu(first)
        return nodes.op("Mul", first, self._product(read, 6, 7, where)) if node.input(6) else first

    def _gated(self, first: str, read: str, where: str) -> str:
        """``G * sigmoid(alpha * G) * (L + beta)``, with both clamped."""
        node, nodes = self.node, self.nodes
        dtype = node.dtype(node.input(0))
        fusion = int(node.attributes.get("swiglu_fusion", 0))
        width = node.shape(node.input(2))[1]
        last = 3 if self.apart else 2
        if fusion == 0:
            gate, linear = first, self._product(read, 6, 7, where)
        elif fusion == 1:
            gate, linear = (nodes.slice(first, last, start, width, 2) for start in (0, 1))
        else:
            gate, linear = nodes.split(first, last, 2)
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

    def _product(self, x: str, weights: int, bias: int, where: str) -> str:
        """Tokens times the matrices of their experts, or of all experts, and a bias."""
        node, nodes = self.node, self.nodes
        matrices, added = node.input(weights), node.input(bias)
        if not matrices:
            raise node.refusal(f"it has no weights {weights - 1}")
        if where:
            matrices = nodes.op("Gather", matrices, where, axis=0)
            added = added and nodes.op("Gather", added, where, axis=0)
        perm = [0, 1, 3, 2] if where else [0, 2, 1]
        result = nodes.op("MatMul", x, nodes.op("Transpose", matrices, perm=perm))
        if not added:
            return result
        width = node.shape(node.input(weights))[1]
        shape = (self.rows, self.count, 1, width) if where else (self.experts, 1, width)
        return nodes.op("Add", result, nodes.reshape(added, *shape))
