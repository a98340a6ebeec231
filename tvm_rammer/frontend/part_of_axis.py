"""Part of a tensor that begins, or is as long, as only the run tells; for both importers."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx


def part(x: te.Tensor, axis: int, start: Any, count: Any, step: int = 1) -> te.Tensor:
    """``count`` elements of an axis, every ``step``-th from one on, which must be there."""
    sizes = [count if k == axis else size for k, size in enumerate(x.shape)]

    def element(*places: tirx.Var) -> Any:
        return x(*(start + p * step if k == axis else p for k, p in enumerate(places)))

    return te.compute(sizes, element, "part")
