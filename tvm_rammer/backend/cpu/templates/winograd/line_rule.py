"""Convolutions with long filters by minimal filtering along one axis, where that pays.

About half as many multiplications for five taps along an axis and more, for a rounding error that
the user bounds. As in ``winograd.rule``, an infinite or NaN input makes the
whole tile around it NaN, and a weight that is not finite its whole output channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from tvm import tirx

from tvm_rammer.backend.cpu.templates.winograd.line_choice import (
    all_tilings,
    choose_tiling,
    finer,
)
from tvm_rammer.backend.cpu.templates.winograd.line_kernel import line_function
from tvm_rammer.backend.cpu.templates.winograd.line_tiling import Lines, LineTiling
from tvm_rammer.backend.cpu.templates.winograd.match import PlainConvolution, match_convolution
from tvm_rammer.backend.cpu.templates.winograd.matrices import LINES, Transform
from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE
from tvm_rammer.kernel.scheduled import Scheduled, Template
from tvm_rammer.machine import VDevice

#: With fewer taps along an axis nothing is gained.
_FEWEST_TAPS = 4


@dataclass(frozen=True)
class LongConvolution:
    """A convolution with a long filter, on a device.

    Attributes
    ----------
    conv : PlainConvolution
    lines : tuple of Lines
        Along each axis on which the filter is long, by each transform that it may take.
    vdevice : VDevice
    """

    conv: PlainConvolution
    lines: tuple[Lines, ...]
    vdevice: VDevice

    @classmethod
    def of(cls, conv: PlainConvolution, vdevice: VDevice) -> LongConvolution:
        lines = (
            Lines.of(conv, transform, axis)
            for axis in (1, 2)
            if conv.taps[axis - 1] >= _FEWEST_TAPS and conv.strides[axis - 1] == 1
            for transform in LINES
            if _shares(transform, conv.taps[axis - 1])
        )
        return cls(conv, tuple(lines), vdevice)


@dataclass(frozen=True)
class WinogradLines(Template[LongConvolution, LineTiling]):
    """Schedules convolutions in NHWC with many taps, and no stride, along height or width.

    Attributes
    ----------
    tolerance : float
        Largest error relative to the root mean square of the outputs; 0 for no convolution at all.
    """

    tolerance: float = DEFAULT_TOLERANCE
    name: str = "winograd lines"

    def match(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> LongConvolution | None:
        """As in :meth:`.Template.match`."""
        conv = match_convolution(func, constants) if self.tolerance > 0 else None
        found = LongConvolution.of(conv, vdevice) if conv else None
        return found if found and found.lines else None

    def space(self, found: LongConvolution) -> list[LineTiling]:
        """Every tiling that is accurate enough, whether it pays by the model or not."""
        each = (all_tilings(lines, found.vdevice, self.tolerance) for lines in found.lines)
        return list(dict.fromkeys([*self.usual(found), *chain.from_iterable(each)]))

    def usual(self, found: LongConvolution) -> list[LineTiling]:
        """The tiling with the fewest cycles and finer ones; none where lines do not pay."""
        chosen = [
            (lines, choice)
            for lines in found.lines
            if (choice := choose_tiling(lines, found.vdevice, self.tolerance)) is not None
        ]
        if not chosen:
            return []
        lines, (tiling, _) = min(chosen, key=lambda each: each[1][1])
        return [tiling, *finer(lines, tiling, found.vdevice)]

    def emit(self, found: LongConvolution, configuration: LineTiling) -> Scheduled:
        """One tiling."""
        conv = found.conv
        packings = ((conv.weight_position, configuration.packing(conv.channels)),)
        function = line_function(conv, configuration)
        return Scheduled(function, self.name, str(configuration), packings)

    def rounding(self, configuration: LineTiling) -> tuple[int, int, int]:
        """Other transforms, and those along another axis, round in another way."""
        transform = configuration.transform
        return configuration.axis, transform.outputs, transform.taps


def _shares(transform: Transform, taps: int) -> bool:
    """Whether groups of taps read the same transformed inputs, or there is but one."""
    return taps <= transform.taps or transform.outputs % transform.taps == 0
