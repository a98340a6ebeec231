"""What a plan costs besides the tiles themselves: synchronising and launching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tvm_rammer.rprogram.program import RKernel


class Device(Protocol):
    """What a policy has to know of a vDevice."""

    @property
    def num_veus(self) -> int: ...
    @property
    def point_to_point_seconds(self) -> float: ...
    @property
    def barrier_seconds(self) -> float: ...
    @property
    def launch_seconds(self) -> float: ...
    @property
    def l2_bytes(self) -> int: ...


@dataclass(frozen=True)
class CostModel:
    """Seconds that a device takes for everything but computing.

    Attributes
    ----------
    point_to_point : float
        From the end of an rTask to the start of one that waits for it on another vEU.
    barrier : float
        All vEUs wait for each other.
    launch : float
        From the call of the program to the start of its first rTask.
    bandwidth : float
        Bytes per second that all vEUs together draw from what they share: the last-level cache or,
        if it is too small for the network, memory. The default is what the last-level cache of one
        AMD Zen 4 core complex (8 cores) delivers at four times a core's own 98 GB/s.
    """

    point_to_point: float
    barrier: float
    launch: float
    bandwidth: float = 400e9

    @classmethod
    def of(cls, vdevice: Device) -> CostModel:
        """The costs that ``vdevice`` states."""
        return cls(
            point_to_point=vdevice.point_to_point_seconds,
            barrier=vdevice.barrier_seconds,
            launch=vdevice.launch_seconds,
        )

    def operator_time(self, kernel: RKernel, veus: int) -> float:
        """Seconds that an operator takes on ``veus`` vEUs that it has for itself."""
        computing = -(-kernel.num_tiles // veus) * kernel.tile_time
        return computing + (self.barrier if veus > 1 else 0.0)

    def best_width(self, kernel: RKernel, veus: int) -> int:
        """How many of ``veus`` vEUs end the operator soonest (the fewest of those that do).

        Either one vEU, which pays no barrier, or as many as make the longest range shortest: the
        barrier costs the same for every count between.
        """
        shortest = -(-kernel.num_tiles // veus)
        width = -(-kernel.num_tiles // shortest) if shortest else 1
        return min((1, width), key=lambda k: self.operator_time(kernel, k))
