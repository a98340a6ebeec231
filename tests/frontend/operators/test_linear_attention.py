"""LinearAttention gives what ONNX's reference gives token by token, for all of its rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from one_operator import compiled, fed, one_operator, reference
from onnx import TensorProto, helper

import tvm_rammer
from tvm_rammer import load_model
from tvm_rammer.errors import ModelError

RULES = ("linear", "gated", "delta", "gated_delta")


@dataclass(frozen=True)
class Sizes:
    batch: int = 2
    tokens: int = 9
    asked: int = 4
    heads: int = 2
    keys: int = 8
    values: int = 6


def operands(
    sizes: Sizes,
    rule: str,
    *,
    past: bool = False,
    decays: int | None = None,
    betas: int | None = None,
    dtype: str = "float32",
    of_states: str | None = None,
) -> list[np.ndarray | None]:
    """Keys are of length 1, as the rules want that correct."""
    rng = np.random.default_rng(0)
    first = (sizes.batch, sizes.tokens)
    query = rng.standard_normal((*first, sizes.asked * sizes.keys))
    key = rng.standard_normal((*first, sizes.heads, sizes.keys))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    value = rng.standard_normal((*first, sizes.heads * sizes.values))
    state = rng.standard_normal((sizes.batch, sizes.heads, sizes.keys, sizes.values))
    decay = -np.abs(rng.standard_normal((*first, decays or sizes.heads * sizes.keys)))
    beta = rng.random((*first, betas or sizes.heads))
    given = [query, key.reshape(*first, -1), value, state, decay, beta]
    wanted = [True] * 3 + [past, rule.startswith("gated"), rule.endswith("delta")]
    kinds = [dtype] * 3 + [of_states or dtype] + [dtype] * 2
    found: list[np.ndarray | None] = [
        x.astype(kind) if is_wanted else None
        for x, kind, is_wanted in zip(given, kinds, wanted, strict=True)
    ]
    while found[-1] is None:
        found.pop()
    return found


def check(
    sizes: Sizes, rule: str, inputs: list[np.ndarray | None], results: int = 2, **attributes: Any
) -> None:
    attributes |= {"q_num_heads": sizes.asked, "kv_num_heads": sizes.heads, "update_rule": rule}
    model = one_operator("LinearAttention", inputs, results, **attributes)
    feed = fed(model, inputs)
    for one, other in zip(compiled(model, feed), reference(model, feed), strict=False):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        tolerance = 1e-5 if one.dtype == "float32" else 2e-3
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_rules(rule, past):
    sizes = Sizes()
    check(sizes, rule, operands(sizes, rule, past=past))


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(tokens=1),
        Sizes(1, 70, 1, 1, 1, 1),
        Sizes(asked=6, heads=1, keys=5, values=7),
        Sizes(1, 5, 3, 3, 16, 96),
        Sizes(1, 5, 2, 2, 3, 37),
        Sizes(1, 130, 2, 2, 64, 64),
    ],
)
def test_sizes(sizes):
    """Heads that queries share, columns of no round number, many tokens, and one."""
    check(sizes, "gated_delta", operands(sizes, "gated_delta", past=True))


@pytest.mark.parametrize("rule", ["gated", "gated_delta"])
def test_a_decay_for_a_head(rule):
    sizes = Sizes()
    check(sizes, rule, operands(sizes, rule, decays=sizes.heads))


@pytest.mark.parametrize("rule", ["delta", "gated_delta"])
def test_a_beta_for_all_heads(rule):
    sizes = Sizes()
    check(sizes, rule, operands(sizes, rule, betas=1))


def test_strong_decays():
    """Sums of a hundred such logarithms are beyond what exponentials hold."""
    sizes = Sizes(tokens=100)
    inputs = operands(sizes, "gated", past=True)
    assert inputs[4] is not None
    inputs[4] *= 40
    check(sizes, "gated", inputs)


def test_a_scale_and_sizes_of_chunks():
    sizes = Sizes()
    check(sizes, "linear", operands(sizes, "linear"), scale=0.3, chunk_size=4)


@pytest.mark.parametrize("of_states", ["float16", "float32"])
def test_16_bit_floats(of_states):
    sizes = Sizes()
    inputs = operands(sizes, "gated_delta", past=True, dtype="float16", of_states=of_states)
    check(sizes, "gated_delta", inputs)


def test_the_rule_that_is_not_named():
    sizes = Sizes()
    heads = {"q_num_heads": sizes.asked, "kv_num_heads": sizes.heads}
    inputs = operands(sizes, "gated_delta")
    model = one_operator("LinearAttention", inputs, 2, **heads)
    feed = fed(model, inputs)
    for one, other in zip(compiled(model, feed), reference(model, feed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_states_that_go_from_run_to_run():
    """Ten tokens at once leave what they leave one by one."""
    sizes = Sizes(tokens=10)
    inputs = operands(sizes, "gated_delta", past=True)
    heads = {"q_num_heads": sizes.asked, "kv_num_heads": sizes.heads}
    whole = one_operator("LinearAttention", inputs, 2, **heads)
    expected, left = compiled(whole, fed(whole, inputs))
    state, parts = inputs[3], []
    first = [x if x is inputs[3] else x[:, :1] for x in inputs if x is not None]
    model = one_operator("LinearAttention", first, 2, **heads)
    instance = tvm_rammer.build(model, "llvm", policy="sequential").create()
    for token in range(sizes.tokens):
        given = [state if x is inputs[3] else x[:, token : token + 1] for x in inputs]
        part, state = (each.numpy() for each in instance(*given))
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, 1), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(state, left, rtol=1e-5, atol=1e-5)


def of_some(sizes: Sizes, axis: int, count: int) -> onnx.ModelProto:
    """Attention to what has a flag of its own along an axis."""
    inputs = operands(sizes, "linear")
    names = ("q", "k", "v")
    nodes = [
        helper.make_node("Compress", [name, f"kept_{name}"], [f"some_{name}"], axis=axis)
        for name in names[:count]
    ]
    attention = helper.make_node(
        "LinearAttention",
        [*(f"some_{name}" for name in names[:count]), *names[count:]],
        ["y", "left"],
        "node",
        **{"q_num_heads": sizes.asked, "kv_num_heads": sizes.heads, "update_rule": "linear"},
    )
    tensor, floats = helper.make_tensor_value_info, TensorProto.FLOAT
    given = [tensor(n, floats, x.shape) for n, x in zip(names, inputs, strict=True)]
    given += [
        tensor(f"kept_{n}", TensorProto.BOOL, (x.shape[axis],))
        for n, x in zip(names[:count], inputs, strict=False)
    ]
    outputs = [tensor("y", floats, None), tensor("left", floats, None)]
    graph = helper.make_graph([*nodes, attention], "graph", given, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=10)


def test_as_many_tokens_as_the_run_finds():
    """And the run ends where keys are fewer than queries."""
    sizes = Sizes(batch=1, tokens=7)
    inputs = operands(sizes, "linear")
    instance = tvm_rammer.build(of_some(sizes, 1, 3), "llvm", policy="sequential").create()
    kept = np.array([1, 0, 1, 1, 0, 0, 1], bool)
    found = instance(*inputs, kept, kept, kept)
    some = [x[:, kept] for x in inputs]
    alone = one_operator(
        *("LinearAttention", some, 2),
        **{"q_num_heads": sizes.asked, "kv_num_heads": sizes.heads, "update_rule": "linear"},
    )
    for one, other in zip(found, reference(alone, fed(alone, some)), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-5)
    fewer = np.array([1, 0, 1, 0, 0, 0, 1], bool)
    with pytest.raises(Exception, match=r"4|3"):
        instance(*inputs, kept, fewer, kept)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_as_many_elements_as_the_run_finds(count):
    with pytest.raises(ModelError, match="how many elements a token has is known only at run time"):
        load_model(of_some(Sizes(), 2, count))


def test_as_many_elements_of_a_key_as_the_run_finds():
    model = of_some(Sizes(), 2, 2)
    # The queries are read as they are, and have all of their elements.
    model.graph.node[-1].input[0] = "q"
    with pytest.raises(ModelError, match="how many elements a token has is known only at run time"):
        load_model(model)


@pytest.mark.parametrize(
    ("rule", "changed", "heads", "reason"),
    [
        ("gated", {4: None}, (4, 2), "requires decay"),
        ("linear", {5: (2, 9, 2)}, (4, 2), "forbids beta"),
        ("linear", {}, (4, 3), "must be a multiple of kv_num_heads"),
        ("no such rule", {}, (4, 2), "must be one of"),
        ("linear", {1: (2, 9, 18)}, (4, 2), "between 8 and 9"),
        ("gated", {4: (2, 9, 3)}, (4, 2), r"decay last dim \(3\) must be"),
        ("delta", {5: (2, 9, 3)}, (4, 2), r"beta last dim \(3\) must be"),
        ("linear", {3: (2, 2, 8, 5)}, (4, 2), "between 5 and 6"),
    ],
)
def test_what_onnx_forbids(rule, changed, heads, reason):
    given = dict(enumerate(operands(Sizes(), rule if rule in RULES else "linear")))
    given |= {k: None if v is None else np.zeros(v, "float32") for k, v in changed.items()}
    inputs = [given.get(number) for number in range(max(given) + 1)]
    attributes = {"q_num_heads": heads[0], "kv_num_heads": heads[1], "update_rule": rule}
    with pytest.raises(ModelError, match=rf"LinearAttention \(node 'node'\).*({reason})"):
        load_model(one_operator("LinearAttention", inputs, 2, **attributes))
