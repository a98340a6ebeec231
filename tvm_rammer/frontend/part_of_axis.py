"""Parts of tensors that begin, or are as long, as only the run tells; for both importers."""

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
