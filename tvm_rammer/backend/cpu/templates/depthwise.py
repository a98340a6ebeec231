"""Depthwise convolutions: neighbouring pixels for a vector of channels, a window's row unrolled.

Data and weights are both vectors of channels. With a row of the window unrolled, neighbouring
pixels of a tile share most of what they load. Tiles inside of the image have no condition of
padding.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_rammer.backend.cpu.templates.columns import Columns
from tvm_rammer.backend.cpu.templates.outer_product import OuterProductRule
from tvm_rammer.kernel.contraction import Contraction


@dataclass(frozen=True)
class Depthwise(OuterProductRule):
    """Schedules convolutions whose weights and data have the same channels, innermost in memory."""

    name: str = "depthwise"

    def takes(self, contraction: Contraction, columns: Columns) -> bool:
        """Where a window slides over channels of their own."""
        return contraction.slides and columns.elementwise
