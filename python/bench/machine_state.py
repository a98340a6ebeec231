"""Tells whether a machine that others share is still the one it was a minute ago.

A hypervisor moves our cores between those of the host. Two that share a cache hand each other data
several times faster than two that do not, and two threads of one core compute half as fast as two
cores. A prediction made from costs of one state says nothing about a time measured in another.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.own_cores import OWN_CORE, SAME_STATE, OwnCores
from tvm_rammer.backend.cpu.host import calibrated
from tvm_rammer.machine import VDevice


@dataclass(frozen=True)
class MachineState:
    """What depends on where the host runs our cores.

    Attributes
    ----------
    signal : float
        Seconds of a signal between two vEUs.
    transfer_byte : float
        Seconds that a byte of another core's cache takes longer than one's own.
    together : float
        What each core computes while all do, as a part of what one computes alone; 0 where other
        programs kept the cores so busy that nothing could be measured.
    """

    signal: float
    transfer_byte: float
    together: float

    @property
    def own_cores(self) -> bool:
        """Whether every vEU has a core to itself."""
        return self.together >= OWN_CORE

    def like(self, other: MachineState) -> bool:
        """Whether both are the same state, as far as measurements can tell."""
        pairs = ((self.signal, other.signal), (self.transfer_byte, other.transfer_byte))
        alike = all(max(pair) <= SAME_STATE * min(pair) for pair in pairs)
        return alike and self.own_cores == other.own_cores


def measure_state(vdevice: VDevice, cores: OwnCores) -> tuple[VDevice, MachineState]:
    """Measure now: the device with its costs, and the state that they are of (about 2 s)."""
    device = calibrated(vdevice, refresh=True)
    if not device.calibrated:
        return device, MachineState(0.0, 0.0, together=0.0)
    signal, transfer_byte = device.point_to_point_seconds, device.memory.transfer_byte
    return device, MachineState(signal, transfer_byte, cores.together())
