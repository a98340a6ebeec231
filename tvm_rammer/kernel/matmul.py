"""Matrix products: an outer product of rows and column vectors in registers.

A tile is some rows for a few vectors of columns. A product with one row is bound by memory and
wants several streams of weights instead of several rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from tvm_rammer.kernel.columns import find_columns
from tvm_rammer.kernel.contraction import find_contraction
from tvm_rammer.kernel.outer_product import outer_product
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.vdevice import VDevice


@dataclass(frozen=True)
class Matmul:
    """Schedules ``c[.., i, j] += a[.., i, k] * b[.., k, j]`` with an element-wise epilogue."""

    name: str = "matmul"

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        contraction = find_contraction(func)
        if contraction is None or contraction.slides:
            return None
        columns = find_columns(contraction, constants)
        if columns is None:
            return None
        return outer_product(contraction, columns, constants, vdevice, self.name)
