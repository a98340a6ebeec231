"""Prefetches, above all of what a register tile needs at its end: lines that it writes and adds to.

While a tile sums up, memory has time to deliver them. A store to a line that no cache holds waits
for it as a load does, as processors read a line before they write a part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op, PrimType

from tvm_rammer.backend.cpu.templates.columns import is_contiguous
from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile
from tvm_rammer.kernel.blocks import loads, variables
from tvm_rammer.kernel.contraction import Axis, Contraction
from tvm_rammer.kernel.footprint import PREFETCH
from tvm_rammer.kernel.nodes import substitute
from tvm_rammer.rprogram import dtype_bytes

#: Tiles with fewer steps are over before memory answers.
_FEWEST_STEPS = 24
#: Bytes that a prefetch brings.
_LINE_BYTES = 64
READ, WRITE = 0, 1
#: Into the first-level or the second-level cache.
FIRST, SECOND = 3, 2
#: Of data, not of code.
_DATA = 1


def prefetch(place: Any, kind: int = READ, level: int = FIRST) -> Any:
    """The statement that brings the line of a load into a cache."""
    options = [tirx.const(option, "int32") for option in (kind, level, _DATA)]
    operands = [tirx.address_of(place), *options]
    return tirx.Evaluate(Call(Op.get(PREFETCH), operands, ret_ty=PrimType("void")))


def prefetches(
    contraction: Contraction,
    rows: Axis | None,
    columns: Axis,
    tile: RegisterTile,
    values: Callable[[int], Mapping[Any, Any]],
) -> list[Any]:
    """The statements that prefetch what the epilogue of a row of a tile reads and writes.

    Parameters
    ----------
    contraction : Contraction
    rows : Axis, optional
        Of a tile without rows, all is written at once.
    columns : Axis
        The axis of the vectors.
    tile : RegisterTile
    values : callable
        Where the first lane of a vector of the row is: by spatial axis.
    """
    if rows is None or prod(axis.extent for axis in contraction.reduced) < _FEWEST_STEPS:
        return []
    store = contraction.store
    others = [load for load in loads(store.value) if not load.source.same_as(contraction.product)]
    places = [(tirx.BufferLoad(store.buffer, list(store.indices)), WRITE)]
    places += [(load, READ) for load in others if rows.var in variables(load.indices)]
    first = {axis.var: tirx.const(0, "int64") for axis in contraction.repeated}
    return [
        prefetch(substitute(place, {**values(vector), **first}), kind)
        for place, kind in places
        if is_contiguous(columns, place)
        for vector in range(0, tile.vectors, _vectors_of_a_line(tile, str(place.source.dtype)))
    ]


def _vectors_of_a_line(tile: RegisterTile, dtype: str) -> int:
    return max(1, _LINE_BYTES // (tile.lanes * dtype_bytes(dtype)))
