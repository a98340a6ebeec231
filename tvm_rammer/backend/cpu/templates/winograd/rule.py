"""Convolutions of 3 x 3 with stride 1 by Winograd's minimal filtering, where that pays.

The weights are constants and transformed at compile time. What is left are two small transforms and
2.25 or 4 times fewer multiplications (``kernel``), for a rounding
error that the user bounds (``accuracy``). An infinite or NaN input
makes the whole tile around it NaN, not only the outputs that it belongs to; a weight that is not
finite makes its whole output channel NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from tvm_rammer.kernel.scheduled import Scheduled, Template
from tvm_rammer.machine import VDevice


@dataclass(frozen=True)
class Convolution3x3:
    """A convolution of 3 x 3 and its size, on a device."""

    conv: PlainConvolution
    size: ConvolutionSize
    vdevice: VDevice


@dataclass(frozen=True)
class Winograd(Template[Convolution3x3, WinogradTiling]):
    """Schedules 3 x 3 convolutions of stride 1 in NHWC, with padding and an epilogue.

    Attributes
    ----------
    tolerance : float
        Largest error relative to the root mean square of the outputs; 0 for no convolution at all.
    """

    tolerance: float = DEFAULT_TOLERANCE
    name: str = "winograd"

    def match(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Convolution3x3 | None:
        """As in :meth:`.Template.match`."""
        conv = match_convolution(func, constants) if self.tolerance > 0 else None
        if conv is None or conv.taps != (3, 3) or conv.strides != (1, 1):
            return None
        return Convolution3x3(conv, ConvolutionSize(*conv.output_extents, conv.channels), vdevice)

    def space(self, found: Convolution3x3) -> list[WinogradTiling]:
        """The usual tilings, and all others that are accurate enough."""
        others = all_tilings(found.size, found.vdevice, self.tolerance)
        return list(dict.fromkeys([*self.usual(found), *others]))

    def usual(self, found: Convolution3x3) -> list[WinogradTiling]:
        """The tiling with the fewest cycles and finer ones; none where Winograd does not pay."""
        tiling = choose_tiling(found.size, found.vdevice, self.tolerance)
        return [] if tiling is None else [tiling, *finer(found.size, tiling, found.vdevice)]

    def emit(self, found: Convolution3x3, configuration: WinogradTiling) -> Scheduled:
        """One tiling."""
        conv = found.conv
        packings = ((conv.weight_position, configuration.packing(conv.channels)),)
        function = winograd_function(conv, configuration, found.vdevice)
        return Scheduled(function, self.name, str(configuration), packings)

    def text(self, configuration: WinogradTiling) -> str:
        """The tiling and its order."""
        return f"{configuration}{', rows first' if configuration.rows_first else ''}"

    def rounding(self, configuration: WinogradTiling) -> tuple[int]:
        """Other transforms round in another way."""
        return (configuration.transform.outputs,)
