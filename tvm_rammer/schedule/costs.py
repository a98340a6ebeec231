"""What a plan costs besides the tiles themselves: synchronising and launching."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nextafter
from typing import Literal, Protocol

import numpy as np

from tvm_rammer.errors import InputError
from tvm_rammer.machine.speeds import DEFAULT_SPEEDS, Speeds
from tvm_rammer.machine.topology import Distance, PairCosts, Topology
from tvm_rammer.machine.vdevice import DEFAULT_MEMORY, MemoryCosts
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
    @property
    def l3_bytes(self) -> int: ...
    @property
    def memory(self) -> MemoryCosts: ...
    @property
    def speeds(self) -> Speeds: ...
    @property
    def topology(self) -> Topology | None: ...


_FROM_ZERO = (
    *("point_to_point", "barrier", "launch", "far_byte", "transfer", "transfer_byte"),
    *("wait", "row"),
)
_ABOVE_ZERO = ("bandwidth", "memory_bandwidth", "core_memory_bandwidth", "l2_bytes", "l3_bytes")


@dataclass(frozen=True)
class CostModel:
    """Seconds that a device takes for everything but computing.

    Attributes
    ----------
    point_to_point : float
        From the end of an rTask to the start of one that waits for it on another vEU of the same
        core complex.
    barrier : float
        All vEUs wait for each other.
    launch : float
        From the call of the program to the start of its first rTask.
    bandwidth, memory_bandwidth : float
        Bytes per second that all vEUs of a complex draw from its last-level cache, and all of a
        socket from its memory.
    far_byte : float
        Seconds that a byte takes longer from the last-level cache than from a vEU's own.
    l2_bytes, l3_bytes : int
        Size of a vEU's own cache, and of the one that all of a complex share.
    transfer, transfer_byte : float
        Seconds until the first bytes arrive that lie in the own cache of another vEU of the
        complex, and what each of them takes longer than one of the last-level cache.
    core_memory_bandwidth : float
        Bytes per second that one vEU draws from memory.
    missing : tuple of (int, float)
        As in :class:`~tvm_rammer.machine.vdevice.MemoryCosts`.
    topology : Topology or None
        Where vEUs lie, and what is farther than a complex; None where all are of one complex.
    wait : float
        Seconds that all vEUs together are held up by one wait of one rTask, where many vEUs wait
        for many; nothing where they are few.
    row : float
        Seconds of every rTask beside its tiles; nothing where tiles were measured as rTasks.
    """

    point_to_point: float
    barrier: float
    launch: float
    bandwidth: float = DEFAULT_SPEEDS.shared_bandwidth
    memory_bandwidth: float = DEFAULT_MEMORY.bandwidth
    far_byte: float = DEFAULT_SPEEDS.far_byte
    l2_bytes: int = 1 << 20
    l3_bytes: int = 32 << 20
    transfer: float = 0.0
    transfer_byte: float = 0.0
    core_memory_bandwidth: float = DEFAULT_MEMORY.core_bandwidth
    missing: tuple[tuple[int, float], ...] = ()
    topology: Topology | None = None
    wait: float = 0.0
    row: float = 0.0

    def __post_init__(self) -> None:
        for name in _FROM_ZERO:
            _check(name, getattr(self, name), "from 0")
        for name in _ABOVE_ZERO:
            _check(name, getattr(self, name), "above 0")
        for distance, pair in self.topology.far().items() if self.topology is not None else ():
            for name, value in vars(pair).items():
                _check(f"topology.{distance}.{name}", value, "from 0")

    @classmethod
    def of(cls, vdevice: Device) -> CostModel:
        """The costs that ``vdevice`` states."""
        return cls(
            point_to_point=vdevice.point_to_point_seconds,
            barrier=vdevice.barrier_seconds,
            launch=vdevice.launch_seconds,
            bandwidth=vdevice.speeds.shared_bandwidth,
            far_byte=vdevice.speeds.far_byte,
            l2_bytes=vdevice.l2_bytes,
            l3_bytes=vdevice.l3_bytes,
            transfer=vdevice.memory.transfer,
            transfer_byte=vdevice.memory.transfer_byte,
            memory_bandwidth=vdevice.memory.bandwidth,
            core_memory_bandwidth=vdevice.memory.core_bandwidth,
            missing=vdevice.memory.missing,
            topology=vdevice.topology,
        )

    def pairs(self) -> dict[Distance, PairCosts]:
        """What two vEUs cost each other, by how far they are."""
        near = PairCosts(self.point_to_point, self.transfer, self.transfer_byte)
        return {"complex": near, **(self.topology.far() if self.topology is not None else {})}

    def moves_data(self, veus: int) -> bool:
        """Whether it takes time that what one of so many vEUs wrote is read by another."""
        pairs = self.pairs().values()
        return veus > 1 and any(pair.transfer or pair.transfer_byte for pair in pairs)

    def complexes(self, veus: int) -> int:
        """Core complexes that the first ``veus`` vEUs lie in: so many last-level caches."""
        return self.topology.count_complexes(veus) if self.topology is not None else 1

    def sockets(self, veus: int) -> int:
        """Sockets that the first ``veus`` vEUs lie in: so many memories."""
        return self.topology.count_sockets(veus) if self.topology is not None else 1

    def missing_share(self, nbytes: int, complexes: int = 1) -> float:
        """The share that last-level caches have lost of bytes that are all read in every run.

        Parameters
        ----------
        nbytes : int
        complexes : int
            So many caches share the bytes.
        """
        if not nbytes:
            return 0.0
        if not self.missing:
            return max(0.0, 1 - complexes * self.l3_bytes / nbytes)
        sizes, shares = zip(*self.missing, strict=True)
        return float(np.interp(nbytes, sizes, shares))

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
        return width if self.operator_time(kernel, width) < self.operator_time(kernel, 1) else 1


def _check(name: str, value: object, wanted: Literal["from 0", "above 0"]) -> None:
    least = 0.0 if wanted == "from 0" else nextafter(0.0, inf)
    if not isinstance(value, int | float) or not least <= value < inf:
        raise InputError(f"the cost {name} is {value}; give a finite number {wanted}")
