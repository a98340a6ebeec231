"""Which finer tilings are worth compiling beside the most efficient one.

Large tiles are efficient, but few: where there are fewer than vEUs, or a few more, vEUs wait. Small
tiles take longer together and share out evenly. Which is better depends on what runs beside, and so
policies choose. They get finer tilings where these may pay on the device that the kernels are made
for, or on a larger one that they may be planned for later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

#: Devices of so many vEUs are provided for, whatever the kernels are made for.
LARGE_DEVICE, VERY_LARGE_DEVICE = 16, 64
#: A tiling must cut the costs on one of the devices to this part of them.
_WORTHWHILE = 0.9

T = TypeVar("T")


@dataclass(frozen=True)
class Option(Generic[T]):
    """A tiling with the number of its tiles and what one of them takes, in any unit."""

    tiling: T
    num_tiles: int
    tile_time: float

    def cost(self, num_veus: int) -> float:
        """What all tiles take on a device: the mean of running alone and of sharing it evenly."""
        alone = -(-self.num_tiles // num_veus)
        return self.tile_time * (alone + self.num_tiles / num_veus) / 2


def finer_tilings(
    efficient: Option[T],
    options: Sequence[Option[T]],
    num_veus: int,
    largest: int = LARGE_DEVICE,
) -> list[T]:
    """The tilings to compile besides the most efficient one, those with fewer tiles first.

    Parameters
    ----------
    efficient : Option
    options : sequence of Option
        Tilings with more tiles, times in the same unit.
    num_veus : int
        Of the device that the kernels are made for.
    largest : int
        vEUs of the largest device to provide for, where the kernels are made for none larger.
    """
    large = (LARGE_DEVICE, VERY_LARGE_DEVICE)
    sizes = {num_veus, *(size for size in large if num_veus < size <= largest)}

    chosen = [efficient]
    for size in sorted(sizes):
        known = min(option.cost(size) for option in chosen)
        best = min(options, key=lambda option: option.cost(size), default=efficient)
        if best.cost(size) < _WORTHWHILE * known:
            chosen.append(best)
    return [option.tiling for option in sorted(chosen[1:], key=lambda option: option.num_tiles)]
