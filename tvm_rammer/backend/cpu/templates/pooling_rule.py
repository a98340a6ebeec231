"""Pools of small windows as element-wise expressions: every element of the window is a term.

A window that reaches over the border reads the nearest element inside instead: a maximum over
elements of the window does not change when one counts twice, and a sum discards it. So no tile
branches. Neighbouring windows are computed together, and what their columns have in common is
computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Range, TensorLoad

from tvm_rammer.backend.cpu.templates.finer import VERY_LARGE_DEVICE, Option, finer_tilings
from tvm_rammer.backend.cpu.templates.tiled_nest import (
    TILE_ACCESSES,
    CutBlock,
    tiled_nest,
    with_nests,
)
from tvm_rammer.kernel.blocks import is_choice, is_zero, loads, only_reduction, variables
from tvm_rammer.kernel.contraction import Axis
from tvm_rammer.kernel.nodes import collect, substitute
from tvm_rammer.kernel.pointwise import (
    FlatViews,
    Pointwise,
    coefficients,
    pointwise_store,
    with_last_axis_cut,
)
from tvm_rammer.kernel.scheduled import Scheduled, Template
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import dtype_bytes

#: Most elements of a window; the sums of larger ones stay loops.
_MOST_TERMS = 32
#: So many tiles share out evenly.
_FEWEST_TILES = 32
#: Windows that are computed together.
_TOGETHER = 4
#: Loads and stores that tiles aim at.
_SIZES = (TILE_ACCESSES, TILE_ACCESSES // 2, TILE_ACCESSES // 4)


@dataclass(frozen=True)
class PoolTiles:
    """A configuration: so many groups of channels, and the loads and stores that a tile aims at."""

    groups: int
    accesses: int

    def __str__(self) -> str:
        return f"{self.groups} groups of channels, tiles of {self.accesses} loads and stores"


@dataclass(frozen=True)
class PooledPoints:
    """A pool as a block of points, on flat ``views``, on a device."""

    func: tirx.PrimFunc
    views: FlatViews
    point: Pointwise
    vdevice: VDevice

    @property
    def itemsize(self) -> int:
        """Bytes of a result."""
        return dtype_bytes(str(self.point.target.dtype))

    @property
    def counts(self) -> list[int]:
        """How many groups of whole vectors there can be."""
        axes, value = self.point.axes, self.point.value
        if len(axes) < 2 or _compares(value, axes[-1].var):
            return [1]
        lanes, channels = self.vdevice.vector_bytes // self.itemsize, axes[-1].extent
        most = channels // lanes
        return [n for n in range(1, most + 1) if channels % (n * lanes) == 0] or [1]

    def cut(self, groups: int) -> CutBlock:
        """The block of so many groups."""
        point, (*outer, last) = self.point, self.point.axes or (None,)
        if groups > 1 and last is not None:
            point = with_last_axis_cut(point, last.extent // groups, len(outer) - 1)
        return CutBlock.of(point, self.vdevice)

    def options(self, groups: int) -> list[Option[PoolTiles]]:
        """Tiles of all sizes, how many there are and the modelled cycles of each."""
        cut = self.cut(groups)
        nests = {size: tiled_nest(cut, size, _TOGETHER) for size in _SIZES}
        return [
            Option(
                PoolTiles(groups, size),
                nest.num_tiles,
                nest.tile_cycles(self.vdevice, self.itemsize),
            )
            for size, nest in nests.items()
        ]


@dataclass(frozen=True)
class Pooling(Template[PooledPoints, PoolTiles]):
    """Schedules maxima and sums over windows, padded or not, and their epilogue."""

    name: str = "pooling"

    def match(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> PooledPoints | None:
        """As in :meth:`.Template.match`."""
        found = only_reduction(func)
        if found is None:
            return None
        sch, blocks, number = found
        if _Pool.of(sch.get(blocks[number])) is None:
            return None
        for block in [*blocks[:number], *blocks[number + 1 : -1]]:
            sch.compute_inline(block)
        pool = _Pool.of(sch.get(blocks[number]))
        if pool is None:
            return None
        inlined = sch.mod["main"]
        views = FlatViews(list(inlined.params))
        point = pointwise_store(*pool.followed_by(sch.get(blocks[-1])), views)
        return None if point is None else PooledPoints(inlined, views, point, vdevice)

    def space(self, found: PooledPoints) -> list[PoolTiles]:
        """All numbers of groups, in tiles of several sizes."""
        return [PoolTiles(*each) for each in product(found.counts, _SIZES)]

    def usual(self, found: PooledPoints) -> list[PoolTiles]:
        """Whole channels, in groups where there are few rows, and more for larger devices."""
        rows = prod(axis.extent for axis in found.point.axes[:-2])
        counts = found.counts
        wanted = next((n for n in counts if n * rows >= _FEWEST_TILES), counts[-1])
        usual, *others = (option for n in counts if n >= wanted for option in found.options(n))
        count = found.vdevice.num_veus
        return [usual.tiling, *finer_tilings(usual, others, count, VERY_LARGE_DEVICE)]

    def emit(self, found: PooledPoints, configuration: PoolTiles) -> Scheduled:
        """One size of tiles."""
        nest = tiled_nest(found.cut(configuration.groups), configuration.accesses, _TOGETHER)
        return with_nests(found.func, found.views, [nest], self.name)

    def rounding(self, configuration: PoolTiles) -> tuple[()]:
        """Every window is summed up in the same order."""
        return ()


def _compares(value: Any, var: Any) -> bool:
    """Whether a comparison mentions a variable."""
    comparisons = collect(value, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
    return any(var in variables(comparison) for comparison in comparisons)


@dataclass(frozen=True)
class _Pool:
    """``buffer[indices] = combine(term for all points of the window)``."""

    block: Any
    axes: tuple[Axis, ...]
    window: tuple[Axis, ...]
    combine: Callable[[Any, Any], Any]
    term: Any

    @classmethod
    def of(cls, block: s_tir.SBlock) -> _Pool | None:
        store = block.body
        kinds = {tirx.Max: tirx.max, tirx.Add: lambda a, b: a + b}
        if not isinstance(store, tirx.BufferStore) or type(store.value) not in kinds:
            return None
        before, term = store.value.a, store.value.b
        if not isinstance(before, TensorLoad) or not before.source.same_as(store.buffer):
            return None
        axes = [(Axis(a.var, int(a.dom.extent)), int(a.iter_type)) for a in block.iter_vars]
        spatial = tuple(axis for axis, kind in axes if not kind)
        window = tuple(axis for axis, kind in axes if kind)
        if not 0 < prod(axis.extent for axis in window) <= _MOST_TERMS:
            return None
        if not _slides(term, {a.var for a in spatial}, {a.var for a in window}):
            return None
        return cls(block, spatial, window, kinds[type(store.value)], term)

    def followed_by(self, out: s_tir.SBlock) -> tuple[tuple[Axis, ...], Any]:
        """The axes and the one store of the pool and the block after it, which may be itself."""
        store, value = self.block.body, self._value()
        if out.same_as(self.block):
            return self.axes, tirx.BufferStore(store.buffer, value, list(store.indices))

        def pooled(load: Any) -> Any:
            if not load.source.same_as(store.buffer):
                return load
            return substitute(value, dict(zip(store.indices, load.indices, strict=True)))

        axes = tuple(Axis(axis.var, int(axis.dom.extent)) for axis in out.iter_vars)
        followed = tvm_ffi.structural_map(out.body.value, (TensorLoad, pooled))
        return axes, tirx.BufferStore(out.body.buffer, followed, list(out.body.indices))

    def _value(self) -> Any:
        """All terms, those of a column first: neighbouring windows have columns in common."""
        term = self._inside()
        *rest, last = self.window
        columns = []
        for column in range(last.extent):
            places = product(*(range(axis.extent) for axis in rest), [column])
            terms = [substitute(term, self._constants(place)) for place in places]
            columns.append(reduce(self.combine, terms))
        return reduce(self.combine, columns)

    def _constants(self, place: tuple[int, ...]) -> dict[Any, Any]:
        pairs = zip(self.window, place, strict=True)
        return {axis.var: tirx.const(number, axis.dtype) for axis, number in pairs}

    def _inside(self) -> Any:
        """The term with a load that never leaves its buffer."""
        if not is_choice(self.term) or not isinstance(self.term.args[1], TensorLoad):
            return self.term
        condition, load, otherwise = self.term.args
        nearest = []
        same = self.combine is tirx.max and _is_least(otherwise)
        same = same and self._is_inside(condition, load)
        for index, extent in zip(load.indices, map(int, load.source.shape), strict=True):
            bound = self._analyzer().const_int_bound(index)
            if bound.min_value >= 0 and bound.max_value < extent:
                nearest.append(index)
                continue
            same = same and self._meets(index, extent)
            dtype = str(index.ty)
            below = tirx.min(index, tirx.const(extent - 1, dtype))
            nearest.append(tirx.max(below, tirx.const(0, dtype)))
        value = tirx.BufferLoad(load.source, nearest)
        return value if same else _blended(condition, value, otherwise)

    def _analyzer(self) -> sym.Analyzer:
        analyzer = sym.Analyzer()
        for axis in (*self.axes, *self.window):
            analyzer.bind(axis.var, Range.from_min_extent(0, axis.extent))
        return analyzer

    def _meets(self, index: Any, extent: int) -> bool:
        """Whether every window is without gaps along an index and has an element inside."""
        window = [axis for axis in self.window if axis.var in variables(index)]
        if len(window) != 1 or coefficients(index, [window[0].var]) != [1]:
            return False
        (axis,) = window
        first = substitute(index, {axis.var: tirx.const(0, axis.dtype)})
        bound = self._analyzer().const_int_bound(first)
        return bound.max_value < extent and bound.min_value + axis.extent > 0

    def _is_inside(self, condition: Any, load: Any) -> bool:
        """Whether a condition holds wherever a load is from inside of its buffer."""
        analyzer = self._analyzer()
        pairs = list(zip(load.indices, map(int, load.source.shape), strict=True))
        within = [each for index, extent in pairs for each in (index >= 0, index < extent)]
        with analyzer.constraint_scope(tirx.all(*within)):
            return bool(analyzer.can_prove(condition))


def _blended(condition: Any, value: Any, otherwise: Any) -> Any:
    """One of two values, both of them computed, by their bits.

    Below a ``Select`` TVM's simplifier takes the condition for granted, and the load's index would
    leave the buffer again.
    """
    dtype = str(value.ty)
    bits = f"int{8 * dtype_bytes(dtype)}"
    mask = tirx.const(0, bits) - condition.astype(bits)
    one, other = (x if dtype == bits else tirx.reinterpret(bits, x) for x in (value, otherwise))
    chosen = one & mask
    if not is_zero(otherwise):
        chosen = chosen | (other & ~mask)
    return chosen if dtype == bits else tirx.reinterpret(dtype, chosen)


def _is_least(value: Any) -> bool:
    """Whether a value is what no maximum takes from the border: the least of its type."""
    if not isinstance(value, tirx.FloatImm | tirx.IntImm):
        return False
    return bool(value.value <= tirx.min_value(str(value.ty)).value)


def _slides(term: Any, axes: set[Any], window: set[Any]) -> bool:
    """Whether windows lie side by side: an index moves with the point and with the window."""
    found = [variables(index) for load in loads(term) for index in load.indices]
    return any(used & axes and used & window for used in found)
