"""Non-maximum suppression as a loop of ours, of any number of boxes, which only data may tell.

TVM's takes the number of boxes for a constant, and writes as many rows as there are boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_rammer.relax_util import first_of

#: Score above which a box is considered: all are; and more boxes than there can be.
LEAST, ALL = float(np.finfo(np.float32).min), 2**40
#: Numbers of a box, and of a row of the result: the batch's, the class's and the box's number.
_CORNERS, _ROW = 4, 3


def non_max_suppression(
    bb: relax.BlockBuilder,
    boxes: relax.Expr,
    scores: relax.Expr,
    overlap: float,
    most: int = ALL,
    score: float = LEAST,
) -> relax.Expr:
    """The boxes that are left: ``(left, 3)`` of int64, of each its batch, its class, its number.

    Parameters
    ----------
    boxes : relax.Expr
        ``(batch, boxes, 4)``, float32, the smaller corner first.
    scores : relax.Expr
        ``(batch, classes, boxes)``, float32.
    overlap : float
        Shared part, of what both cover, above which the box of the smaller score goes.
    most : int
        How many to keep of a class at most.
    score : float
        Above which a box is considered.
    """
    order = bb.emit(relax.op.argsort(scores, axis=2, descending=True, dtype="int32"))
    found = bb.emit_te(_suppressed, boxes, scores, order, most, overlap, score)
    rows, count = (bb.emit(relax.TupleGetItem(found, number)) for number in (0, 1))
    return first_of(bb, rows, count, 0, "kept_boxes")


def _suppressed(
    boxes: te.Tensor, scores: te.Tensor, order: te.Tensor, most: int, overlap: float, score: float
) -> list[te.Tensor]:
    """The rows that are kept, before others; and how many they are."""
    batch, classes, boxes_of_each = (size.astype("int64") for size in scores.shape)
    limit, zero, one = (tirx.const(value, "int64") for value in (most, 0, 1))

    def loops(read: Sequence[Any], written: Sequence[Any]) -> Any:
        corners, rated, in_order, kept, count = map(T.buffer_proxy, (*read, *written))
        with IRBuilder() as builder, T.serial(0, 1):
            compared, first, stays = (
                T.buffer_proxy(T.alloc_buffer((1,), kind, scope="local"))
                for kind in ("int64", "int64", "bool")
            )
            count[0] = zero
            with T.serial(0, batch) as of, T.serial(0, classes) as rated_as:
                first[0] = count[0]
                start = (of * classes + rated_as) * boxes_of_each
                with T.serial(0, boxes_of_each) as rank:
                    box = in_order[start + rank].astype("int64")
                    wanted = rated[start + box] > tirx.const(score, "float32")
                    with T.If(tirx.all(count[0] - first[0] < limit, wanted)), T.Then():
                        compared[0], stays[0] = first[0], tirx.const(True)
                        with T.While(tirx.all(stays[0], compared[0] < count[0])):
                            other = kept[compared[0] * _ROW + _ROW - 1]
                            pair = [(of * boxes_of_each + each) * _CORNERS for each in (box, other)]
                            shared = _overlap(corners, *pair)
                            # PyTorch's limit is a double, which may lie between two floats.
                            stays[0] = shared.astype("float64") <= tirx.const(overlap, "float64")
                            compared[0] = compared[0] + one
                        with T.If(stays[0]), T.Then():
                            for place, value in enumerate((of, rated_as, box)):
                                kept[count[0] * _ROW + place] = value.astype("int64")
                            count[0] = count[0] + one
        return builder.get()

    shapes = [(batch * classes * boxes_of_each, _ROW), (1,)]
    kinds = ["int64", "int64"]
    return list(te.extern(shapes, [boxes, scores, order], loops, name="suppressed", dtype=kinds))


def _overlap(corners: Any, first: Any, second: Any) -> Any:
    """Of two boxes, by where they begin: what they share, of what both cover; 0 for empty ones."""
    zero = tirx.const(0, "float32")

    def shared_along(low: int) -> Any:
        end = tirx.min(corners[first + low + 2], corners[second + low + 2])
        return tirx.max(end - tirx.max(corners[first + low], corners[second + low]), zero)

    def area(box: Any) -> Any:
        return (corners[box + 2] - corners[box]) * (corners[box + 3] - corners[box + 1])

    shared = shared_along(0) * shared_along(1)
    return tirx.Select(shared > zero, shared / (area(first) + area(second) - shared), zero)
