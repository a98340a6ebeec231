"""Operators of images of any height and width, as boxes of numbers of places that are known.

A box lies anywhere: where its width does not divide that of an image, the last one of a row begins
earlier, and computes some places again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Any

from tvm import sym, tirx

from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.cut_operators import Block, cut, open_axes
from tvm_rammer.kernel.loop_nests import NotInBlocksError, nests_of
from tvm_rammer.kernel.nodes import substitute
from tvm_rammer.kernel.run_time_blocks import terms_of

#: Places of the last axis that are computed at once, as long as there are so many left.
_WIDTHS = 16, 4
#: Terms of the sums of a place from which on it is worth it to read weights less often,
_HEAVY = 1 << 16
#: by so many rows at once, and by places.
_ROWS, _HEAVY_WIDTHS = 4, (16, 8, 4)


@dataclass(frozen=True)
class Boxes:
    """An operator with several open axes, by boxes.

    Attributes
    ----------
    rows : tuple of Block
        Of one height, and of fewer and fewer places of the last axis.
    single : Block
        One place of each axis.
    units : tuple of int
        Boxes begin at multiples of them; the sizes of the axes are multiples too.
    in_rows : bool
        Whether boxes are so small that cores had better share the rows than each box.
    """

    rows: tuple[Block, ...]
    single: Block
    units: tuple[int, ...]
    in_rows: bool

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All of them."""
        return *self.rows, self.single


def run_time_boxes(func: tirx.PrimFunc) -> Boxes | None:
    """The boxes of an operator that sums; ``None`` if it cannot be cut.

    That is where a place is not computed from neighbours alone, or there is one open axis.
    """
    result = func.params[-1]
    axes = open_axes(result)
    if len(axes) < 2:
        return None
    try:
        nests = nests_of(func)
        if not any(nest.sums for nest in nests):
            return None
        units = [_unit(result.shape[axis]) for axis in axes]
        in_rows = terms_of(nests) < _HEAVY
        *outer, rows, columns = units
        tall, widths = (rows, _WIDTHS) if in_rows else (rows * _ROWS, _HEAVY_WIDTHS)
        lengths = [*([*outer, tall, columns * width] for width in widths), units]
        *made, single = (cut(func, nests, each, units) for each in lengths)
        return Boxes(tuple(made), single, tuple(units), in_rows)
    except NotInBlocksError:
        return None


def _unit(size: Any) -> int:
    """What an open size is a multiple of, whatever its names are."""
    analyzer, names = sym.Analyzer(), variables(size)
    steps = [substitute(size, {name: name + 1}) - size for name in names]
    start = substitute(size, {name: tirx.IntImm("int64", 0) for name in names})
    numbers = list(map(analyzer.simplify, [start, *steps]))
    if not all(isinstance(each, tirx.IntImm) for each in numbers):
        return 1
    return max(1, reduce(gcd, map(int, numbers)))
