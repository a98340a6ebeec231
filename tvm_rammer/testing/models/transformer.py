"""Transformers with every head's products as operators of their own."""

from __future__ import annotations

import math

import onnx

from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.models.layers import concat, gelu, layer_norm, linear


def bert(
    layers: int = 12, heads: int = 12, hidden: int = 768, sequence: int = 128, seed: int = 0
) -> onnx.ModelProto:
    """A BERT encoder over embeddings ``x`` of [sequence, hidden] (batch 1, no mask)."""
    g = GraphBuilder("bert", seed)
    x = g.input("x", (sequence, hidden))
    for layer in range(layers):
        with g.scope(f"layer{layer}"):
            contexts = []
            for head in range(heads):
                with g.scope(f"head{head}"):
                    query, key, value = (linear(g, x, hidden // heads) for _ in range(3))
                    contexts.append(_attend(g, query, key, value))
            x = layer_norm(g, g.op("Add", x, linear(g, concat(g, *contexts), hidden)))
            x = layer_norm(g, g.op("Add", x, _feed_forward(g, x)))
    g.output("out", x)
    return g.build()


def transformer_decoder(
    layers: int = 12, heads: int = 12, hidden: int = 768, cached: int = 128, seed: int = 0
) -> onnx.ModelProto:
    """One decoding step of a GPT-2-like model.

    Reads one token's embedding ``x`` and, per layer and head, the ``cached`` past keys and values;
    gives the token's features ``out`` and the caches with the new token appended. Each head has its
    own cache, so that nothing has to be cut out of a larger tensor.
    """
    g = GraphBuilder("transformer_decoder", seed)
    x = g.input("x", (1, hidden))
    for layer in range(layers):
        with g.scope(f"layer{layer}"):
            contexts = [
                _cached_head(g, normed, f"{layer}_{head}", hidden // heads, cached)
                for normed in [layer_norm(g, x)]
                for head in range(heads)
            ]
            x = g.op("Add", x, linear(g, concat(g, *contexts), hidden))
            x = g.op("Add", x, _feed_forward(g, layer_norm(g, x)))
    g.output("out", layer_norm(g, x))
    return g.build()


def _cached_head(g: GraphBuilder, x: str, name: str, features: int, cached: int) -> str:
    past_key = g.input(f"past_key_{name}", (cached, features))
    past_value = g.input(f"past_value_{name}", (cached, features))
    query, key, value = (linear(g, x, features) for _ in range(3))
    keys = concat(g, past_key, key, axis=0)
    values = concat(g, past_value, value, axis=0)
    g.output(f"key_{name}", keys)
    g.output(f"value_{name}", values)
    return _attend(g, query, keys, values)


def _attend(g: GraphBuilder, query: str, keys: str, values: str) -> str:
    """Scaled dot-product attention of one head."""
    scale = g.constant(1 / math.sqrt(g.shape(query)[-1]))
    scores = g.op("Mul", g.op("MatMul", query, g.op("Transpose", keys, perm=[1, 0])), scale)
    return g.op("MatMul", g.op("Softmax", scores, axis=-1), values)


def _feed_forward(g: GraphBuilder, x: str) -> str:
    hidden = g.shape(x)[-1]
    return linear(g, gelu(g, linear(g, x, 4 * hidden)), hidden)
