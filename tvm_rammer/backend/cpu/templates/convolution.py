"""Convolutions: an outer product of pixels and output-channel vectors in registers.

A tile is some neighbouring output pixels for a few vectors of output channels. In its inner loop
every input element is broadcast against packed weight vectors, so the layout of the input does not
matter and padding can be a condition inside.
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
