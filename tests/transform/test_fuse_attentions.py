"""Attentions of few queries become one operator, however they are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from close import assert_close
from kernel_runs import relax_module
from small_graphs import run
from tvm import relax

import tvm_rammer
from tvm_rammer.relax_util import calls_of, operator_name, static_shape
from tvm_rammer.transform.fuse_attentions import FuseAttentions

OP = relax.op
LOWEST = relax.const(float(np.finfo("float32").min), "float32")


class Writer:
    """Writes an attention as a front end would; subclasses change a part of it."""

    #: Batches, heads, queries, places, terms.
    sizes = (2, 3, 2, 300, 16)

    def inputs(self) -> list[np.ndarray]:
        batch, heads, queries, places, terms = self.sizes
        rng = np.random.default_rng(0)
        shapes = self.shapes(batch, heads, queries, places, terms)
        query, key, value = (rng.standard_normal(shape).astype("float32") for shape in shapes)
        return [query, key, value, self.mask(rng)]

    def shapes(self, batch: int, heads: int, queries: int, places: int, terms: int) -> Any:
        kept = (batch, heads, places, terms)
        return (batch, heads, queries, terms), kept, kept

    def mask(self, rng: Any) -> np.ndarray:
        batch, _, queries, places, _ = self.sizes
        return np.where(rng.random((batch, 1, queries, places)) < 0.5, 0, -1e38).astype("float32")

    def module(self) -> tvm.IRModule:
        return relax_module(self.build, *self.inputs())

    def build(self, query: Any, key: Any, value: Any, mask: Any) -> Any:
        products = OP.matmul(query, OP.permute_dims(key, [0, 1, 3, 2]))
        return OP.matmul(self.weights(self.masked(products, mask)), value)

    def masked(self, products: Any, mask: Any) -> Any:
        return OP.add(OP.divide(products, relax.const(4.0, "float32")), mask)

    def weights(self, scores: Any) -> Any:
        return OP.nn.softmax(scores, axis=-1)


class Chosen(Writer):
    """Masked by a choice."""

    def mask(self, rng: Any) -> np.ndarray:
        return rng.random((1, self.sizes[1], 1, self.sizes[3])) < 0.5

    def masked(self, products: Any, mask: Any) -> Any:
        return OP.where(mask, products, LOWEST)


class Turned(Chosen):
    """Masked by a choice of what stays hidden."""

    def masked(self, products: Any, mask: Any) -> Any:
        return OP.where(mask, LOWEST, products)


class Capped(Writer):
    """Capped, as Gemma 2's."""

    def masked(self, products: Any, mask: Any) -> Any:
        cap = relax.const(20.0, "float32")
        return OP.add(mask, OP.multiply(OP.tanh(OP.divide(products, cap)), cap))


class Flat(Writer):
    """With one axis for batch and heads around the products, as PyTorch decomposes it."""

    def build(self, query: Any, key: Any, value: Any, mask: Any) -> Any:
        batch, heads, queries, places, terms = self.sizes
        flat = [OP.reshape(each, (batch * heads, -1, terms)) for each in (query, key, value)]
        products = OP.matmul(flat[0], OP.permute_dims(flat[1], [0, 2, 1]))
        scores = self.masked(OP.reshape(products, (batch, heads, queries, places)), mask)
        weights = OP.reshape(self.weights(scores), (batch * heads, queries, places))
        return OP.reshape(OP.matmul(weights, flat[2]), (batch, heads, queries, terms))


class HeadsInside(Writer):
    """Keys and values whose heads stand side by side in memory."""

    def shapes(self, batch: int, heads: int, queries: int, places: int, terms: int) -> Any:
        kept = (batch, places, heads, terms)
        return (batch, heads, queries, terms), kept, kept

    def build(self, query: Any, key: Any, value: Any, mask: Any) -> Any:
        products = OP.matmul(query, OP.permute_dims(key, [0, 2, 3, 1]))
        weights = self.weights(self.masked(products, mask))
        return OP.matmul(weights, OP.permute_dims(value, [0, 2, 1, 3]))


