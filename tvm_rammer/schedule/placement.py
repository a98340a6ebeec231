"""What a policy decides: which tiles run on which vEU, in which order (no waits, no addresses)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tvm_rammer.errors import PlanError


@dataclass(frozen=True)
class Placed:
    """The tiles ``start <= i < stop`` of an operator, run by its rKernel number ``candidate``."""

    operator: int
    candidate: int
    start: int
    stop: int
    wave: int


@dataclass(frozen=True)
class Placement:
    """The decision of a policy.

    Attributes
    ----------
    policy : str
        Who decided.
    veus : tuple of tuple of Placed
        For each vEU what it runs, in order.
    barrier : bool
        All vEUs wait for each other between two waves; otherwise a task waits only for the
        operators whose results it reads.
    """

    policy: str
    veus: tuple[tuple[Placed, ...], ...]
    barrier: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Trials look up placements of a million ranges again and again."""
        return hash((self.veus, self.barrier))

    def __post_init__(self) -> None:
        for number, veu in enumerate(self.veus):
            waves = [placed.wave for placed in veu]
            if self.barrier and waves != sorted(waves):
                raise PlanError(
                    f"vEU {number} goes back to an earlier wave in spite of barriers; "
                    "order its ranges by wave or place them without barriers"
                )


def split(tiles: int, parts: int) -> list[tuple[int, int]]:
    """``tiles`` as ``parts`` contiguous ranges whose lengths differ by at most one.

    The longer ones are spread evenly, so that ranges of operators with different numbers of tiles
    lie at the same places of their results.

    >>> split(7, 3)
    [(0, 2), (2, 4), (4, 7)]
    """
    return list(pairwise(part * tiles // parts for part in range(parts + 1)))
