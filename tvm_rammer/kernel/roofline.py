"""The least time that a kernel's work takes one core: the roofline of its ceilings."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_rammer.kernel.work import Work
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.ceilings import Ceilings, memory_level


@dataclass(frozen=True)
class Roofline:
    """The least seconds of a kernel, and what sets them.

    Attributes
    ----------
    compute_seconds : float
        Its operations at the rate of multiply-adds.
    memory_seconds : float
        Its bytes, read from where they lie.
    level : str
        Where its working set lies: ``"l2"``, ``"l3"`` or ``"dram"``.
    """

    compute_seconds: float
    memory_seconds: float
    level: str

    @property
    def seconds(self) -> float:
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def limit(self) -> str:
        """What sets the time: ``"compute"`` or the memory's level."""
        return "compute" if self.compute_seconds >= self.memory_seconds else self.level


def roofline(work: Work, working_set: int, ceilings: Ceilings, vdevice: VDevice) -> Roofline:
    """The roofline of a kernel.

    Parameters
    ----------
    work : Work
    working_set : int
        Bytes that lie in caches when it runs: its own, and those of what runs around it.
    ceilings : Ceilings
    vdevice : VDevice
        States the sizes of the caches.
    """
    return Roofline(
        work.flops / ceilings.flops,
        work.nbytes / ceilings.bandwidth(working_set, vdevice),
        memory_level(working_set, vdevice),
    )
