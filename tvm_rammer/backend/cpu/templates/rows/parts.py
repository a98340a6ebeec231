"""Cuts long rows into parts: where rows are few, their parts are what several vEUs can share.

The partial results are one dimension more in a buffer, and reducing these is a second program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.rows.row_program import RowProgram, RowStep, Store
from tvm_rammer.kernel.nodes import substitute

#: Elements of a part, or more: the time of several synchronisations.
_PART = 1 << 13
#: Parts of a row at least.
_FEW_PARTS = 4
#: Tiles at most.
_MAX_TILES = 64
#: A part is a multiple of so many elements, where it has more.
_ALIGN = 64


@dataclass(frozen=True)
class PartedProgram:
    """Programs of the parts, which write ``partial``, and of the results.

    Attributes
    ----------
    parts : tuple of RowProgram
        All parts but the last one, then the last one, which is somewhat longer or shorter.
    whole : RowProgram
    partial : tuple of Var
        One buffer for each value that is reduced.
    """

    parts: tuple[RowProgram, ...]
    whole: RowProgram
    partial: tuple[Any, ...]


def in_parts(program: RowProgram, num_tiles: int, *, across: bool) -> PartedProgram | None:
    """Cut the rows of a program along their longest axis.

    Parameters
    ----------
    program : RowProgram
    num_tiles : int
        Tiles that it has as it is.
    across : bool
        Whether its rows are neighbours in memory; the partial results are laid out likewise.

    Returns
    -------
    PartedProgram or None
        ``None`` for short rows, and where a row is read again after it was reduced.
    """
    first, *others = program.steps
    if not first.reduces or any(step.reduces or step.spans for step in others):
        return None
    longest = max(range(len(program.reduced)), key=lambda axis: program.reduced[axis])
    extent = program.reduced[longest]
    elements = prod(program.kept + program.reduced)
    limit = min(_MAX_TILES // num_tiles, elements // num_tiles // _PART, extent)
    if limit < _FEW_PARTS:
        return None
    size = -(-extent // limit)
    size = -(-size // _ALIGN) * _ALIGN if size > _ALIGN else size
    count = round(extent / size)
    if count < _FEW_PARTS:
        return None
    partial = tuple(_partial(program, store, count, across) for store in first.stores)
    cut = _Cut(program, longest, size, across, partial)
    parts = (cut.part(count - 1, 0, size), cut.part(1, count - 1, extent - (count - 1) * size))
    return PartedProgram(parts, cut.whole(count), partial)


def _partial(program: RowProgram, store: Store, count: int, across: bool) -> Any:
    shape = (count, *program.kept) if across else (*program.kept, count)
    return tirx.decl_buffer(shape, str(store.buffer.dtype), f"{store.buffer.name}_parts")


@dataclass(frozen=True)
class _Cut:
    """Where the rows of a program are cut."""

    program: RowProgram
    axis: int
    size: int
    across: bool
    partial: tuple[Any, ...]

    def part(self, count: int, start: int, extent: int) -> RowProgram:
        """Reduce ``extent`` elements along the axis in each of the parts from ``start`` on."""
        program = self.program
        kept = len(program.kept)
        part = tirx.Var("part", self.program.index_dtype)
        (step, *_) = program.steps
        first = (part + start) * self.size
        moved = {v: first + v for v, axis in step.axes.items() if axis == kept + self.axis}
        axes = {v: None if axis is None else axis + 1 for v, axis in step.axes.items()}
        kept_vars = self._kept(step)
        stores = tuple(
            Store(
                buffer,
                self._place(part + start, kept_vars),
                substitute(store.value, moved),
                store.combine,
            )
            for buffer, store in zip(self.partial, step.stores, strict=True)
        )
        reduced = list(program.reduced)
        reduced[self.axis] = extent
        return replace(
            program,
            kept=(count, *program.kept),
            reduced=tuple(reduced),
            steps=(RowStep({part: 0, **axes}, stores, spans=False),),
            homes={},
            temporaries={},
        )

    def whole(self, count: int) -> RowProgram:
        """Reduce the partial results and finish the rows."""
        program = self.program
        step, *others = program.steps
        part = tirx.Var("part", self.program.index_dtype)
        own = {v: axis for v, axis in step.axes.items() if axis is None or axis < len(program.kept)}
        place = self._place(part, self._kept(step))
        stores = tuple(
            replace(store, value=tirx.BufferLoad(buffer, list(place)))
            for buffer, store in zip(self.partial, step.stores, strict=True)
        )
        final = RowStep({**own, part: len(program.kept)}, stores, spans=False)
        return replace(program, reduced=(count,), steps=(final, *others))

    def _kept(self, step: RowStep) -> tuple[Any, ...]:
        """The variables of the kept axes in their order."""
        by_axis = {axis: var for var, axis in step.axes.items()}
        return tuple(by_axis[axis] for axis in range(len(self.program.kept)))

    def _place(self, part: Any, kept: tuple[Any, ...]) -> tuple[Any, ...]:
        return (part, *kept) if self.across else (*kept, part)
