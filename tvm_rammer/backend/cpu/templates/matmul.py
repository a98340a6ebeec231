"""Matrix products: an outer product of rows and column vectors in registers.

A tile is some rows for a few vectors of columns. A product with one row is bound by memory and
wants several streams of weights instead of several rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tvm import tirx

from tvm_rammer.backend.cpu.templates.columns import (
    Columns,
    find_columns,
    is_constant,
    is_contiguous,
)
from tvm_rammer.backend.cpu.templates.outer_product import all_cuts, outer_product
from tvm_rammer.backend.cpu.templates.reduction import FEW_ROWS, Reduction
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.contraction import Contraction, find_contraction, load_of
from tvm_rammer.kernel.scheduled import Choice, Scheduled
from tvm_rammer.machine import VDevice


@dataclass(frozen=True)
class Matmul:
    """Schedules ``c[.., i, j] += a[.., i, k] * b[.., k, j]`` with an element-wise epilogue."""

    name: str = "matmul"

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        own = _own(func, constants)
        if own is None:
            return None
        if _are_dot_products(*own, constants):
            dot_products = Reduction().apply(func, constants, vdevice)
            if dot_products is not None:
                return dot_products
        return outer_product(*own, constants, vdevice, self.name)

    def choices(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Iterator[Choice]:
        """All register tiles and orders, as in :meth:`.Tunable.choices`."""
        if own := _own(func, constants):
            yield from all_cuts(*own, constants, vdevice, self.name)


def _own(func: tirx.PrimFunc, constants: frozenset[int]) -> tuple[Contraction, Columns] | None:
    contraction = find_contraction(func)
    if contraction is None or contraction.slides:
        return None
    columns = find_columns(contraction, constants)
    return None if columns is None else (contraction, columns)


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
