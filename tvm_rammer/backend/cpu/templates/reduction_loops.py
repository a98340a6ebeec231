"""The loops of a reduction: guards of the data as far outside as can be, long sums in blocks.

The sums of blocks are added up: the rounding error of a chain of additions grows with its length,
and the few additions more are not noticed.

What prepares the end of a tile is spread over its loops, row by row: a processor waits when more
lines are on their way than it has buffers for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from tvm_rammer.backend.cpu.templates.columns import Columns
from tvm_rammer.kernel.contraction import Axis, Contraction
from tvm_rammer.kernel.guards import Guarded, everywhere, guarded, mentions
from tvm_rammer.kernel.loops import for_each, number, rolled, sequence, turn_of
from tvm_rammer.kernel.nodes import all_of, substitute

#: A chain of additions is at most this long: with sums of thousands, a third of the error is left
#: that one chain has.
_LONGEST_CHAIN = 512
#: A shorter chain costs more than it gains.
_SHORTEST_CHAIN = 64

Values = Mapping[Any, Any]
Guards = Sequence[Any]


@dataclass(frozen=True)
class ReductionLoops:
    """The reduction of a contraction.

    Attributes
    ----------
    contraction : Contraction
    columns : Columns
        The axis of the vectors.
    rows : Axis, optional
        The axis of a tile's rows.
    taps : Axis, optional
        The reduced axis whose loop is unrolled.
    chains : int
        So many steps of the innermost loop add to sums of their own, one after another.
    """

    contraction: Contraction
    columns: Columns
    rows: Axis | None
    taps: Axis | None
    chains: int = 1

    @cached_property
    def data(self) -> Guarded:
        """The data and what guards them."""
        return guarded(self.columns.data(self.contraction))

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """In the order of the loops: those that guards depend on outside of the others."""
        axes = self.contraction.reduced
        first = [axis for axis in axes if any(mentions(g, [axis.var]) for g in self.data.guards)]
        return (*first, *(axis for axis in axes if axis not in first))

    @property
    def blocked(self) -> bool:
        """Whether the sums are so long that they are taken in blocks."""
        floating = self.contraction.dtype.startswith("float")
        return floating and prod(axis.extent for axis in self.axes) > _LONGEST_CHAIN

    def statement(
        self,
        places: Values,
        first_row: Any,
        rows: int,
        body: Callable[[Values, Guards, int], Any],
        block: Callable[[Any], Any],
        prepare: Callable[[Any], Sequence[Any]],
    ) -> Any:
        """The loops of a tile.

        Parameters
        ----------
        places : mapping of Var to PrimExpr
            The axes of the tasks.
        first_row : PrimExpr
        rows : int
            Of the tile.
        body : callable
            From the reduced axes, the guards that are left to it, and the number of a chain to the
            innermost statement.
        block : callable
            What is put around the loops of a block, if sums are ``blocked``.
        prepare : callable
            From the number of a row to the statements that prepare its end, perhaps none; a few
            rows after the tile's may be asked for, too.
        """
        row = () if self.rows is None else (self.rows.var,)
        ends: dict[Any, tuple[Any, Any]] = {}
        if self.rows is not None:
            ends[self.rows.var] = (first_row, first_row + (rows - 1))

        def nest(
            axes: Sequence[Axis],
            values: Values,
            guards: Guards,
            inline: Guards,
            whole: bool,
            turns: _Turns | None,
            chain: int = 0,
        ) -> Any:
            steps = prod(axis.extent for axis in axes)
            if whole and steps <= _LONGEST_CHAIN:
                return block(nest(axes, values, guards, inline, False, turns))
            waiting = [axis.var for axis in axes]
            ready = [guard for guard in guards if not mentions(guard, waiting)]
            left = [guard for guard in guards if mentions(guard, waiting)]
            bound = {**places, **values}
            skip = [guard for guard in ready if not mentions(guard, row)]
            each = [guard for guard in ready if mentions(guard, row)]
            if skip:
                inner = nest(axes, values, [*each, *left], inline, whole, turns, chain)
                return tirx.IfThenElse(substitute(all_of(skip), bound), inner, None)
            if each and not self.columns.elementwise:
                plain = nest(axes, values, left, inline, whole, turns, chain)
                guarded = nest(axes, values, left, [*inline, *each], whole, turns, chain)
                return tirx.IfThenElse(substitute(everywhere(each, ends), bound), plain, guarded)
            inline = [*inline, *each]
            if not axes:
                return body(values, inline, chain)
            axis, *rest = axes
            kind = ForKind.UNROLLED if axis is self.taps else ForKind.SERIAL
            name, inner = str(axis.var.name), steps // axis.extent

            def steps_of(extent: int, first: Any, whole: bool) -> Any:
                def step(place: Any, turns: _Turns | None, chain: int = 0) -> Any:
                    bound = {**values, axis.var: place}
                    return nest(rest, bound, left, inline, whole, turns, chain)

                def steps(extent: int, first: Any) -> Any:
                    if rest or self.chains == 1:
                        return for_each(name, extent, lambda at: step(first + at, None), kind)
                    full, ragged = divmod(extent, self.chains)

                    def group(at: Any) -> Any:
                        start = first + at * self.chains
                        return sequence([step(start + k, None, k) for k in range(self.chains)])

                    last = [step(first + (extent - k), None, k) for k in range(ragged, 0, -1)]
                    return sequence([*([for_each(name, full, group)] if full else []), *last])

                if turns is None:
                    return steps(extent, first)
                if turns.count * extent < rows:
                    return for_each(name, extent, lambda at: step(first + at, turns.of(extent, at)))
                length = 1 if inner > 1 else turns.length(extent, rows)

                def part(number_of_part: Any) -> Any:
                    place = first + number_of_part * length
                    turn = turns.of(extent // length, number_of_part).number
                    return sequence([*prepare(turn_of(turn, rows)), steps(length, place)])

                return for_each(name, extent // length, part)

            if not whole or inner > _LONGEST_CHAIN:
                return steps_of(axis.extent, number(0), whole)
            length = _block_length(axis.extent, inner)
            full, ragged = divmod(axis.extent, length)
            # LLVM copies the body of each of four blocks, and their sums leave the registers.
            every = rolled if full > 1 else for_each
            blocks = [
                every("block", full, lambda b: block(steps_of(length, b * length, False))),
                *([block(steps_of(ragged, number(full * length), False))] if ragged else []),
            ]
            return sequence(blocks)

        guards = self.data.guards
        if not guards:
            turns = _Turns(number(0), 1) if prepare(number(0)) else None
            return nest(self.axes, {}, [], [], self.blocked, turns)
        # Among guards, LLVM makes so much of more loops that sums leave their registers.
        first = [statement for k in range(rows) for statement in prepare(number(k))]
        general = nest(self.axes, {}, guards, [], self.blocked, None)
        if not self.columns.elementwise:
            return sequence([*first, general])
        for axis in self.axes:
            ends[axis.var] = (number(0), number(axis.extent - 1))
        plain = nest(self.axes, {}, [], [], self.blocked, None)
        inside = substitute(everywhere(guards, ends), places)
        return sequence([*first, tirx.IfThenElse(inside, plain, general)])


@dataclass(frozen=True)
class _Turns:
    """The turns of some loops, numbered through: the ``number`` of one, and how many there are."""

    number: Any
    count: int

    def of(self, extent: int, place: Any) -> _Turns:
        """With one more loop inside of them."""
        return _Turns(self.number * extent + place, self.count * extent)

    def length(self, extent: int, rows: int) -> int:
        """How long the parts of one more loop are that are turns enough in its first half."""
        lengths = (n for n in range(extent, 0, -1) if extent % n == 0)
        return next((n for n in lengths if self.count * extent // n >= 2 * rows), 1)


def _block_length(extent: int, inner: int) -> int:
    """How much of an axis makes a block: a divisor of its extent, unless all are small."""
    most = _LONGEST_CHAIN // inner
    least = -(-_SHORTEST_CHAIN // inner)
    return next((n for n in range(most, least - 1, -1) if extent % n == 0), most)
