"""An attention as one PrimFunc: products, scores, their softmax, and the weighted rows.

What makes it and what takes it apart again stand together: both know its blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir import TensorLoad

from tvm_rammer.kernel.blocks import root_blocks, schedule_of
from tvm_rammer.kernel.nodes import substitute

#: Attribute of the PrimFuncs that :func:`attention` makes.
ATTENTION = "tvm_rammer.attention"

#: An element of a tensor, given its batch, row and column.
Element = Callable[[Any, Any, Any], Any]
#: A score, given the product and its batch, row and place.
Score = Callable[[Any, Any, Any, Any], Any]


def attention(
    query: Element,
    key: Element,
    value: Element,
    score: Score,
    *,
    sizes: tuple[Any, Any, Any, int, int],
    hidden_rows_are_zero: bool,
) -> te.Tensor:
    """``softmax(score(query @ key.T)) @ value`` (Vaswani et al., NeurIPS 2017).

    Parameters
    ----------
    query, key, value : callable
        Elements of ``[batch, row, term]``, ``[batch, place, term]`` and ``[batch, place, column]``,
        float32.
    score : callable
        What becomes of a product: scaled, masked.
    sizes : tuple of int or PrimExpr
        Batches, rows, places, terms and columns; of the last two the number is known.
    hidden_rows_are_zero : bool
        What a row gives whose scores are all minus infinity: zeros, or what 0 / 0 is.

    Returns
    -------
    te.Tensor
        ``[batch, row, column]``.
    """
    batches, rows, places, terms, columns = sizes
    infinity = infinite()
    maximum = te.comm_reducer(lambda a, b: tirx.max(a, b), lambda _: infinity, name="maximum")
    term, *walked = (
        te.reduce_axis((0, extent), name)
        for extent, name in ((terms, "term"), *[(places, "place")] * 3)
    )

    def product(b: Any, r: Any, p: Any) -> Any:
        return te.sum(query(b, r, term.var) * key(b, p, term.var), axis=term)

    products = te.compute((batches, rows, places), product, "products")
    scores = te.compute(
        (batches, rows, places), lambda b, r, p: score(products(b, r, p), b, r, p), "scores"
    )

    def over_row(combine: Any, of: te.Tensor, place: Any, name: str) -> te.Tensor:
        return te.compute(
            (batches, rows), lambda b, r: combine(of(b, r, place.var), axis=place), name
        )

    largest = over_row(maximum, scores, walked[0], "largest")
    weights = te.compute(
        (batches, rows, places), lambda b, r, p: te.exp(scores(b, r, p) - largest(b, r)), "weights"
    )
    totals = over_row(te.sum, weights, walked[1], "totals")
    place = walked[2]
    sums = te.compute(
        (batches, rows, columns),
        lambda b, r, c: te.sum(weights(b, r, place.var) * value(b, place.var, c), axis=place),
        "sums",
    )

    def attended(b: Any, r: Any, c: Any) -> Any:
        mean = sums(b, r, c) / totals(b, r)
        if not hidden_rows_are_zero:
            return mean
        return tirx.Select(largest(b, r) == infinity, zero(), mean)

    return te.compute((batches, rows, columns), attended, "attended")


def zero() -> Any:
    """What sums begin with."""
    return tirx.const(0.0, "float32")


def infinite() -> Any:
    """What the largest score begins with, and what hides a place: minus infinity."""
    return tirx.const(float("-inf"), "float32")


@dataclass(frozen=True)
class _Block:
    """One block of the PrimFunc: its variables, and what it stores where."""

    variables: tuple[Any, ...]
    extents: tuple[Any, ...]
    store: Any

    @classmethod
    def of(cls, block: s_tir.SBlock) -> _Block:
        axes = block.iter_vars
        sizes = (axis.dom.extent for axis in axes)
        extents = tuple(int(s) if isinstance(s, tirx.IntImm) else s for s in sizes)
        return cls(tuple(axis.var for axis in axes), extents, block.body)

    def at(self, expression: Any, places: tuple[Any, ...], known: dict[Any, Any]) -> Any:
        """An expression of the block at places, with values for the buffers of other blocks."""
        there = substitute(expression, dict(zip(self.variables, places, strict=True)))

        def load(node: Any) -> Any:
            return known.get(node.source, node)

        return tvm_ffi.structural_map(there, (TensorLoad, load))


@dataclass(frozen=True)
class AttentionFunc:
    """A PrimFunc of :func:`attention`, taken apart.

    Attributes
    ----------
    func : PrimFunc
        Simplified; the expressions below read its parameters.
    batches, rows, places : int or PrimExpr
        Formulas are of sizes that each run decides.
    terms, columns : int
    """

    func: tirx.PrimFunc
    batches: Any
    rows: Any
    places: Any
    terms: int
    columns: int
    _blocks: dict[str, _Block]

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> AttentionFunc | None:
        """``None`` for a PrimFunc of other origin."""
        if not func.attrs or ATTENTION not in func.attrs:
            return None
        plain = s_tir.transform.StmtSimplify()(tvm.IRModule({"main": func}))["main"]
        sch = schedule_of(plain)
        found = (sch.get(block) for block in root_blocks(sch))
        blocks = {block.name_hint: _Block.of(block) for block in found}
        batches, rows, places, terms = blocks["products"].extents
        columns = blocks["attended"].extents[-1]
        return cls(sch.mod["main"], batches, rows, places, terms, columns, blocks)

    def query(self, batch: Any, row: Any, term: Any) -> Any:
        """An element of a query."""
        zero = tirx.const(0, "int64")
        return self._at("products", self._product.a, batch, row, zero, term)

    def key(self, batch: Any, place: Any, term: Any) -> Any:
        """An element of a key."""
        zero = tirx.const(0, "int64")
        return self._at("products", self._product.b, batch, zero, place, term)

    def value(self, batch: Any, place: Any, column: Any) -> Any:
        """An element of a value."""
        zero = tirx.const(0, "int64")
        factor = self._blocks["sums"].store.value.b.b
        return self._at("sums", factor, batch, zero, column, place)

    def score(self, product: Any, batch: Any, row: Any, place: Any) -> Any:
        """What becomes of a product."""
        block = self._blocks["scores"]
        products = {self._blocks["products"].store.buffer: product}
        return block.at(block.store.value, (batch, row, place), products)

    def result(
        self, total: Any, of_weights: Any, largest: Any, places: tuple[Any, Any, Any]
    ) -> Any:
        """The statement that stores an element of the result.

        Parameters
        ----------
        total, of_weights : PrimExpr
            Of the weighted values, and of the weights.
        largest : PrimExpr
            Of the row's scores.
        places : tuple of PrimExpr
            Batch, row and column.
        """
        block = self._blocks["attended"]
        known = {
            self._blocks[name].store.buffer: value
            for name, value in (("sums", total), ("totals", of_weights), ("largest", largest))
        }
        value = block.at(block.store.value, places, known)
        indices = [block.at(index, places, {}) for index in block.store.indices]
        return tirx.BufferStore(block.store.buffer, value, indices)

    @property
    def _product(self) -> Any:
        return self._blocks["products"].store.value.b

    def _at(self, name: str, expression: Any, *places: Any) -> Any:
        return self._blocks[name].at(expression, places, {})
