"""Convolutions as outer products in registers.

With channels shared by all outputs a tile is some neighbouring output pixels for a few vectors of
output channels. In its inner loop every input element is broadcast against packed weight vectors,
so the layout of the input does not matter and padding can be a condition inside.

Depthwise, data and weights are both vectors of channels. With a row of the window unrolled,
neighbouring pixels of a tile share most of what they load. Tiles inside of the image have no
condition of padding.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_rammer.backend.cpu.templates.columns import Columns
from tvm_rammer.backend.cpu.templates.outer_product import OuterProductRule
from tvm_rammer.kernel.contraction import Contraction


@dataclass(frozen=True)
class Convolution(OuterProductRule):
    """Schedules convolutions of any rank, layout and number of groups, and their epilogue."""

    name: str = "convolution"

    def takes(self, contraction: Contraction, columns: Columns) -> bool:
        """Where a window slides and data are shared by columns."""
        return contraction.slides and not columns.elementwise


@dataclass(frozen=True)
class Depthwise(OuterProductRule):
    """Schedules convolutions whose weights and data have the same channels, innermost in memory."""

    name: str = "depthwise"

    def takes(self, contraction: Contraction, columns: Columns) -> bool:
        """Where a window slides over channels of their own."""
        return contraction.slides and columns.elementwise
