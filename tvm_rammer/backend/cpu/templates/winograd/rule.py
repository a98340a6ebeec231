"""Convolutions of 3 x 3 with stride 1 by Winograd's minimal filtering, where that pays.

The weights are constants and transformed at compile time. What is left are two small transforms and
2.25 or 4 times fewer multiplications (``kernel``), for a rounding
error that the user bounds (``accuracy``). An infinite or NaN input
makes the whole tile around it NaN, not only the outputs that it belongs to; a weight that is not
finite makes its whole output channel NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tvm import tirx

from tvm_rammer.backend.cpu.templates.winograd.choice import (
    ConvolutionSize,
    all_tilings,
    choose_tiling,
    finer,
)
from tvm_rammer.backend.cpu.templates.winograd.kernel import winograd_function
from tvm_rammer.backend.cpu.templates.winograd.match import PlainConvolution, match_convolution
from tvm_rammer.backend.cpu.templates.winograd.tiling import WinogradTiling
from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE
from tvm_rammer.kernel.scheduled import Choice, Scheduled
from tvm_rammer.machine import VDevice


@dataclass(frozen=True)
class Winograd:
    """Schedules 3 x 3 convolutions of stride 1 in NHWC, with padding and an epilogue.

    Attributes
    ----------
    tolerance : float
        Largest error relative to the root mean square of the outputs; 0 for no convolution at all.
    """

    tolerance: float = DEFAULT_TOLERANCE
    name: str = "winograd"

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        if self.tolerance <= 0:
            return None
        conv = match_convolution(func, constants, _is_3x3)
        if conv is None:
            return None
        size = ConvolutionSize(*conv.output_extents, conv.channels)
        tiling = choose_tiling(size, vdevice, self.tolerance)
        if tiling is None:
            return None
        return self._emit(conv, [tiling, *finer(size, tiling, vdevice)], vdevice)

    def choices(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Iterator[Choice]:
        """All tilings, as in :meth:`.Rule.choices`."""
        conv = match_convolution(func, constants, _is_3x3) if self.tolerance > 0 else None
        if conv is None:
            return
        size = ConvolutionSize(*conv.output_extents, conv.channels)
        for tiling in all_tilings(size, vdevice, self.tolerance):
            order = ", rows first" if tiling.rows_first else ""
            text = f"{self.name}: {tiling}{order}"
            make = partial(self._emit, conv, [tiling], vdevice)
            yield Choice(text, make, (self.name, tiling.transform.outputs))

    def _emit(
        self, conv: PlainConvolution, tilings: list[WinogradTiling], vdevice: VDevice
    ) -> Scheduled:
        packings = ((conv.weight_position, tilings[0].packing(conv.channels)),)
        variants = [(winograd_function(conv, each, vdevice), str(each)) for each in tilings]
        return Scheduled.of_variants(variants, self.name, packings)


def _is_3x3(taps: tuple[int, int], strides: tuple[int, int]) -> bool:
    return taps == (3, 3) and strides == (1, 1)
