"""Pivots of square matrices, of which determinants are products, for both importers.

By Gauss, with the largest element of each column as its pivot, and in doubles: results in float32
then are no further from the true ones than PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T


def pivots(matrices: te.Tensor) -> list[te.Tensor]:
    """What determinants are products of; 0 is among it for a singular matrix.

    Parameters
    ----------
    matrices : te.Tensor
        ``[count, rows, rows]``, in float64.

    Returns
    -------
    list of te.Tensor
        The pivots ``[count, rows]``, each of the other sign where rows changed places for it; and
        what is left of the matrices.
    """
    count, rows, _ = matrices.shape

    def loops(read: Sequence[Any], written: Sequence[Any]) -> Any:
        given, found, left = map(T.buffer_proxy, (*read, *written))
        with IRBuilder() as builder, T.parallel(0, count) as of:
            with T.serial(0, rows) as row, T.serial(0, rows) as column:
                left[of, row, column] = given[of, row, column]
            with T.serial(0, rows) as step:
                _bring_pivot(left, of, step, rows)
                _eliminate(left, found, of, step, rows)
        return builder.get()

    shapes = [(count, rows), (count, rows, rows)]
    return list(te.extern(shapes, [matrices], loops, name="pivots", dtype=["float64"] * 2))


def _bring_pivot(left: Any, of: Any, step: Any, rows: Any) -> None:
    """The row with a column's largest element, with its sign turned, to where it is wanted.

    What is given up for it goes there as it is: two rows that change places turn the sign, too. A
    number that is none counts as the largest one, so that the result is none.
    """
    place, size = (_variable(kind) for kind in ("int32", "float64"))
    place[0] = step.astype("int32")
    size[0] = tirx.abs(left[of, step, step])
    with T.serial(step + 1, rows) as row:
        own = tirx.abs(left[of, row, step])
        with T.If(tirx.any(own > size[0], tirx.isnan(own))), T.Then():
            place[0] = row.astype("int32")
            size[0] = own
    with T.If(place[0] != step), T.Then(), T.serial(step, rows) as column:
        kept = _variable("float64")
        kept[0] = left[of, step, column]
        left[of, step, column] = -left[of, place[0], column]
        left[of, place[0], column] = kept[0]


def _eliminate(left: Any, found: Any, of: Any, step: Any, rows: Any) -> None:
    """Note the pivot and take its row from those below; where it is 0, nothing is below."""
    pivot, factor = _variable("float64"), _variable("float64")
    pivot[0] = left[of, step, step]
    found[of, step] = pivot[0]
    with (
        T.If(pivot[0] != tirx.const(0, "float64")),
        T.Then(),
        T.serial(step + 1, rows) as row,
    ):
        factor[0] = left[of, row, step] / pivot[0]
        with T.serial(step + 1, rows) as column:
            own = left[of, row, column]
            left[of, row, column] = own - factor[0] * left[of, step, column]


def _variable(dtype: str) -> Any:
    return T.buffer_proxy(T.alloc_buffer((1,), dtype, scope="local"))
