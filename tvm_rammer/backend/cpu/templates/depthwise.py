"""Depthwise convolutions: neighbouring pixels for a vector of channels, a window's row unrolled.

Data and weights are both vectors of channels. With a row of the window unrolled, neighbouring
pixels of a tile share most of what they load. Tiles inside of the image have no condition of
padding.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from tvm_rammer.backend.cpu.templates.columns import find_columns
from tvm_rammer.backend.cpu.templates.outer_product import outer_product
from tvm_rammer.kernel.contraction import find_contraction
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.machine import VDevice


@dataclass(frozen=True)
class Depthwise:
    """Schedules convolutions whose weights and data have the same channels, innermost in memory."""

    name: str = "depthwise"

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        contraction = find_contraction(func)
        if contraction is None or not contraction.slides:
            return None
        columns = find_columns(contraction, constants)
        if columns is None or not columns.elementwise:
            return None
        return outer_product(contraction, columns, constants, vdevice, self.name)
