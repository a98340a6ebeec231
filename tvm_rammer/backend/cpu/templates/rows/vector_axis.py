"""Which axis of a row program fills the lanes of a vector: one whose elements are neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import sym, tirx

from tvm_rammer.backend.cpu.templates.rows.frame import Frame, Point
from tvm_rammer.backend.cpu.templates.rows.row_program import RowProgram, RowStep
from tvm_rammer.kernel.blocks import loads
from tvm_rammer.kernel.loops import unravel
from tvm_rammer.kernel.pointwise import flat_index
from tvm_rammer.machine import VDevice


@dataclass(frozen=True)
class VectorAxis:
    """The last axes of the kept or of the reduced ones as one.

    Attributes
    ----------
    outer : tuple of int
        Extents of the axes before it.
    fused : tuple of int
        Extents of the axes that it is made of.
    lanes : int
        Of a full vector.
    """

    outer: tuple[int, ...]
    fused: tuple[int, ...]
    lanes: int

    @property
    def length(self) -> int:
        return prod(self.fused)


def vector_axis(program: RowProgram, *, across: bool, vdevice: VDevice) -> VectorAxis | None:
    """The longest run of last axes along which every access is contiguous or constant.

    Parameters
    ----------
    program : RowProgram
    across : bool
        Lanes are different rows (kept axes), and not different columns (reduced axes).
    vdevice : VDevice

    Returns
    -------
    VectorAxis or None
        ``None`` when there is none of at least a quarter of a vector.
    """
    group = program.kept if across else program.reduced
    lanes = vdevice.vector_bytes // program.lane_bytes
    for start in range(len(group)):
        if prod(group[start:]) < max(2, lanes // 4):
            return None
        if _contiguous(program, start, across):
            return VectorAxis(group[:start], group[start:], lanes)
    return None


def _contiguous(program: RowProgram, start: int, across: bool) -> bool:
    group = program.kept if across else program.reduced
    analyzer = sym.Analyzer()
    dtype = program.index_dtype
    fused = _bounded("fused", prod(group[start:]), dtype, analyzer)

    def indices(extents: Sequence[int], own: bool) -> tuple[Any, ...]:
        plain = extents[:start] if own else extents
        loops = tuple(_bounded("outer", extent, dtype, analyzer) for extent in plain)
        return loops + unravel(fused, extents[start:]) if own else loops

    axes = indices(program.kept, across) + indices(program.reduced, not across)
    frame = Frame.of(program, 1)
    point = Point(axes, tirx.const(0, dtype), tirx.const(0, dtype))
    return all(
        _stride(buffer, index, fused, analyzer) in (0, 1)
        for step in program.steps
        if across or step.reduces or step.spans
        for buffer, index in _accesses(frame, step, point, across)
    )


def _bounded(name: str, extent: int, dtype: str, analyzer: Any) -> Any:
    var = tirx.Var(name, dtype)
    analyzer.bind(var, tvm.ir.Range(0, extent))
    return var


def _accesses(
    frame: Frame, step: RowStep, point: Point, across: bool
) -> Iterator[tuple[Any, Sequence[Any]]]:
    """The accesses of a step to memory that its vectors are read from or written to."""
    local = set(frame.buffers.values())
    for store in step.stores:
        value = frame.value(step, store.value, point)
        yield from ((ld.source, ld.indices) for ld in loads(value) if ld.source not in local)
        written = frame.store(step, store, value, point)
        if written.buffer not in local and (across or step.spans):
            yield written.buffer, written.indices


def _stride(buffer: Any, indices: Sequence[Any], fused: Any, analyzer: Any) -> int | None:
    """How far apart in memory neighbours along the fused axis are; ``None`` when it varies."""
    offset = flat_index(buffer, indices)
    found = sym.detect_linear_equation(analyzer.simplify(offset), [fused])
    if not found or not isinstance(found[0], tirx.IntImm):
        return None
    return int(found[0])
