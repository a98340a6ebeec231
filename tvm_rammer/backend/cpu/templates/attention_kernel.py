"""The loops of an attention of few queries, block by block of the places that they look at.

A tile walks keys and values once. The scores of a block stay in the nearest cache, and what the
blocks before gave is scaled down whenever a larger score turns up (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018; Dao et al., FlashAttention, NeurIPS 2022). Where batches
are fewer than vEUs, places are dealt out to several tiles, whose results a second stage joins (Dao
et al., Flash-Decoding, 2023).

A block that is hidden, as all are beyond what a decoder has seen so far, is not read: those are the
blocks where the score of a product of zero is lower than any that counts. Should all places of a
row turn out to be hidden, they are read after all: their weights are equal then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tvm import sym, tirx

from tvm_rammer.backend.cpu.templates.one_query import OneQuery
from tvm_rammer.backend.cpu.templates.rows.vector_loops import (
    UNROLLED,
    VectorRun,
    folded,
    lanes_of,
    pieces,
    sweep,
)
from tvm_rammer.kernel.attention_blocks import AttentionFunc, infinite, zero
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.loops import (
    USUAL_TRIPS,
    bind,
    buffer,
    for_each,
    loop,
    number,
    parallel,
    sequence,
    unrolled,
    when,
)
from tvm_rammer.kernel.nodes import substitute

#: Queries whose products with a key are computed together.
_ROWS_TOGETHER = 4
#: The score of a product of zero that hides its place.
_HIDDEN = -1e30
_INDEX = "int64"


@dataclass(frozen=True)
class _State:
    """What the blocks so far gave to each row, in buffers of a tile.

    Attributes
    ----------
    largest, totals : buffer of [rows]
        The largest score; the sum of weights relative to it.
    sums : buffer of [rows * columns]
        Of the weighted values.
    scale : buffer of [rows]
        What the scores of the last block make of what was there before.
    scores : buffer of [rows * places of a block]
        Products, scores, and weights in the end.
    """

    largest: Any
    totals: Any
    sums: Any
    scale: Any
    scores: Any

    @classmethod
    def of(cls, rows: int, columns: int, block: int) -> _State:
        sizes = {"sums": rows * columns, "scores": rows * block}
        names = ("largest", "totals", "sums", "scale", "scores")
        return cls(*(buffer(name, [sizes.get(name, rows)]) for name in names))

    def allocations(self) -> list[Any]:
        return [tirx.AllocBuffer(each) for each in vars(self).values()]


@dataclass(frozen=True)
class AttentionKernel:
    """Makes the stages of an attention.

    Attributes
    ----------
    func : AttentionFunc or OneQuery
    block : int
        Places that are looked at together.
    parts : int
        Tiles that share the places of a batch; a block of every so many is one's own, so that all
        have some of the first blocks.
    lanes, registers : int
        Elements of a vector; vectors that sums may be kept in.
    """

    func: AttentionFunc | OneQuery
    block: int
    parts: int
    lanes: int
    registers: int

    def stages(self) -> tuple[list[Any], list[Any]]:
        """The loops over tiles, and the buffers between them."""
        func = self.func
        if self.parts == 1:
            return [parallel("batch", func.batches, self.whole)], []
        shape = [func.batches, self.parts, func.rows]
        kept = [buffer(name, shape) for name in ("largest_of_part", "total_of_part")]
        kept.append(buffer("sums_of_part", [*shape, func.columns]))
        tiles = func.batches * self.parts
        parts = parallel("tile", tiles, lambda tile: self._part(tile, kept))
        return [parts, parallel("batch", func.batches, lambda b: self._joined(b, kept))], kept

    def whole(self, batch: Any) -> Any:
        """All places of a batch."""
        state = self._state()
        if self._shown is None:
            walk = self._walk(
                number(0), 1, lambda kernel, at, count: kernel._visit(state, batch, at, count)
            )
        else:
            walk = self._looked_at(state, batch, first=0)
        return self._framed(state, [*self._begin(state), walk, self._finish(state, batch)])

    def _part(self, tile: Any, kept: list[Any]) -> Any:
        """The places of a batch that are one tile's own."""
        state, batch, part = self._state(), tile // self.parts, tile % self.parts
        largest, totals, sums = kept

        def visit(kernel: AttentionKernel, at: Any, count: int) -> Any:
            visited = kernel._visit(state, batch, at, count)
            return visited if self._shown is None else kernel._if_shown(batch, at, count, visited)

        def keep(row: Any) -> Any:
            place = [batch, part, row]

            def column(c: Any, _: Any) -> Any:
                value = state.sums[row * self.func.columns + c]
                return tirx.BufferStore(sums, value, [*place, c])

            return sequence(
                [
                    tirx.BufferStore(largest, state.largest[row], place),
                    tirx.BufferStore(totals, state.totals[row], place),
                    self._along(self.func.columns, column),
                ]
            )

        walk = self._walk(part, self.parts, visit)
        return self._framed(state, [*self._begin(state), walk, self._rows(keep)])

    def _joined(self, batch: Any, kept: list[Any]) -> Any:
        """What all parts of a batch gave."""
        state = self._state()
        largest, totals, sums = kept

        def join(row: Any) -> Any:
            def found(part: Any) -> Any:
                new = tirx.max(state.largest[row], largest[batch, part, row])
                return tirx.BufferStore(state.largest, new, [row])

            base, bound = bind("base", self._base(state.largest[row]))

            def add(part: Any) -> Any:
                place = (batch, part, row)
                weight, weighed = bind("weight", tirx.exp(largest[place] - base))
                total = state.totals[row] + totals[place] * weight

                def column(c: Any, _: Any) -> Any:
                    at = row * self.func.columns + c
                    value = state.sums[at] + sums[(*place, c)] * weight
                    return tirx.BufferStore(state.sums, value, [at])

                return sequence(
                    [
                        weighed,
                        tirx.BufferStore(state.totals, total, [row]),
                        self._along(self.func.columns, column),
                    ]
                )

            return sequence([loop("part", self.parts, found), bound, loop("part", self.parts, add)])

        statements = [*self._begin(state), self._rows(join)]
        if self._shown is not None:
            statements.append(self._looked_at(state, batch, first=1))
        return self._framed(state, [*statements, self._finish(state, batch)])

    # What stages are made of.

    def _state(self) -> _State:
        return _State.of(self.func.rows, self.func.columns, self.block)

    def _framed(self, state: _State, statements: list[Any]) -> Any:
        return sequence([*state.allocations(), *statements])

    def _rows(self, body: Callable[[Any], Any]) -> Any:
        return for_each("row", self.func.rows, body)

    def _begin(self, state: _State) -> list[Any]:
        def row(r: Any) -> Any:
            stores = [
                tirx.BufferStore(state.largest, infinite(), [r]),
                tirx.BufferStore(state.totals, zero(), [r]),
            ]
            return sequence(stores)

        size = self.func.rows * self.func.columns
        clear = self._along(size, lambda at, _: tirx.BufferStore(state.sums, zero(), [at]))
        return [self._rows(row), clear]

    def _finish(self, state: _State, batch: Any) -> Any:
        func = self.func

        def row(r: Any) -> Any:
            def column(c: Any, _: Any) -> Any:
                total = state.sums[r * func.columns + c]
                return func.result(total, state.totals[r], state.largest[r], (batch, r, c))

            return self._along(func.columns, column)

        return self._rows(row)

    # Blocks.

    @cached_property
    def _shown(self) -> tuple[Any, Any, Any, Any] | None:
        """The score of a product of zero, and its batch, row and place.

        ``None`` if it is the same for all places: then none is hidden.
        """
        place = tuple(tirx.Var(name, _INDEX) for name in ("batch", "row", "place"))
        score = sym.Analyzer().simplify(self.func.score(zero(), *place))
        return (score, *place) if place[2] in variables(score) else None

    def _walk(
        self, part: Any, parts: int, visit: Callable[[AttentionKernel, Any, int], Any]
    ) -> Any:
        """Visit the blocks of a part, and what is left after them."""
        if not isinstance(self.func.places, int):
            return self._walk_open(visit)
        count, rest = divmod(self.func.places, self.block)

        def one(turn: Any) -> Any:
            block = turn * parts + part
            conditions = [block < number(count)] if count % parts else []
            return when(conditions, visit(self, block * self.block, self.block))

        statements = [for_each("block", -(-count // parts), one)]
        if rest:
            last = [part == number(parts - 1)] if parts > 1 else []
            statements.append(when(last, visit(self, number(count * self.block), rest)))
        return sequence(statements)

    def _walk_open(self, visit: Callable[[AttentionKernel, Any, int], Any]) -> Any:
        """Visit as many blocks as there are, of the last one also places that there are none of."""
        assert isinstance(self.func, OneQuery)
        count = tirx.floordiv(self.func.places, number(self.block))
        blocks = loop("block", count, lambda block: visit(self, block * self.block, self.block))
        last = visit(replace(self, func=self.func.behind()), count * self.block, self.block)
        left = self.func.places % number(self.block)
        return sequence([blocks, when([left > number(0)], last)])

    def _looked_at(self, state: _State, batch: Any, first: int) -> Any:
        """Visit blocks that are shown in turn 0, and in turn 1 all others if they are wanted."""
        turns = 2 - first
        lowest = buffer("lowest", [1])

        def least(row: Any) -> Any:
            value = tirx.min(lowest[number(0)], state.largest[row])
            return tirx.BufferStore(lowest, value, [number(0)])

        def turn(count: Any) -> Any:
            own = count + first

            def visit(kernel: AttentionKernel, at: Any, count: int) -> Any:
                visited = kernel._visit(state, batch, at, count)
                return kernel._if_shown(batch, at, count, visited, own)

            wanted = tirx.any(own == number(0), lowest[number(0)] <= tirx.const(_HIDDEN, "float32"))
            begin = tirx.BufferStore(lowest, tirx.const(float("inf"), "float32"), [number(0)])
            walk = when([wanted], self._walk(number(0), 1, visit))
            return sequence([begin, self._rows(least), walk])

        looped = loop("turn", turns, turn, marks={USUAL_TRIPS: turns - 1})
        return sequence([tirx.AllocBuffer(lowest), looped])

    def _if_shown(
        self, batch: Any, at: Any, count: int, visited: Any, turn: Any | None = None
    ) -> Any:
        """What is done with a block if any place in it is shown, or in turn 1 if none is."""
        assert self._shown is not None
        score, *place = self._shown
        best = buffer("best", [self.lanes])

        def look(row: Any) -> Any:
            def column(p: Any, lane: Any) -> Any:
                there = dict(zip(place, (batch, row, at + p), strict=True))
                value = tirx.max(best[lane], substitute(score, there))
                return tirx.BufferStore(best, value, [lane])

            return self._along(count, column)

        rows = self.func.rows if place[1] in variables(score) else 1
        shown: Any = best[number(0)] > tirx.const(_HIDDEN, "float32")
        if turn is not None:
            first = turn == number(0)
            shown = tirx.any(tirx.all(first, shown), tirx.all(tirx.Not(first), tirx.Not(shown)))
        return sequence(
            [
                tirx.AllocBuffer(best),
                self._filled(best, infinite()),
                for_each("row", rows, look),
                *folded(best, 0, self.lanes, tirx.Max, _INDEX),
                when([shown], visited),
            ]
        )

    def _visit(self, state: _State, batch: Any, at: Any, count: int) -> Any:
        """Take the places of a block into account."""
        return sequence(
            [
                self._products(state, batch, at, count),
                self._rows(lambda row: self._weights(state, batch, row, at, count)),
                self._values(state, batch, at, count),
            ]
        )

    def _products(self, state: _State, batch: Any, at: Any, count: int) -> Any:
        """Products of all rows with the keys of a block."""
        func, lanes = self.func, self.lanes

        def group(place: Any, first: Any, rows: int) -> Any:
            sums = buffer("products", [rows * lanes])

            def term(t: Any, lane: Any) -> Any:
                key = func.key(batch, at + place, t)
                stores = []
                for row in range(rows):
                    slot = lane + row * lanes
                    value = sums[slot] + func.query(batch, first + row, t) * key
                    stores.append(tirx.BufferStore(sums, value, [slot]))
                return sequence(stores)

            def keep(row: int) -> Any:
                slot = (first + row) * self.block + place
                return tirx.BufferStore(state.scores, sums[number(row * lanes)], [slot])

            folds = [folded(sums, row * lanes, lanes, tirx.Add, _INDEX) for row in range(rows)]
            return sequence(
                [
                    tirx.AllocBuffer(sums),
                    self._filled(sums, zero(), rows),
                    self._along(func.terms, term),
                    *(statement for several in zip(*folds, strict=True) for statement in several),
                    *map(keep, range(rows)),
                ]
            )

        def place(p: Any) -> Any:
            return self._groups(lambda first, rows: group(p, first, rows))

        return loop("place", count, place)

    def _weights(self, state: _State, batch: Any, row: Any, at: Any, count: int) -> Any:
        """Scores of a row's products, and their weights relative to the largest one."""
        best, total = buffer("best", [self.lanes]), buffer("total", [self.lanes])
        scores = state.scores

        def score(p: Any, lane: Any) -> Any:
            slot = row * self.block + p
            value = self.func.score(scores[slot], batch, row, at + p)
            larger = tirx.max(best[lane], scores[slot])
            return sequence(
                [tirx.BufferStore(scores, value, [slot]), tirx.BufferStore(best, larger, [lane])]
            )

        new, known = bind("new", tirx.max(state.largest[row], best[number(0)]))
        base, bound = bind("base", self._base(new))

        def weight(p: Any, lane: Any) -> Any:
            slot = row * self.block + p
            value = tirx.exp(scores[slot] - base)
            return sequence(
                [
                    tirx.BufferStore(scores, value, [slot]),
                    tirx.BufferStore(total, total[lane] + scores[slot], [lane]),
                ]
            )

        scaled = state.totals[row] * state.scale[row] + total[number(0)]
        return sequence(
            [
                *(tirx.AllocBuffer(each) for each in (best, total)),
                self._filled(best, infinite()),
                self._filled(total, zero()),
                self._along(count, score),
                *folded(best, 0, self.lanes, tirx.Max, _INDEX),
                known,
                bound,
                tirx.BufferStore(state.scale, tirx.exp(state.largest[row] - base), [row]),
                tirx.BufferStore(state.largest, new, [row]),
                self._along(count, weight),
                *folded(total, 0, self.lanes, tirx.Add, _INDEX),
                tirx.BufferStore(state.totals, scaled, [row]),
            ]
        )

    def _values(self, state: _State, batch: Any, at: Any, count: int) -> Any:
        """Add the weighted values of a block, as many columns at once as registers hold."""
        func = self.func

        def columns(first: Any, rows: int, start: Any, vectors: int, width: int) -> Any:
            size = vectors * width
            sums = buffer("weighted", [rows * size])

            def each(body: Callable[[int, Any, Any], Any]) -> Any:
                """``body(row, slot, column)`` for all sums."""

                def vector(v: Any) -> Any:
                    def lane(own: Any) -> Any:
                        column = v * width + own
                        return sequence(
                            [body(row, column + row * size, column) for row in range(rows)]
                        )

                    return lanes_of(width, _INDEX, lane)

                return unrolled("vector", vectors, vector)

            def kept(row: int, column: Any) -> Any:
                return (first + row) * func.columns + start + column

            def take(row: int, slot: Any, column: Any) -> Any:
                value = state.sums[kept(row, column)] * state.scale[first + row]
                return tirx.BufferStore(sums, value, [slot])

            def place(p: Any) -> Any:
                def add(row: int, slot: Any, column: Any) -> Any:
                    weight = state.scores[(first + row) * self.block + p]
                    value = func.value(batch, at + p, start + column)
                    return tirx.BufferStore(sums, sums[slot] + weight * value, [slot])

                return each(add)

            def keep(row: int, slot: Any, column: Any) -> Any:
                return tirx.BufferStore(state.sums, sums[slot], [kept(row, column)])

            return sequence(
                [tirx.AllocBuffer(sums), each(take), loop("place", count, place), each(keep)]
            )

        def group(first: Any, rows: int) -> Any:
            together = max(1, self.registers // rows)

            def piece(run: VectorRun) -> Any:
                def cut(done: Any, vectors: int) -> Any:
                    return columns(first, rows, done * run.lanes + run.start, vectors, run.lanes)

                return self._shares(run.count, together, cut)

            return sequence(map(piece, pieces(func.columns, self.lanes)))

        return self._groups(group)

    # Small things.

    def _groups(self, body: Callable[[Any, int], Any]) -> Any:
        """``body(first, rows)`` for all rows, a few at a time."""
        return self._shares(self.func.rows, _ROWS_TOGETHER, body)

    def _shares(self, count: int, most: int, body: Callable[[Any, int], Any]) -> Any:
        """``body(first, length)`` for a length, so much of it at a time, and for what is left."""
        whole, rest = divmod(count, most)
        statements = [for_each("share", whole, lambda n: body(n * most, most))] if whole else []
        if rest:
            statements.append(body(number(whole * most), rest))
        return sequence(statements)

    def _along(self, count: int, body: Callable[[Any, Any], Any]) -> Any:
        """``body(index, lane)`` for every index below ``count``, in vectors."""
        return sweep(pieces(count, self.lanes), _INDEX, body)

    def _filled(self, target: Any, value: Any, vectors: int = 1) -> Any:
        whole = [VectorRun(0, vectors, self.lanes)]
        return sweep(whole, _INDEX, lambda at, _: tirx.BufferStore(target, value, [at]), UNROLLED)

    def _base(self, largest: Any) -> Any:
        """What scores are relative to: their largest, if that is a number."""
        return tirx.Select(largest == infinite(), zero(), largest)
