"""Contractions as outer products in registers: what the rules for them have in common.

A tile broadcasts elements of the data against vectors of weights and sums up over the whole
reduction in registers. Weights are packed so that vectors are contiguous: constants when they are
compiled, others, where it is needed, by a loop nest of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.columns import (
    Columns,
    Layout,
    PackColumns,
    find_columns,
    inner_places,
    is_constant,
    is_contiguous,
)
from tvm_rammer.backend.cpu.templates.finer import (
    VERY_LARGE_DEVICE,
    Option,
    finer_tilings,
)
from tvm_rammer.backend.cpu.templates.neighbours import Neighbours, find_neighbours
from tvm_rammer.backend.cpu.templates.nest import Nest
from tvm_rammer.backend.cpu.templates.pack_weights import pack
from tvm_rammer.backend.cpu.templates.register_tile import (
    RegisterTile,
    cycles_of_step,
    register_tile,
    tiles_in_registers,
)
from tvm_rammer.kernel.blocks import parameter_number, variables
from tvm_rammer.kernel.contraction import Axis, Contraction, find_contraction, load_of
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.kernel.nodes import buffer_bytes
from tvm_rammer.kernel.scheduled import Packing, Scheduled, Template
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import dtype_bytes

#: An axis with fewer elements makes poor rows if another has more.
_FEW_ROWS = 4
#: Rows of so many elements are worth prefetching.
_LONG_ROW = 64
#: Vectors of sums of a tile whose steps have time for a prefetch each: more than 16 registers hold.
_MANY_SUMS = 14
#: So many tasks share out evenly on any device, and so many for each vEU of a large one.
_FEW_TASKS, _TASKS_OF_A_VEU = 64, 8
#: So few vEUs share out the tiles of an image evenly as they are.
_FEW_VEUS = 2


@dataclass(frozen=True)
class Cut:
    """A configuration of an outer product.

    Attributes
    ----------
    tile : RegisterTile
    row_tasks : bool
        Whether each tile of rows is a task of its own, or all of them are one.
    rows_first : bool
        Whether a task is followed by the one with the next columns of the same rows, and not by the
        one with the next rows of the same columns.
    """

    tile: RegisterTile
    row_tasks: bool
    rows_first: bool

    def __str__(self) -> str:
        apart = ", rows apart" if self.row_tasks else ""
        return f"{self.tile}{apart}, {'rows' if self.rows_first else 'columns'} first"


@dataclass(frozen=True)
class OuterProduct:
    """A contraction as an outer product: what all of its configurations have in common.

    Attributes
    ----------
    contraction : Contraction
    columns : Columns
        The axis of the vectors.
    rows : Axis, optional
        The axis whose neighbours share the weights of a tile.
    taps : Axis, optional
        A reduced axis whose loop is unrolled.
    neighbours : Neighbours, optional
        The reduced axis of which a step takes several elements.
    constants : frozenset of int
        Parameters that may be packed.
    vdevice : VDevice
        Vector width and registers are taken from here.
    """

    contraction: Contraction
    columns: Columns
    rows: Axis | None
    taps: Axis | None
    neighbours: Neighbours | None
    constants: frozenset[int]
    vdevice: VDevice

    @classmethod
    def of(
        cls,
        contraction: Contraction,
        columns: Columns,
        constants: frozenset[int],
        vdevice: VDevice,
    ) -> OuterProduct:
        rows, taps = _rows(contraction, columns), _taps(contraction, columns)
        neighbours = find_neighbours(contraction, columns, constants, vdevice)
        return cls(contraction, columns, rows, taps, neighbours, constants, vdevice)

    def efficient(self) -> Cut | None:
        """The configuration that takes the fewest cycles in all, ``None`` if no tile fits.

        Few tasks leave vEUs idle: then tiles of rows are tasks. The sums of a single row are
        chains, so that tiles with fewer columns, which add in the same order, take no longer
        together.
        """
        tile = register_tile(*self._sizes())
        if tile is None:
            return None
        if self._sizes()[0] == 1:
            tile = self._chained(tile)
        few_tasks = max(_FEW_TASKS, _TASKS_OF_A_VEU * self.vdevice.num_veus)
        weights = self.columns.weights(self.contraction)
        together = Cut(tile, False, _rows_first(weights, self.vdevice))
        few = self._tasks(together).num_tasks < few_tasks
        return replace(together, row_tasks=self.rows is not None and few)

    def cuts(self) -> list[Cut]:
        """All configurations."""
        tiles = tiles_in_registers(*self._sizes(), self._steps())
        apart = (False,) if self.rows is None else (False, True)
        cuts = [Cut(*cut) for cut in product(tiles, apart, (False, True))]
        return [cut for cut in cuts if cut == self.listed(cut)]

    def listed(self, cut: Cut) -> Cut:
        """A configuration as :meth:`cuts` has it: where there is but one order, columns first."""
        return replace(cut, rows_first=cut.rows_first and self._tasks(cut).has_orders)

    def finer(self, cut: Cut) -> list[Cut]:
        """The configurations with more tasks that have the packed weights of another one.

        They add in the same order too: a plan's results must not depend on the number of vEUs.
        """
        layout = self._layout(cut.tile)
        tiles = [
            tile
            for tile in tiles_in_registers(*self._sizes(), self._steps())
            if (tile.lanes, tile.chains) == (cut.tile.lanes, cut.tile.chains)
            and tile.rows <= cut.tile.rows
            and self._layout(tile).as_packed() == layout.as_packed()
        ]
        row_tasks = {cut.row_tasks, self.rows is not None}
        count = self._tasks(cut).num_tasks
        cuts = [Cut(*each, cut.rows_first) for each in product(tiles, sorted(row_tasks))]
        return [each for each in cuts if self._tasks(each).num_tasks > count]

    def option(self, cut: Cut) -> Option[Cut]:
        """The tasks of a configuration, and the modelled cycles of each."""
        tile, (rows, _, _, itemsize, taps) = cut.tile, self._sizes()
        own_rows = min(tile.rows, rows) if cut.row_tasks else rows
        steps = prod(axis.extent for axis in self.contraction.reduced)
        steps //= self.neighbours.count if self.neighbours else 1
        step = cycles_of_step(tile, own_rows, self.vdevice, itemsize, taps, rows == 1)
        cycles = step * steps / max(1, taps)
        stores = own_rows * tile.vectors
        task = self.vdevice.speeds.cycles.task
        return Option(cut, self._tasks(cut).num_tasks, cycles + stores + task)

    def nest(self, cut: Cut) -> Nest:
        """The loop nest of a configuration, its weights as they are."""
        nest = self._tasks(cut)
        return replace(nest, far_data=_far_data(nest, self.vdevice))

    def _tasks(self, cut: Cut) -> Nest:
        """The nest as far as it says what its tasks are."""
        return Nest(
            self.contraction,
            self.columns,
            self._layout(cut.tile),
            self.rows,
            cut.tile,
            self.taps,
            cut.row_tasks,
            cut.rows_first,
            neighbours=self.neighbours,
        )

    def _chained(self, tile: RegisterTile) -> RegisterTile:
        """A tile with its sums in two chains where it may have them."""
        chained = replace(tile, chains=2)
        return chained if chained in tiles_in_registers(*self._sizes(), self._steps()) else tile

    def _layout(self, tile: RegisterTile) -> Layout:
        columns = self.columns
        return Layout(columns.axis.extent, columns.group, tile.vectors, tile.lanes)

    def _sizes(self) -> tuple[int, int, VDevice, int, int]:
        """What register tiles are chosen by."""
        rows = self.rows.extent if self.rows else 1
        itemsize = dtype_bytes(self.contraction.dtype)
        taps = self.taps.extent if self.taps else int(self.columns.elementwise)
        return rows, self.columns.group, self.vdevice, itemsize, taps

    def _steps(self) -> int:
        """Steps that chains of sums may share: of integers, LLVM makes them by itself."""
        chained = self.contraction.dtype.startswith("float") and not self.columns.elementwise
        together = self.neighbours.count if self.neighbours else 1
        return self.contraction.reduced[-1].extent // together if chained else 1


class OuterProductRule(Template[OuterProduct, Cut]):
    """A rule that schedules some contractions as outer products; each says which are its own."""

    @abstractmethod
    def takes(self, contraction: Contraction, columns: Columns) -> bool:
        """Whether a contraction, with its vectors along these columns, is the rule's own."""

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        """The efficient configuration and finer ones; parameters as for :meth:`.Rule.apply`."""
        found = self.match(func, constants, vdevice)
        return None if found is None else self._product(found)

    def match(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> OuterProduct | None:
        """As in :meth:`.Template.match`."""
        contraction = find_contraction(func)
        if contraction is None:
            return None
        columns = find_columns(contraction, constants)
        if columns is None or not self.takes(contraction, columns):
            return None
        return OuterProduct.of(contraction, columns, constants, vdevice)

    def space(self, found: OuterProduct) -> list[Cut]:
        """All register tiles and orders."""
        return found.cuts()

    def usual(self, found: OuterProduct) -> list[Cut]:
        """The efficient configuration and finer ones; nothing if no register tile fits."""
        efficient = found.efficient()
        if efficient is None:
            return []
        usual, count = found.option(efficient), found.vdevice.num_veus
        # Small tiles of an image read much of what other vEUs have written: a few gain nothing, nor
        # do many where each channel is for itself, as they compute little.
        little = found.columns.elementwise or count <= _FEW_VEUS
        cuts = [] if found.contraction.slides and little else found.finer(efficient)
        options = [found.option(cut) for cut in cuts]
        finer = finer_tilings(usual, options, count, VERY_LARGE_DEVICE)
        return [found.listed(cut) for cut in (efficient, *finer)]

    def emit(self, found: OuterProduct, configuration: Cut) -> Scheduled:
        """One register tile."""
        return _emit(found, [configuration], self.name)

    def rounding(self, configuration: Cut) -> tuple[int]:
        """Other chains of sums round in another order."""
        return (configuration.tile.chains,)

    def _product(self, found: OuterProduct) -> Scheduled | None:
        """All usual configurations together; ``None`` if there are none."""
        cuts = self.usual(found)
        return _emit(found, cuts, self.name) if cuts else None


def _emit(found: OuterProduct, cuts: Sequence[Cut], origin: str) -> Scheduled:
    """The variants of configurations with the same packed weights, each finer than the last."""
    nests = [found.nest(cut) for cut in cuts]
    if is_constant(found.contraction, found.columns, found.constants):
        return _packed_constant(nests, origin)
    if is_contiguous(found.columns.axis, found.columns.weights(found.contraction)):
        return _scheduled(nests, [nest.statement() for nest in nests], origin)
    return _packed_at_run_time(nests, origin)


def _far_data(nest: Nest, vdevice: VDevice) -> Axis | None:
    """The axis of the reduction where data are too large for the near caches, else ``None``.

    Prefetchers follow the long rows of a plain product only after a start of their own in each. But
    to bring a line takes a step with few sums half as long again (on Zen 3, of 6 x 2 vectors).
    """
    axes = [axis for axis in nest.reduction.axes if axis.extent > 1]
    if (
        nest.rows is None
        or nest.tile.rows * nest.tile.vectors < _MANY_SUMS
        or nest.columns.elementwise
        or nest.reduction.data.guards
        or len(axes) != 1
    ):
        return None
    data, (axis,) = load_of(nest.reduction.data.element), axes
    far = 2 * buffer_bytes(data.source) >= vdevice.l2_bytes and axis.extent >= _LONG_ROW
    return axis if far and is_contiguous(axis, data) else None


def _rows_first(weights: Any, vdevice: VDevice) -> bool:
    """Whether all columns of a row are computed before the next row.

    vEUs then write rows of their own. With columns first they write pieces of all rows, between
    those of others, and take lines that both write from each other all the time: on Zen 4 ten times
    as long as the store itself. But each row reads all weights, which must stay in a cache.
    """
    return buffer_bytes(load_of(weights).source) <= vdevice.l2_bytes // 2


def _rows(contraction: Contraction, columns: Columns) -> Axis | None:
    """The axis along which the weights are used again: the innermost one that is long enough."""
    used = variables(load_of(columns.weights(contraction)).indices)
    free = [a for a in contraction.spatial if a.var not in used and a.extent > 1]
    long = [axis for axis in free if axis.extent >= _FEW_ROWS]
    return long[-1] if long else max(free, key=lambda axis: axis.extent, default=None)


def _taps(contraction: Contraction, columns: Columns) -> Axis | None:
    """Where each column has data of its own, the reduced axis whose neighbours share them."""
    long = [axis for axis in contraction.reduced if axis.extent > 1]
    return long[-1] if columns.elementwise and long else None


def _packing(nest: Nest) -> tuple[PackColumns, tuple[tuple[Any, ...], tuple[Axis, ...]]]:
    """How the weights are packed: the indices before the vectors, and the axes after them."""
    contraction, column = nest.contraction, nest.columns.axis.var
    indices = load_of(nest.columns.weights(contraction)).indices
    place = {indices[k]: k for k in inner_places(contraction, nest.columns)}
    outer = [k for k in range(len(indices)) if k not in place.values()]
    reduced = tuple(axis for axis in nest.reduction.axes if axis.var in place)
    order = (*outer, place[column], *(place[axis.var] for axis in reduced))
    packing = PackColumns(order, len(outer), nest.layout.as_packed(), nest.together)
    return packing, (tuple(indices[k] for k in outer), reduced)


def _on_packed(nests: Sequence[Nest], dtype: str) -> tuple[list[Nest], PackColumns]:
    """The nests with a buffer for packed weights, which is the same for all."""
    packing, axes = _packing(nests[0])
    load = load_of(nests[0].columns.weights(nests[0].contraction))
    shape = packing.shape(tuple(int(extent) for extent in load.source.shape))
    packed = tirx.decl_buffer(shape, dtype, "packed")
    return [replace(nest, packed=packed, packed_axes=axes) for nest in nests], packing


def _packed_constant(nests: Sequence[Nest], origin: str) -> Scheduled:
    contraction = nests[0].contraction
    load = load_of(nests[0].columns.weights(contraction))
    position = parameter_number(contraction.func, load.source)
    assert position is not None
    nests, packing = _on_packed(nests, str(load.source.dtype))
    params = list(contraction.func.params)
    params[position] = nests[0].packed
    bodies = [nest.statement() for nest in nests]
    return _scheduled(nests, bodies, origin, params, ((position, packing),))


def _packed_at_run_time(nests: Sequence[Nest], origin: str) -> Scheduled:
    weights = nests[0].columns.weights(nests[0].contraction)
    nests, _ = _on_packed(nests, str(weights.ty))
    bodies = [
        sequence([tirx.AllocBuffer(nest.packed), pack(nest), nest.statement()]) for nest in nests
    ]
    return _scheduled(nests, bodies, origin)


def _scheduled(
    nests: Sequence[Nest],
    bodies: Sequence[Any],
    origin: str,
    params: Sequence[Any] | None = None,
    packings: tuple[tuple[int, Packing], ...] = (),
) -> Scheduled:
    func = nests[0].contraction.func
    variants = [
        (
            tirx.PrimFunc(list(params or func.params), body, func.ret_type, func.attrs),
            str(nest.tile),
        )
        for nest, body in zip(nests, bodies, strict=True)
    ]
    return Scheduled.of_variants(variants, origin, packings)
