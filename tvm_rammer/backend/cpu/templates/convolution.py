"""Convolutions: an outer product of pixels and output-channel vectors in registers.

A tile is some neighbouring output pixels for a few vectors of output channels. In its inner loop
every input element is broadcast against packed weight vectors, so the layout of the input does not
matter and padding can be a condition inside.
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
class Convolution:
    """Schedules convolutions of any rank, layout and number of groups, and their epilogue."""

    name: str = "convolution"

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        contraction = find_contraction(func)
        if contraction is None or not contraction.slides:
            return None
        columns = find_columns(contraction, constants)
        if columns is None or columns.elementwise:
            return None
        return outer_product(contraction, columns, constants, vdevice, self.name)
