"""Contractions as outer products in registers: what the rules for them have in common.

A tile broadcasts elements of the data against vectors of weights and sums up over the whole
reduction in registers. Weights are packed so that vectors are contiguous: constants when they are
compiled, others, where it is needed, by a loop nest of its own.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.columns import (
    Columns,
    Layout,
    PackColumns,
    is_constant,
    is_contiguous,
    parameter_of,
)
from tvm_rammer.backend.cpu.templates.nest import Nest
from tvm_rammer.backend.cpu.templates.pack_weights import pack
from tvm_rammer.backend.cpu.templates.register_tile import register_tile
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.contraction import Axis, Contraction, load_of
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import dtype_bytes

#: An axis with fewer elements makes poor rows if another has more.
_FEW_ROWS = 4
#: Rows of so many elements are worth prefetching.
_LONG_ROW = 64
#: So many tasks share out evenly on any device, and so many for each vEU of a large one.
_FEW_TASKS, _TASKS_OF_A_VEU = 64, 8


def outer_product(
    contraction: Contraction,
    columns: Columns,
    constants: frozenset[int],
    vdevice: VDevice,
    origin: str,
) -> Scheduled | None:
    """Schedule a contraction as an outer product, ``None`` if no register tile fits.

    Parameters
    ----------
    contraction : Contraction
    columns : Columns
        The axis of the vectors.
    constants : frozenset of int
        Parameters that may be packed when they are compiled.
    vdevice : VDevice
        Vector width and registers are taken from here.
    origin : str
        Name of the rule.
    """
    rows = _rows(contraction, columns)
    itemsize = dtype_bytes(contraction.dtype)
    taps = _taps(contraction, columns)
    num_taps = taps.extent if taps else int(columns.elementwise)
    tile = register_tile(rows.extent if rows else 1, columns.group, vdevice, itemsize, num_taps)
    if tile is None:
        return None
    layout = Layout(columns.axis.extent, columns.group, tile.vectors, tile.lanes)
    few_tasks = max(_FEW_TASKS, _TASKS_OF_A_VEU * vdevice.num_veus)
    weights = columns.weights(contraction)
    rows_first = _rows_first(contraction, weights, vdevice)
    nest = Nest(contraction, columns, layout, rows, tile, taps, few_tasks, rows_first)
    nest = replace(nest, far_data=_far_data(nest, vdevice))
    if is_constant(contraction, columns, constants):
        return _packed_constant(nest, origin)
    if is_contiguous(columns.axis, weights):
        return _scheduled(nest, nest.statement(), origin)
    return _packed_at_run_time(nest, origin)


def _far_data(nest: Nest, vdevice: VDevice) -> Axis | None:
    """The axis of the reduction where data are too large for the near caches, else ``None``.

    Prefetchers follow the long rows of a plain product only after a start of their own in each.
    """
    axes = [axis for axis in nest.reduction.axes if axis.extent > 1]
    if (
        nest.rows is None
        or nest.columns.elementwise
        or nest.reduction.data.guards
        or len(axes) != 1
    ):
        return None
    data, (axis,) = load_of(nest.reduction.data.element), axes
    nbytes = prod(map(int, data.source.shape)) * dtype_bytes(str(data.source.dtype))
    far = 2 * nbytes >= vdevice.l2_bytes and axis.extent >= _LONG_ROW
    return axis if far and is_contiguous(axis, data) else None


def _rows_first(contraction: Contraction, weights: Any, vdevice: VDevice) -> bool:
    """Whether all columns of a row are computed before the next row.

    vEUs then write rows of their own. With columns first they write pieces of all rows, between
    those of others, and take lines that both write from each other all the time: on Zen 4 ten times
    as long as the store itself. But each row reads all weights, which must stay in a cache.
    """
    source = load_of(weights).source
    nbytes = prod(int(extent) for extent in source.shape) * dtype_bytes(str(source.dtype))
    return nbytes <= vdevice.l2_bytes // 2


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


def _packing(nest: Nest) -> tuple[PackColumns, tuple[tuple[Axis, ...], tuple[Axis, ...]]]:
    """How the weights are packed, and which axes come before and after the vectors."""
    weights = load_of(nest.columns.weights(nest.contraction))
    place = {index: number for number, index in enumerate(weights.indices)}
    contraction, column = nest.contraction, nest.columns.axis
    outer = tuple(
        axis
        for axis in contraction.spatial
        if axis.var in place and not axis.var.same_as(column.var)
    )
    reduced = tuple(axis for axis in nest.reduction.axes if axis.var in place)
    order = tuple(place[axis.var] for axis in (*outer, column, *reduced))
    return PackColumns(order, len(outer), nest.layout), (outer, reduced)


def _packed_constant(nest: Nest, origin: str) -> Scheduled:
    packing, axes = _packing(nest)
    contraction = nest.contraction
    load = load_of(nest.columns.weights(contraction))
    position = parameter_of(contraction, load)
    assert position is not None
    shape = packing.shape(tuple(int(extent) for extent in load.source.shape))
    packed = tirx.decl_buffer(shape, str(load.source.dtype), "packed")
    nest = replace(nest, packed=packed, packed_axes=axes)
    params = list(contraction.func.params)
    params[position] = packed
    return _scheduled(nest, nest.statement(), origin, params, ((position, packing),))


def _packed_at_run_time(nest: Nest, origin: str) -> Scheduled:
    packing, axes = _packing(nest)
    weights = nest.columns.weights(nest.contraction)
    load = load_of(weights)
    shape = packing.shape(tuple(int(extent) for extent in load.source.shape))
    packed = tirx.decl_buffer(shape, str(weights.ty), "packed")
    nest = replace(nest, packed=packed, packed_axes=axes)
    body = sequence([tirx.AllocBuffer(packed), pack(nest), nest.statement()])
    return _scheduled(nest, body, origin)


def _scheduled(
    nest: Nest, body: Any, origin: str, params: Any = None, packings: Any = ()
) -> Scheduled:
    func = nest.contraction.func
    made = tirx.PrimFunc(params or list(func.params), body, func.ret_type, func.attrs)
    return Scheduled(made, origin, str(nest.tile), packings)
