"""Tensors of which a part is replaced: what stays is copied, unless it is there already.

A condition says which places of some axes are replaced. It is asked once for each of them, and not
for every element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import s_tir, tirx

from tvm_rammer.backend.cpu.templates.elementwise_rule import stored_results
from tvm_rammer.backend.cpu.templates.tiled_nest import TiledNest, with_nests
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.contraction import Axis
from tvm_rammer.kernel.loops import loop, parallel, sequence
from tvm_rammer.kernel.nodes import substitute
from tvm_rammer.kernel.pointwise import FlatViews, Pointwise, coefficients, pointwise_store
from tvm_rammer.kernel.replacement import REPLACED, UNLESS_SAME
from tvm_rammer.kernel.scheduled import Scheduled, Template
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import dtype_bytes

#: Bytes that a tile aims at where all of them are copied.
_TILE_BYTES = 1 << 17


@dataclass(frozen=True)
class SharesOfFirstAxis:
    """A configuration: how many tiles share the outermost axis."""

    count: int

    def __str__(self) -> str:
        return f"{self.count} tiles"


@dataclass(frozen=True)
class PartlyReplaced:
    """``target[index] = condition ? value : kept[index]``, the condition the same along some axes.

    ``position`` is that of the parameter which is kept.
    """

    func: tirx.PrimFunc
    views: FlatViews
    block: Pointwise
    position: int

    @property
    def shares(self) -> list[int]:
        """How many tiles there may be, ascending."""
        extent = self.block.axes[0].extent
        return [count for count in range(1, extent + 1) if extent % count == 0]

    @property
    def nbytes(self) -> int:
        """Of the whole tensor."""
        points = prod(axis.extent for axis in self.block.axes)
        return points * dtype_bytes(str(self.block.target.dtype))


@dataclass(frozen=True)
class Replacement(Template[PartlyReplaced, SharesOfFirstAxis]):
    """Schedules what regions mark as replacements."""

    name: str = "replacement"

    def match(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> PartlyReplaced | None:
        """As in :meth:`.Template.match`."""
        if not func.attrs or REPLACED not in func.attrs:
            return None
        own = s_tir.renew_defs(func).with_attr("global_symbol", "main")
        results = stored_results(own)
        if not results or len(results) > 1:
            return None
        views = FlatViews(list(own.params))
        point = pointwise_store(results[0].axes, results[0].store, views)
        if point is None or not isinstance(point.value, tirx.Select) or not _is_compact(point):
            return None
        found = PartlyReplaced(own, views, point, int(func.attrs[REPLACED]))
        return found if len(_asked(point)) < len(point.axes) else None

    def space(self, found: PartlyReplaced) -> Sequence[SharesOfFirstAxis]:
        """All numbers of equal tiles; the usual one first."""
        wished = found.nbytes / _TILE_BYTES
        usual = min(found.shares, key=lambda count: abs(count - wished))
        others = [count for count in found.shares if count != usual]
        return [SharesOfFirstAxis(count) for count in (usual, *others)]

    def emit(self, found: PartlyReplaced, configuration: SharesOfFirstAxis) -> Scheduled:
        """So many tiles."""
        count = configuration.count
        nest = TiledNest(lambda: _nest(found, count), str(configuration), count)
        made = with_nests(found.func, found.views, [nest], self.name)
        return replace(made, in_place=(found.position, len(found.func.params) - 1))

    def rounding(self, configuration: SharesOfFirstAxis) -> tuple[()]:
        """Tiles have no part in what a point is."""
        return ()


def _asked(point: Pointwise) -> list[Axis]:
    """The axes that the condition depends on."""
    used = variables(point.value.condition)
    return [axis for axis in point.axes if axis.var in used]


def _is_compact(point: Pointwise) -> bool:
    """Whether the axes are there, and in the order of the target's memory without gaps."""
    steps = coefficients(point.index, [axis.var for axis in point.axes])
    extents = [axis.extent for axis in point.axes]
    return bool(extents) and steps == [prod(extents[k + 1 :]) for k in range(len(extents))]


def _nest(found: PartlyReplaced, count: int) -> Any:
    """The loop over tiles, each of which copies its share and then replaces what is in it."""
    point = found.block
    first = point.axes[0]
    kept = found.views.of(found.func.params[found.position])
    share = prod(axis.extent for axis in point.axes) // count

    def copied(start: Any) -> Any:
        def one(place: Any) -> Any:
            return tirx.BufferStore(point.target, kept[start + place], [start + place])

        return loop("place", share, one, marks={UNLESS_SAME: 1})

    def tile(number: Any) -> Any:
        own = Axis(tirx.Var(first.var.name, first.dtype), first.extent // count)
        at = number * own.extent + own.var
        return sequence([copied(number * share), _replaced(point, own, at)])

    return parallel("tile", count, tile)


def _replaced(point: Pointwise, own: Axis, at: Any) -> Any:
    """The stores of a tile's replaced elements; it has its ``own`` part of the first axis."""
    first, *others = point.axes
    index, chosen = (substitute(each, {first.var: at}) for each in (point.index, point.value))
    asked = variables(chosen.condition)
    axes = [own, *others]
    statement: Any = tirx.BufferStore(point.target, chosen.true_value, [index])
    for axis in reversed([axis for axis in axes if axis.var not in asked]):
        statement = _for(axis, statement)
    statement = tirx.IfThenElse(chosen.condition, statement, None)
    for axis in reversed([axis for axis in axes if axis.var in asked]):
        statement = _for(axis, statement)
    return statement


def _for(axis: Axis, body: Any) -> Any:
    bounds = (tirx.const(0, axis.dtype), tirx.const(axis.extent, axis.dtype))
    return tirx.For(axis.var, *bounds, tirx.ForKind.SERIAL, body)
