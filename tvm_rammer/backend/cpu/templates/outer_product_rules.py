"""Products and convolutions as outer products in registers, with an element-wise epilogue.

Of a product, a tile is some rows for a few vectors of columns. A product with one row is bound by
memory and wants several streams of weights instead of several rows.

Of a convolution with channels shared by all outputs, a tile is some neighbouring output pixels for
a few vectors of output channels. In its inner loop every input element is broadcast against packed
weight vectors, so the layout of the input does not matter and padding can be a condition inside.

Depthwise, data and weights are both vectors of channels. With a row of the window unrolled,
neighbouring pixels of a tile share most of what they load. Tiles inside of the image have no
condition of padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import tirx

from tvm_rammer.backend.cpu.templates.columns import Columns, is_constant, is_contiguous
from tvm_rammer.backend.cpu.templates.outer_product import OuterProductRule
from tvm_rammer.backend.cpu.templates.reduction_rule import FEW_ROWS, Reduction
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.contraction import Contraction, load_of
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.machine import VDevice


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


@dataclass(frozen=True)
class Matmul(OuterProductRule):
    """Schedules ``c[.., i, j] += a[.., i, k] * b[.., k, j]`` with an element-wise epilogue."""

    name: str = "matmul"

    def takes(self, contraction: Contraction, columns: Columns) -> bool:
        """Where no window slides."""
        return not contraction.slides

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        """As rows that are summed up where that spares packing, else as an outer product."""
        found = self.match(func, constants, vdevice)
        if found is None:
            return None
        if _are_dot_products(found.contraction, found.columns, constants):
            dot_products = Reduction().apply(func, constants, vdevice)
            if dot_products is not None:
                return dot_products
        return self._product(found)


def _are_dot_products(
    contraction: Contraction, columns: Columns, constants: frozenset[int]
) -> bool:
    """Whether both factors lie along the sums, and too few rows share the weights to pack them."""
    if is_constant(contraction, columns, constants):
        return False
    own = variables(load_of(columns.weights(contraction)).indices)
    rows = prod(axis.extent for axis in contraction.spatial if axis.var not in own)
    along = contraction.reduced[-1]
    return rows <= FEW_ROWS and all(is_contiguous(along, each) for each in contraction.factors)
