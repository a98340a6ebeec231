"""Attentions of many queries: a vector has an element of as many of them.

Products, the softmax and the weighted values need no sums across a vector then, and what queries
have in common, an element of a key or of a value, is read once for all of them. Keys and values are
walked once, block by block, and what the blocks before gave is scaled down whenever a larger score
turns up (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
FlashAttention, NeurIPS 2022). Where all sizes are known, products of their own are faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.rows.vector_loops import lanes_of
from tvm_rammer.kernel.attention_blocks import AttentionFunc, infinite, zero
from tvm_rammer.kernel.loops import (
    bind,
    buffer,
    ceil_div,
    loop,
    number,
    parallel,
    rolled,
    sequence,
    when,
)

#: Places of a block, and those whose products are made together.
_BLOCK, _TOGETHER = 32, 8
_INDEX = "int64"


@dataclass(frozen=True)
class ManyQueries:
    """A tile for as many queries of a batch as a vector has elements.

    Attributes
    ----------
    func : AttentionFunc
    lanes : int
    """

    func: AttentionFunc
    lanes: int

    def tiles(self) -> Any:
        """The loop over them."""
        groups = ceil_div(self.func.rows, self.lanes)

        def tile(index: Any) -> Any:
            return _QueryTile(self.func, self.lanes, index // groups, index % groups).body()

        return parallel("queries", self.func.batches * groups, tile)


class _QueryTile:
    """One tile: buffers that have a vector of queries for each term, place or column."""

    def __init__(self, func: AttentionFunc, lanes: int, batch: Any, group: Any) -> None:
        self.func, self.lanes, self.batch = func, lanes, batch
        self.first = group * lanes
        self.queries = buffer("queries", [func.terms * lanes])
        self.scores = buffer("scores", [_BLOCK * lanes])
        self.sums = buffer("sums", [func.columns * lanes])
        names = ("largest", "totals", "scale", "base")
        self.largest, self.totals, self.scale, self.base = (buffer(n, [lanes]) for n in names)

    def body(self) -> Any:
        """All of it."""
        own = (self.queries, self.scores, self.sums)
        kept = (self.largest, self.totals, self.scale, self.base)
        blocks = ceil_div(self.func.places, _BLOCK)

        def clear(column: Any) -> Any:
            return self._set(self.sums, lambda _: zero(), column * self.lanes)

        return sequence(
            [
                *map(tirx.AllocBuffer, (*own, *kept)),
                self._read(),
                self._set(self.largest, lambda _: infinite()),
                self._set(self.totals, lambda _: zero()),
                loop("column", self.func.columns, clear),
                loop("block", blocks, lambda block: self._block(block * _BLOCK)),
                self._store(),
            ]
        )

    def _row(self, lane: Any) -> Any:
        """Which query is in a lane; the last one in those that none is left for."""
        return tirx.min(self.first + lane, self.func.rows - 1)

    def _read(self) -> Any:
        """Queries, whose elements of one term become a vector."""

        def query(lane: Any) -> Any:
            row, known = bind("row", self._row(lane))

            def term(t: Any) -> Any:
                value = self.func.query(self.batch, row, t)
                return tirx.BufferStore(self.queries, value, [t * self.lanes + lane])

            return sequence([known, loop("term", self.func.terms, term)])

        return loop("lane", self.lanes, query)

    def _store(self) -> Any:
        """The results of those queries that there are."""

        def query(lane: Any) -> Any:
            row = self.first + lane

            def column(c: Any) -> Any:
                total = self.sums[c * self.lanes + lane]
                there = (self.batch, row, c)
                return self.func.result(total, self.totals[lane], self.largest[lane], there)

            return when([row < self.func.rows], loop("column", self.func.columns, column))

        return loop("lane", self.lanes, query)

    # A block of places.

    def _block(self, at: Any) -> Any:
        groups = _BLOCK // _TOGETHER
        products = rolled("group", groups, lambda g: self._products(at, g * _TOGETHER))
        return sequence([products, *self._weights(at), *self._values(at)])

    def _there(self, place: Any) -> Any:
        """A place; the last one instead of those behind it."""
        return tirx.min(place, self.func.places - 1)

    def _products(self, at: Any, first: Any) -> Any:
        """Products of some places with all queries."""
        sums = buffer("products", [_TOGETHER * self.lanes])
        bound = [bind(f"place_{k}", self._there(at + first + k)) for k in range(_TOGETHER)]
        places = [place for place, _ in bound]

        def term(t: Any) -> Any:
            def lanes(lane: Any) -> Any:
                query, known = bind("query", self.queries[t * self.lanes + lane])
                added = (self._added(sums, k, lane, query, t, places) for k in range(_TOGETHER))
                return sequence([known, *added])

            return lanes_of(self.lanes, _INDEX, lanes)

        def begin(lane: Any, k: int) -> Any:
            return tirx.BufferStore(sums, zero(), [lane + k * self.lanes])

        def keep(lane: Any, k: int) -> Any:
            value = sums[lane + k * self.lanes]
            return tirx.BufferStore(self.scores, value, [(first + k) * self.lanes + lane])

        return sequence(
            [
                tirx.AllocBuffer(sums),
                *(known for _, known in bound),
                self._each(_TOGETHER, begin),
                loop("term", self.func.terms, term),
                self._each(_TOGETHER, keep),
            ]
        )

    def _added(self, sums: Any, k: int, lane: Any, query: Any, t: Any, places: list[Any]) -> Any:
        slot = lane + k * self.lanes
        value = sums[slot] + query * self.func.key(self.batch, places[k], t)
        return tirx.BufferStore(sums, value, [slot])

    def _weights(self, at: Any) -> list[Any]:
        """Scores, and weights relative to the largest ones so far."""
        before = buffer("before", [self.lanes])

        def score(p: Any) -> Any:
            place, known = bind("place", self._there(at + p))

            def lanes(lane: Any) -> Any:
                slot = p * self.lanes + lane
                value = self.func.score(self.scores[slot], self.batch, self._row(lane), place)
                value = tirx.Select(at + p < self.func.places, value, infinite())
                larger = tirx.max(self.largest[lane], self.scores[slot])
                return sequence(
                    [
                        tirx.BufferStore(self.scores, value, [slot]),
                        tirx.BufferStore(self.largest, larger, [lane]),
                    ]
                )

            return sequence([known, lanes_of(self.lanes, _INDEX, lanes)])

        def weight(p: Any) -> Any:
            def lanes(lane: Any) -> Any:
                slot = p * self.lanes + lane
                value = tirx.exp(self.scores[slot] - self.base[lane])
                total = self.totals[lane] + self.scores[slot]
                return sequence(
                    [
                        tirx.BufferStore(self.scores, value, [slot]),
                        tirx.BufferStore(self.totals, total, [lane]),
                    ]
                )

            return lanes_of(self.lanes, _INDEX, lanes)

        def base(lane: Any) -> Any:
            largest = self.largest[lane]
            return tirx.Select(largest == infinite(), zero(), largest)

        return [
            tirx.AllocBuffer(before),
            self._set(before, lambda lane: self.largest[lane]),
            loop("place", _BLOCK, score),
            self._set(self.base, base),
            self._set(self.scale, lambda lane: tirx.exp(before[lane] - self.base[lane])),
            self._set(self.totals, lambda lane: self.totals[lane] * self.scale[lane]),
            loop("place", _BLOCK, weight),
        ]

    def _values(self, at: Any) -> list[Any]:
        """Weighted values, some columns at once."""
        whole, rest = divmod(self.func.columns, _TOGETHER)
        parts = [loop("columns", whole, lambda n: self._weighted(at, n * _TOGETHER, _TOGETHER))]
        if rest:
            parts.append(self._weighted(at, number(whole * _TOGETHER), rest))
        return parts if whole else parts[1:]

    def _weighted(self, at: Any, first: Any, count: int) -> Any:
        sums = buffer("weighted", [count * self.lanes])

        def kept(lane: Any, k: int) -> Any:
            return (first + k) * self.lanes + lane

        def take(lane: Any, k: int) -> Any:
            value = self.sums[kept(lane, k)] * self.scale[lane]
            return tirx.BufferStore(sums, value, [lane + k * self.lanes])

        def place(p: Any) -> Any:
            there, known = bind("place", self._there(at + p))

            def lanes(lane: Any) -> Any:
                weight, bound = bind("weight", self.scores[p * self.lanes + lane])
                added = []
                for k in range(count):
                    slot = lane + k * self.lanes
                    value = sums[slot] + weight * self.func.value(self.batch, there, first + k)
                    added.append(tirx.BufferStore(sums, value, [slot]))
                return sequence([bound, *added])

            return sequence([known, lanes_of(self.lanes, _INDEX, lanes)])

        def keep(lane: Any, k: int) -> Any:
            return tirx.BufferStore(self.sums, sums[lane + k * self.lanes], [kept(lane, k)])

        walk = loop("place", _BLOCK, place)
        begin, end = (self._each(count, store) for store in (take, keep))
        return sequence([tirx.AllocBuffer(sums), begin, walk, end])

    # Small things.

    def _each(self, count: int, store: Callable[[Any, int], Any]) -> Any:
        """``store(lane, k)`` for so many vectors."""

        def lanes(lane: Any) -> Any:
            return sequence([store(lane, k) for k in range(count)])

        return lanes_of(self.lanes, _INDEX, lanes)

    def _set(self, target: Any, value: Callable[[Any], Any], first: Any = 0) -> Any:
        """Store a vector, from a place on."""
        return lanes_of(
            self.lanes,
            _INDEX,
            lambda lane: tirx.BufferStore(target, value(lane), [first + lane]),
        )
