"""Element-wise operators and data movement: one loop nest per result, inlined as far as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from tvm_rammer.backend.cpu.templates.finer import VERY_LARGE_DEVICE, Option, finer_tilings
from tvm_rammer.backend.cpu.templates.pieces import interleaves
from tvm_rammer.backend.cpu.templates.tiled_nest import (
    TILE_ACCESSES,
    CutBlock,
    TiledNest,
    tiled_nest,
    with_nests,
)
from tvm_rammer.kernel.blocks import distinct, loads, sole_block
from tvm_rammer.kernel.contraction import Axis
from tvm_rammer.kernel.inlined_size import kept_results
from tvm_rammer.kernel.nodes import collect, substitute
from tvm_rammer.kernel.pointwise import (
    FlatViews,
    Pointwise,
    coefficients,
    merged,
    pointwise_store,
    simplified,
    with_last_axis_cut,
)
from tvm_rammer.kernel.scheduled import Scheduled, Template
from tvm_rammer.kernel.split import root_nests
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import dtype_bytes

#: Elements of a shorter step share their lines with their neighbours.
_FAR = 8


@dataclass(frozen=True)
class PointTiles:
    """A configuration: the loads and stores that a tile aims at."""

    accesses: int

    def __str__(self) -> str:
        return f"tiles of {self.accesses} loads and stores"


#: The usual one first.
_SIZES = tuple(PointTiles(TILE_ACCESSES * 4 // part) for part in (4, 1, 2, 8, 16, 32))


@dataclass(frozen=True)
class PointwiseFunction:
    """A PrimFunc of results that are computed point by point, on a device.

    Buffers that are ``kept`` are between the results.
    """

    func: tirx.PrimFunc
    views: FlatViews
    results: tuple[CutBlock, ...]
    kept: tuple[tirx.Var, ...]
    vdevice: VDevice

    @property
    def targets(self) -> list[tirx.Var]:
        """The flat buffer of every result."""
        return [result.block.target for result in self.results]

    def nests(self, tiles: PointTiles) -> list[TiledNest]:
        """The nest of every result."""
        return [tiled_nest(result, tiles.accesses) for result in self.results]

    def option(self, tiles: PointTiles) -> Option[PointTiles]:
        """The tiles of the result that takes longest."""
        timed = [
            (nest.num_tiles, nest.tile_cycles(self.vdevice, dtype_bytes(str(target.dtype))))
            for nest, target in zip(self.nests(tiles), self.targets, strict=True)
        ]
        return Option(tiles, *max(timed, key=prod))


@dataclass(frozen=True)
class Elementwise(Template[PointwiseFunction, PointTiles]):
    """Schedules PrimFuncs of which every point is computed by itself."""

    name: str = "elementwise"

    def match(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> PointwiseFunction | None:
        """As in :meth:`.Template.match`."""
        own = s_tir.renew_defs(func).with_attr("global_symbol", "main")
        results = stored_results(own)
        if not results:
            return None
        params = list(own.params)
        kept = [result.store.buffer for result in results if result.store.buffer not in params]
        views = FlatViews([*params, *kept])
        points = [pointwise_store(result.axes, result.store, views) for result in results]
        blocks = [without_remainders(point) for point in points if point is not None]
        if len(blocks) < len(points):
            return None
        cut = (CutBlock.of(block, vdevice, walked_inside(block, vdevice)) for block in blocks)
        return PointwiseFunction(own, views, tuple(cut), tuple(kept), vdevice)

    def space(self, found: PointwiseFunction) -> list[PointTiles]:
        """Sizes of tiles, each of which makes another number of them."""
        sizes = {found.option(size).num_tiles: size for size in reversed(_SIZES)}
        return [size for size in _SIZES if size in sizes.values()]

    def usual(self, found: PointwiseFunction) -> list[PointTiles]:
        """Some hundred nanoseconds, and smaller tiles for devices that these leave idle."""
        usual, *others = map(found.option, _SIZES)
        count = found.vdevice.num_veus
        return [usual.tiling, *finer_tilings(usual, others, count, VERY_LARGE_DEVICE)]

    def emit(self, found: PointwiseFunction, configuration: PointTiles) -> Scheduled:
        """One size of tiles."""
        nests = found.nests(configuration)
        return with_nests(found.func, found.views, nests, self.name, found.kept)

    def rounding(self, configuration: PointTiles) -> tuple[()]:
        """Tiles have no part in what a point is."""
        return ()


@dataclass(frozen=True)
class StoredResult:
    """What is stored at every point of axes."""

    axes: tuple[Axis, ...]
    store: tirx.BufferStore


def stored_results(func: tirx.PrimFunc) -> list[StoredResult] | None:
    """What a PrimFunc stores once its blocks are inlined, ``None`` if it is not so simple.

    Besides the parameters that is only what would make expressions too large if it were inlined.
    """
    stored = {*distinct(func.params), *kept_results(func)}
    found: list[StoredResult] = []
    inlined: dict[Any, tuple[list[Any], Any]] = {}
    # An inlined value is computed where it is read: what it reads must still be there.
    read_later: set[Any] = set()

    def load(node: Any) -> Any:
        if node.source not in inlined:
            return node
        places, value = inlined[node.source]
        pairs = zip(places, node.indices, strict=True)
        return substitute(value, {place: at.astype(str(place.ty)) for place, at in pairs})

    for nest in root_nests(func.body):
        block = sole_block(nest)
        if block is None or any(int(axis.iter_type) for axis in block.iter_vars):
            return None
        if not isinstance(block.body, tirx.BufferStore) or block.body.buffer in inlined:
            return None
        store = tvm_ffi.structural_map(block.body, (TensorLoad, load))
        axes = tuple(Axis(axis.var, int(axis.dom.extent)) for axis in block.iter_vars)
        if store.buffer in read_later:
            return None
        if store.buffer in stored:
            found.append(StoredResult(axes, store))
        elif _is_defined_by(store, axes):
            single = {axis.var: tirx.const(0, axis.dtype) for axis in axes if axis.extent == 1}
            loose = {v: zero for v, zero in single.items() if v not in list(store.indices)}
            inlined[store.buffer] = list(store.indices), substitute(store.value, loose)
            read_later.update(node.source for node in loads(store.value))
        else:
            return None
    return found


def _is_defined_by(store: Any, axes: Sequence[Axis]) -> bool:
    """Whether a store gives a buffer its values, each index being an axis of its own."""
    indices = list(store.indices)
    return (
        all(isinstance(index, tirx.Var) for index in indices)
        and len(distinct(indices)) == len(indices)
        and len({str(index.ty) for index in indices}) <= 1
        and all(axis.extent == 1 or axis.var in indices for axis in axes)
        and store.buffer not in [node.source for node in loads(store.value)]
    )


def without_remainders(block: Pointwise) -> Pointwise:
    """The last axis as two where indices divide it: the shuffle of channels is a transposition.

    All axes that can be are merged.
    """
    block = merged(block)
    if not block.axes:
        return block
    last = block.axes[-1]
    remainders = collect(block.value, tirx.FloorMod)
    lengths = {int(node.b) for node in remainders if node.a.same_as(last.var)}
    if len(lengths) != 1 or last.extent % min(lengths):
        return block
    return merged(simplified(with_last_axis_cut(block, min(lengths), len(block.axes) - 1)))


def walked_inside(block: Pointwise, vdevice: VDevice) -> Axis | None:
    """The axis to be walked inside of the vectors of the last one, if the block is a transposition
    of an axis of several vectors.

    Along the last axis a transposition reads from as many lines as the axis is long, one element
    each. A nest that walks the axis that is contiguous on the other side inside of every vector of
    the last one reads all elements of few lines before these are gone: both sides use whole lines.
    """
    if not block.axes or interleaves(block):
        return None
    near = {_near_axis(block, load) for load in loads(block.value)}
    places = [place for place in near if place is not None]
    lanes = vdevice.vector_bytes // dtype_bytes(str(block.target.dtype))
    # A tile has two vectors, as the last one overlaps.
    if len(places) != 1 or block.axes[-1].extent < 2 * lanes or lanes < 2:
        return None
    return block.axes[places[0]]


def _near_axis(block: Pointwise, load: Any) -> int | None:
    """Along which other axis a load is contiguous that is far apart along the last one."""
    steps = coefficients(load.indices[0], [axis.var for axis in block.axes])
    if not steps or abs(steps[-1]) < _FAR:
        return None
    return steps.index(1) if 1 in steps else None
