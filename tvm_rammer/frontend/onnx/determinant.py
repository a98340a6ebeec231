"""``Det``: the determinants of square matrices, as products of their pivots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax, tirx

from tvm_rammer.frontend.onnx.run_time_sizes import sized
from tvm_rammer.frontend.pivots import pivots


def determinant(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr:
    """Of matrices along the last two axes; how many there are may be known only at run time.

    Raises
    ------
    ValueError
        When they are not square, or their size is not known.
    """
    (x,) = inputs
    *batch, rows, columns = x.ty.shape.values
    if not isinstance(rows, tirx.IntImm) or not isinstance(columns, tirx.IntImm):
        raise ValueError("the size of its matrices is known only at run time")
    if int(rows) != int(columns):
        raise ValueError(f"its matrices are not square: they are {rows} by {columns}")
    if not int(rows):
        return relax.op.ones(relax.ShapeExpr(batch), x.ty.dtype)
    wide = bb.emit(relax.op.astype(x, "float64"))
    flat = sized(bb, bb.emit(relax.op.reshape(wide, [-1, rows, columns])), None)
    found = bb.emit(relax.TupleGetItem(bb.emit_te(pivots, flat), 0))
    product = bb.emit(relax.op.prod(found, axis=[1]))
    result = bb.emit(relax.op.reshape(product, relax.ShapeExpr(batch)))
    return relax.op.astype(result, x.ty.dtype)
