"""What one core reaches at best, and where a working set lies."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tvm_rammer.machine.vdevice import VDevice


@dataclass(frozen=True)
class Ceilings:
    """The most that one core does in a second.

    Attributes
    ----------
    flops : float
        float32 operations per second in multiply-adds of whole vectors, two operations each.
    l1, l2, l3, dram : float
        Bytes per second read from where they lie.
    """

    flops: float
    l1: float
    l2: float
    l3: float
    dram: float

    def best(self, other: Ceilings) -> Ceilings:
        """The higher of both: what disturbs a measurement makes it lower."""
        ours, theirs = asdict(self), asdict(other)
        return Ceilings(**{name: max(value, theirs[name]) for name, value in ours.items()})

    def bandwidth(self, nbytes: int, vdevice: VDevice) -> float:
        """Bytes per second of the nearest memory that holds a working set.

        The first-level cache does not count: a kernel's operands come from other kernels.
        """
        return getattr(self, memory_level(nbytes, vdevice))


def memory_level(nbytes: int, vdevice: VDevice) -> str:
    """Where a working set of ``nbytes`` lies: ``"l2"``, ``"l3"`` or ``"dram"``."""
    if nbytes <= vdevice.l2_bytes:
        return "l2"
    return "l3" if nbytes <= vdevice.l3_bytes else "dram"
