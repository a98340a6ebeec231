"""What tuning wins back where the numbers of the machine are wrong.

A stand-in for a processor that nobody calibrated: templates choose by half the registers that
there are, multiply-adds of twice the latency and a quarter of the second-level cache, and the tuner
measures what is really there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from tvm_rammer.backend import backend_for
from tvm_rammer.machine import VDevice
from tvm_rammer.testing.timing_results import Ratio


@dataclass(frozen=True)
class WonBack:
    """What wrong numbers lost of a network's speed, and tuning won back.

    Attributes
    ----------
    name : str
    ms : (float, float, float)
        Median milliseconds with the true numbers, with the wrong ones, and with those after tuning.
    lost, tuned : Ratio
        Times with the true numbers and after tuning, relative to those with the wrong ones.
    """

    name: str
    ms: tuple[float, float, float]
    lost: Ratio
    tuned: Ratio

    @property
    def share(self) -> float | None:
        """Of what was lost; None if nothing was, by more than the measurement can tell."""
        if self.lost.high >= 1.0:
            return None
        return (1.0 - self.tuned.value) / (1.0 - self.lost.value)


def wrong(vdevice: VDevice) -> VDevice:
    """A device as who has never seen it might describe it."""
    cycles = vdevice.speeds.cycles
    slow = replace(
        cycles,
        multiply_add_latency=2 * cycles.multiply_add_latency,
        latency_slack=2 * cycles.latency_slack,
    )
    return replace(
        vdevice,
        vector_registers=vdevice.vector_registers // 2,
        l2_bytes=vdevice.l2_bytes // 4,
        speeds=replace(vdevice.speeds, cycles=slow),
    )


@contextmanager
def numbers(change: Callable[[VDevice], VDevice]) -> Iterator[None]:
    """Describe this machine by other numbers to whatever is compiled or tuned in this process."""
    backend = backend_for()
    true = backend.vdevice

    def described(*arguments: Any, **options: Any) -> VDevice:
        return change(true(*arguments, **options))

    with mock.patch.object(backend, "vdevice", described):
        yield
