"""Depthwise convolutions: neighbouring pixels for a vector of channels, a window's row unrolled.

Data and weights are both vectors of channels. With a row of the window unrolled, neighbouring
pixels of a tile share most of what they load. Tiles inside of the image have no condition of
padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import tirx

from tvm_rammer.backend.cpu.templates.columns import Columns, find_columns
from tvm_rammer.backend.cpu.templates.outer_product import all_cuts, outer_product
from tvm_rammer.kernel.contraction import Contraction, find_contraction
from tvm_rammer.kernel.scheduled import Choice, Scheduled
from tvm_rammer.machine import VDevice


@dataclass(frozen=True)
class Depthwise:
    """Schedules convolutions whose weights and data have the same channels, innermost in memory."""

    name: str = "depthwise"

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        own = _own(func, constants)
        return own and outer_product(*own, constants, vdevice, self.name)

    def choices(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Iterator[Choice]:
        """All register tiles and orders, as in :meth:`.Tunable.choices`."""
        if own := _own(func, constants):
            yield from all_cuts(*own, constants, vdevice, self.name)


def _own(func: tirx.PrimFunc, constants: frozenset[int]) -> tuple[Contraction, Columns] | None:
    contraction = find_contraction(func)
    if contraction is None or not contraction.slides:
        return None
    columns = find_columns(contraction, constants)
    return None if columns is None or not columns.elementwise else (contraction, columns)
