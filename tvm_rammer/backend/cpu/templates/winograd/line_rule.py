"""Convolutions with long filters by minimal filtering along one axis, where that pays.

About half as many multiplications for five taps along an axis and more, for a rounding error that
the user bounds. As in ``winograd.rule``, an infinite or NaN input makes the
whole tile around it NaN, and a weight that is not finite its whole output channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from tvm_rammer.backend.cpu.templates.winograd.line_choice import choose_tiling, finer
from tvm_rammer.backend.cpu.templates.winograd.line_kernel import line_function
from tvm_rammer.backend.cpu.templates.winograd.line_tiling import Lines, LineTiling
from tvm_rammer.backend.cpu.templates.winograd.match import PlainConvolution, match_convolution
from tvm_rammer.backend.cpu.templates.winograd.matrices import LINES, Transform
from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.machine import VDevice

#: With fewer taps along an axis nothing is gained.
_FEWEST_TAPS = 4


@dataclass(frozen=True)
class WinogradLines:
    """Schedules convolutions in NHWC with many taps, and no stride, along height or width.

    Attributes
    ----------
    tolerance : float
        Largest error relative to the root mean square of the outputs; 0 for no convolution at all.
    """

    tolerance: float = DEFAULT_TOLERANCE
    name: str = "winograd lines"

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        if self.tolerance <= 0:
            return None
        conv = match_convolution(func, constants, _is_long)
        tiling = _tiling(conv, vdevice, self.tolerance) if conv is not None else None
        if conv is None or tiling is None:
            return None
        packings = ((conv.weight_position, tiling.packing(conv.channels)),)
        lines = Lines.of(conv, tiling.transform, tiling.axis)
        tilings = [tiling, *finer(lines, tiling, vdevice)]
        variants = [(line_function(conv, each), str(each)) for each in tilings]
        return Scheduled.of_variants(variants, self.name, packings)


def _tiling(conv: PlainConvolution, vdevice: VDevice, tolerance: float) -> LineTiling | None:
    """The best of the transforms along axes on which the filter is long."""
    found = [
        choose_tiling(Lines.of(conv, transform, axis), vdevice, tolerance)
        for axis in (1, 2)
        if _long_axis(axis, conv.taps, conv.strides)
        for transform in LINES
        if _shares(transform, conv.taps[axis - 1])
    ]
    worthwhile = [choice for choice in found if choice is not None]
    return min(worthwhile, key=lambda choice: choice[1])[0] if worthwhile else None


def _shares(transform: Transform, taps: int) -> bool:
    """Whether groups of taps read the same transformed inputs, or there is but one."""
    return taps <= transform.taps or transform.outputs % transform.taps == 0


def _is_long(taps: tuple[int, int], strides: tuple[int, int]) -> bool:
    return _long_axis(1, taps, strides) or _long_axis(2, taps, strides)


def _long_axis(axis: int, taps: tuple[int, int], strides: tuple[int, int]) -> bool:
    return taps[axis - 1] >= _FEWEST_TAPS and strides[axis - 1] == 1
