"""How far a model's rKernels are from the roofline, and which of them are farthest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm_rammer.kernel.roofline import roofline
from tvm_rammer.vdevice.ceilings import Ceilings, memory_level

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
    together : float
        The roofline of all cores at once, each operator spread over them: what they reach side by
        side, as measured just before and after the model's plans. Not less than it takes to read
        all weights from memory, if no cache holds them until the next run.
    slowest : tuple of SlowKernel
        What loses most to its roofline comes first.
    """

    milliseconds: float
    roofline: float
    together: float
    slowest: tuple[SlowKernel, ...]


def kernel_times(report: KernelReport, together: Ceilings, weight_bytes: int) -> KernelTimes | None:
    """The times in a report; None where the machine's ceilings are not known.

    Parameters
    ----------
    report : KernelReport
    together : Ceilings
        Of all cores at the same time, added up.
    weight_bytes : int
        Of all constants that a run reads.
    """
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
    least = sum(
        facts.count * roofline(facts.work, facts.working_set, together, report.vdevice).seconds
        for facts in report.kernels
    )
    if memory_level(weight_bytes, report.vdevice) == "dram":
        least = max(least, weight_bytes / together.dram)
    slowest = tuple(found[:_NAMED])
    return KernelTimes(1e3 * report.seconds, 1e3 * report.roofline_seconds, 1e3 * least, slowest)
