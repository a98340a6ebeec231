"""When every rTask of a run really started and stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import tvm

from tvm_rammer.backend.protocol import Stamps
from tvm_rammer.rprogram import RProgram
from tvm_rammer.schedule.timeline import Timeline
from tvm_rammer.units import duration
from tvm_rammer.view.html import timeline_frame
from tvm_rammer.view.svg import timeline_svg


@dataclass(frozen=True, repr=False)
class Profile:
    """A measured timeline, and what measuring it cost.

    Attributes
    ----------
    program : RProgram
    timeline : Timeline
        Of the run of median length.
    seconds, plain_seconds : float
        Median length of a run with stamps, and without.
    """

    program: RProgram
    timeline: Timeline
    seconds: float
    plain_seconds: float

    @property
    def overhead(self) -> float:
        """Share by which the stamps made a run longer; noise can make it negative."""
        return self.seconds / self.plain_seconds - 1

    def cost(self) -> str:
        """What measuring took, as a sentence."""
        more = f"{self.overhead:+.1%}" if self.overhead >= 0 else "less than the noise"
        return (
            f"median run {duration(self.plain_seconds)}, with a stamp at both ends of every rTask "
            f"{duration(self.seconds)} ({more})"
        )

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__name__}"
        return f"<{name}: {self.program.name}, {self.program.policy}; {self.cost()}>"

    def _repr_html_(self) -> str:
        """The timeline, where a notebook shows it."""
        return timeline_frame([self.program], [self.timeline], self.program.name)

    def _repr_svg_(self) -> str:
        """The same as a picture, where a notebook is shown without scripts."""
        return timeline_svg([self.program], [self.timeline], self.program.name)


def profile_kernel(
    stamper: Stamps,
    kernel: Callable[..., Any],
    arguments: Sequence[Any],
    num_inputs: int,
    program: RProgram,
    runs: int,
) -> Profile:
    """Run the kernel of a region with stamps and without, in turns.

    Parameters
    ----------
    stamper : Stamps
        How kernels of this back end write down what they do.
    kernel : callable
        Of the region.
    arguments : sequence of tvm.runtime.Tensor
        Inputs, constants, table, outputs, arena. The outputs are written, the arena is not.
    num_inputs : int
    program : RProgram
        What the table says.
    runs : int
        Of each kind.
    """
    position, device = num_inputs + 1, arguments[-1].device
    table = arguments[position].numpy()
    arena_bytes = arguments[-1].shape[0]
    room = np.zeros(stamper.arena_bytes(program, arena_bytes), np.uint8)
    stamped = list(arguments)
    stamped[position] = tvm.runtime.tensor(stamper.table(table, arena_bytes), device)
    stamped[-1] = tvm.runtime.tensor(room, device)
    plain: list[float] = []
    found: list[tuple[float, Timeline]] = []
    for _ in range(runs):
        # Reading stamps has emptied the caches: a run that nobody times fills them again.
        kernel(*arguments)
        plain.append(_seconds(kernel, arguments, device))
        seconds = _seconds(kernel, stamped, device)
        stamps = stamped[-1].numpy()
        found.append((seconds, stamper.timeline(program, table, stamps, arena_bytes)))
    found.sort(key=lambda item: item[0])
    seconds, timeline = found[len(found) // 2]
    return Profile(program, timeline, seconds, median(plain))


def _seconds(kernel: Callable[..., Any], arguments: Sequence[Any], device: Any) -> float:
    device.sync()
    started = time.perf_counter()
    kernel(*arguments)
    device.sync()
    return time.perf_counter() - started
