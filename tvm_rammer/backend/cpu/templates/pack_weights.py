"""The loop that packs weights when a kernel runs: those that are no constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from tvm_rammer.backend.cpu.templates.nest import Nest
from tvm_rammer.kernel.contraction import Axis
from tvm_rammer.kernel.loops import for_each, parallel, unravel
from tvm_rammer.kernel.nodes import substitute

#: Columns that are packed at once: of more, whose distance is a power of two, the first-level cache
#: would hold only some, as it has few places for addresses that are alike.
_PACKED_AT_ONCE = 8


def pack(nest: Nest) -> Any:
    """The parallel loop that packs the weights when the kernel runs."""
    layout = nest.layout
    outer, reduced = nest.packed_axes
    per_group = layout.tiles * layout.vectors
    lanes = min(layout.lanes, _PACKED_AT_ONCE)
    extents = {axis.var: axis.extent for axis in nest.contraction.spatial}
    counts = [*(extents[index] for index in outer), layout.total]

    def task(number: Any) -> Any:
        *places, vector = unravel(number, counts)
        values = dict(zip(outer, places, strict=True))
        first = vector // per_group * layout.group + layout.first(vector % per_group)

        def element(part: Any, axes: Sequence[Axis], values: Mapping[Any, Any]) -> Any:
            if axes:
                axis, *rest = axes
                return for_each(
                    str(axis.var.name),
                    axis.extent,
                    lambda number: element(part, rest, {**values, axis.var: number}),
                )
            return for_each(
                "lane", lanes, lambda lane: store(part * lanes + lane, values), ForKind.VECTORIZED
            )

        def store(lane: Any, values: Mapping[Any, Any]) -> Any:
            value = substitute(
                nest.columns.weights(nest.contraction),
                {**values, nest.columns.axis.var: first + lane},
            )
            indices = [*places, vector, *(values[axis.var] for axis in reduced), lane]
            return tirx.BufferStore(nest.packed, value, indices)

        return for_each("part", layout.lanes // lanes, lambda part: element(part, reduced, values))

    return parallel("vector", prod(counts), task)
