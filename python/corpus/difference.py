"""How far the outputs of a model are from the reference's, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Error of an output, as norm of the difference over norm of the reference.
RELATIVE = 1e-3
#: Or the largest difference of an element, over the largest magnitude in the reference.
OF_SCALE = 1e-4


@dataclass(frozen=True)
class Difference:
    """The differences of the output that is furthest away.

    Attributes
    ----------
    absolute : float
        Largest difference of an element.
    relative : float
        Norm of the difference over the norm of the reference.
    of_scale : float
        Largest difference of an element over the largest magnitude in the reference.
    """

    absolute: float
    relative: float
    of_scale: float

    @property
    def agrees(self) -> bool:
        """Whether it is what arithmetic in another order may give."""
        return self.relative <= RELATIVE or self.of_scale <= OF_SCALE


def compare(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> tuple[Difference | None, str]:
    """The worst difference, and why they cannot be compared or do not agree ("" if they do).

    Values that are not finite must be the same in both.
    """
    if len(got) != len(want):
        return None, f"{len(got)} outputs instead of {len(want)}"
    found: list[Difference] = []
    for number, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        if mine.shape != theirs.shape:
            return None, f"output {number} has shape {mine.shape} instead of {theirs.shape}"
        if mine.dtype != theirs.dtype:
            return None, f"output {number} is {mine.dtype} instead of {theirs.dtype}"
        found.append(_difference(mine, theirs))
    if not found:
        return None, "the model has no outputs"
    worst = max(range(len(found)), key=lambda i: (not found[i].agrees, found[i].relative))
    difference = found[worst]
    reason = "" if difference.agrees else _reason(worst, difference, got[worst], want[worst])
    return difference, reason


def _difference(got: np.ndarray, want: np.ndarray) -> Difference:
    mine, theirs = (value.astype(np.float64).ravel() for value in (got, want))
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    finite = np.isfinite(mine) & np.isfinite(theirs)
    if not np.all(same | finite):
        return Difference(np.inf, np.inf, np.inf)
    delta = np.where(same, 0.0, np.where(finite, mine, 0) - np.where(finite, theirs, 0))
    largest = float(np.abs(delta).max(initial=0))
    if not largest:
        return Difference(0.0, 0.0, 0.0)
    known = theirs[finite]
    norm, scale = float(np.linalg.norm(known)), float(np.abs(known).max())
    return Difference(
        largest,
        float(np.linalg.norm(delta)) / norm if norm else np.inf,
        largest / scale if scale else np.inf,
    )


def _reason(number: int, difference: Difference, got: np.ndarray, want: np.ndarray) -> str:
    if not np.isfinite(difference.relative) and not np.isfinite(difference.absolute):
        return (
            f"output {number}: the values that are not finite differ ({_odd(got)} here, "
            f"{_odd(want)} in the reference)"
        )
    return (
        f"output {number} is off by {difference.absolute:.2g}, {difference.of_scale:.2g} of its "
        f"scale, {difference.relative:.2g} relative"
    )


def _odd(value: np.ndarray) -> int:
    return int(np.count_nonzero(~np.isfinite(value.astype(np.float64))))
