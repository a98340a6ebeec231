"""How far a model's rKernels are from the roofline, and which of them are farthest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm_rammer.runtime.kernel_report import KernelReport

#: Operators that are named.
_NAMED = 10


@dataclass(frozen=True)
class SlowKernel:
    """All operators of a distinct rKernel, on one core.

    Attributes
    ----------
    operator : str
        The first one.
    count : int
    rule : str
        What made the rKernel.
    milliseconds, roofline : float
        Measured, and the least that the machine allows.
    """

    operator: str
    count: int
    rule: str
    milliseconds: float
    roofline: float


@dataclass(frozen=True)
class KernelTimes:
    """A model's operators one after the other on one core, and the ten that lose most.

    Attributes
    ----------
    milliseconds, roofline : float
        Measured, and the least that the machine allows.
    slowest : tuple of SlowKernel
        What loses most to its roofline comes first.
    """

    milliseconds: float
    roofline: float
    slowest: tuple[SlowKernel, ...]


def kernel_times(report: KernelReport) -> KernelTimes | None:
    """The times in a report; None where the machine's ceilings are not known."""
    if report.roofline_seconds is None:
        return None
    found = [
        SlowKernel(
            facts.operator,
            facts.count,
            facts.kernel.origin,
            1e3 * facts.total_seconds,
            1e3 * facts.count * facts.roof.seconds,
        )
        for facts in report.kernels
        if facts.roof
    ]
    found.sort(key=lambda kernel: kernel.roofline - kernel.milliseconds)
    slowest = tuple(found[:_NAMED])
    return KernelTimes(1e3 * report.seconds, 1e3 * report.roofline_seconds, slowest)