class Safe(Writer):
    """Rows whose scores are all minus infinity give zeros."""

    def mask(self, rng: Any) -> np.ndarray:
        batch, _, queries, places, _ = self.sizes
        mask = np.where(rng.random((batch, 1, queries, places)) < 0.5, 0, -np.inf)
        mask[0, 0, 1] = -np.inf
        return mask.astype("float32")

    def weights(self, scores: Any) -> Any:
        nothing = OP.equal(self.some(scores), relax.const(0, "uint8"))
        return OP.where(nothing, relax.const(0.0, "float32"), OP.nn.softmax(scores, axis=-1))

    def some(self, scores: Any) -> Any:
        finite = OP.not_equal(scores, relax.const(float("-inf"), "float32"))
        return OP.max(OP.astype(finite, "uint8"), [-1], keepdims=True)


class Short(Writer):
    """Values as float16."""

    def inputs(self) -> list[np.ndarray]:
        query, key, value, mask = super().inputs()
        return [query, key, value.astype("float16"), mask]

    def build(self, query: Any, key: Any, value: Any, mask: Any) -> Any:
        return super().build(query, key, OP.astype(value, "float32"), mask)


def fused(mod: tvm.IRModule) -> bool:
    """Whether one PrimFunc and views are all that is left of a module."""
    names = [operator_name(call) for call in calls_of(FuseAttentions()(mod))]
    return "relax.call_tir" in names and not {"relax.matmul", "relax.nn.softmax"} & set(names)


def assert_same(writer: Writer) -> None:
    mod, inputs = writer.module(), writer.inputs()
    (want,) = run(relax.build(mod, "llvm"), inputs)
    (got,) = run(relax.build(FuseAttentions()(mod), "llvm"), inputs)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    library = tvm_rammer.build(mod, num_veus=2, policy="wavefront")
    assert_close(library.create()(*inputs)[0].numpy(), got)


@pytest.mark.parametrize("writer", [Writer, Chosen, Turned, Capped, Flat, HeadsInside, Safe, Short])
def test_attentions_become_one_operator(writer):
    assert fused(writer().module())
    assert_same(writer())


class Many(Writer):
    """Queries enough to keep products of their own busy."""

    sizes = (1, 2, 17, 300, 16)


class Near(Writer):
    """Few places."""

    sizes = (1, 2, 2, 255, 16)


class Alone(Writer):
    """One query that looks at everything."""

    sizes = (1, 2, 1, 600, 16)

    def masked(self, products: Any, mask: Any) -> Any:
        return OP.add(products, OP.min(mask, [-1], keepdims=True))


class OfAnotherAxis(Writer):
    """Weights that add up to one for every place."""

    def weights(self, scores: Any) -> Any:
        return OP.nn.softmax(scores, axis=-2)


class Shown(Writer):
    """Weights that are asked for as well."""

    def build(self, query: Any, key: Any, value: Any, mask: Any) -> Any:
        products = OP.matmul(query, OP.permute_dims(key, [0, 1, 3, 2]))
        weights = relax.BlockBuilder.current().emit(self.weights(self.masked(products, mask)))
        return [OP.matmul(weights, value), weights]


class ZeroesOthers(Safe):
    """A condition that asks for something else than minus infinity."""

    def some(self, scores: Any) -> Any:
        finite = OP.not_equal(scores, relax.const(0.0, "float32"))
        return OP.max(OP.astype(finite, "uint8"), [-1], keepdims=True)


class NoProduct(Writer):
    """Scores that no product makes."""

    def masked(self, products: Any, mask: Any) -> Any:
        return OP.exp(products)


class AloneAndNear(Writer):
    """One query that looks at few places."""

    sizes = (1, 2, 1, 511, 16)


@pytest.mark.parametrize(
    "writer",
    [Many, Near, Alone, AloneAndNear, OfAnotherAxis, Shown, ZeroesOthers, NoProduct],
)
def test_others_stay_what_they_are(writer):
    mod = writer().module()
    assert FuseAttentions()(mod).same_as(mod)


def test_gpus_keep_their_products():
    mod = Writer().module()
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        assert FuseAttentions()(mod).same_as(mod)


def test_results_have_the_shape_of_the_product():
    after = FuseAttentions()(Flat().module())
    assert static_shape(after["main"].body.body) == (2, 3, 2, 16)
