"""Parts of tensors, and what is around them, as only the run tells; for both importers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx


def part(x: te.Tensor, axis: int, start: Any, count: Any, step: int = 1) -> te.Tensor:
    """``count`` elements of an axis, every ``step``-th from one on, which must be there."""
    return part_of_axes(x, [axis], [start], [count], [step])


def part_of_axes(
    x: te.Tensor,
    axes: Sequence[int],
    starts: Sequence[Any],
    counts: Sequence[Any],
    steps: Sequence[int],
) -> te.Tensor:
    """The same of several axes."""
    sizes = list(x.shape)
    for axis, count in zip(axes, counts, strict=True):
        sizes[axis] = count

    def element(*places: tirx.Var) -> Any:
        moved = list(places)
        for axis, start, step in zip(axes, starts, steps, strict=True):
            moved[axis] = start + places[axis] * step
        return x(*moved)

    return te.compute(sizes, element, "part")


def surrounded(
    data: te.Tensor, before: Sequence[Any], after: Sequence[Any], number: Any
) -> te.Tensor:
    """With so many places of a number before and behind each axis; fewer than none are cut off."""
    sizes = [sum(each) for each in zip(before, data.shape, after, strict=True)]

    def element(*places: tirx.Var) -> Any:
        own = [place - first for place, first in zip(places, before, strict=True)]
        inside = (
            tirx.all(place >= 0, place < size) for place, size in zip(own, data.shape, strict=True)
        )
        other = tirx.const(number, str(data.dtype))
        return tirx.if_then_else(tirx.all(*inside), data(*own), other)

    return te.compute(sizes, element, "padded")
