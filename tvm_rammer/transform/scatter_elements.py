"""``scatter_elements`` as a loop for each axis, of tensors whose sizes only the run may tell.

TVM's goes over all lines of indices in one loop, and divides to find where each lies: LLVM takes
most of a minute for that where sizes are not known. And it takes the place of an index among the
indices for its place in the tensor, where they differ if the indices reach less far along an axis
that is not the indexed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_rammer.relax_util import is_for_cpu

#: What becomes of an element and what is scattered to it.
_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda _, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "min": tirx.min,
    "max": tirx.max,
}


def scatter_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, reduction: str
) -> te.Tensor:
    """``data``, and ``updates`` at the places that ``indices`` give along an axis.

    Parameters
    ----------
    data : te.Tensor
        The result is of its shape.
    indices, updates : te.Tensor
        Of one shape, which reaches along no axis but the indexed one further than ``data``.
        Negative indices count from the end; those for one element follow each other.
    axis : int
    reduction : str
        ``"update"``, ``"add"``, ``"mul"``, ``"mean"``, ``"min"`` or ``"max"``.
    """
    axis %= len(data.shape)
    combined = _REDUCTIONS[reduction]

    def loops(read: Sequence[Any], written: Sequence[Any]) -> Any:
        source, places, added = read
        (result,) = written
        whole, copied = T.buffer_proxy(result), T.buffer_proxy(source)
        with IRBuilder() as builder, T.seq_scope():
            with T.parallel(0, prod(data.shape, start=tirx.const(1, "int64"))) as element:
                whole[element] = copied[element]
            with ExitStack() as nest:
                at = _entered(nest, indices.shape, axis)
                place = places[tuple(at)]
                size = data.shape[axis].astype(indices.dtype)
                place = tirx.Select(place < 0, place + size, place)
                to = [*at[:axis], place, *at[axis + 1 :]]
                T.buffer_store(result, combined(result[tuple(to)], added[tuple(at)]), to)
        return builder.get()

    operands, kinds = [data, indices, updates], [str(data.dtype)]
    return te.extern([data.shape], operands, loops, name="scatter_elements", dtype=kinds)


def _entered(nest: ExitStack, shape: Sequence[Any], axis: int) -> list[Any]:
    """The variables of loops over a shape: lines along the axis are independent of each other."""
    lines = [k for k in range(len(shape)) if k != axis]
    order, together = list(range(len(shape))), lines[: lines[:1] == [0]]
    if not is_for_cpu():
        # Threads are bound to loops that lie around all others.
        order, together = [*lines, axis], lines
    at: dict[int, Any] = {}
    for k in order:
        at[k] = nest.enter_context((T.parallel if k in together else T.serial)(0, shape[k]))
    return [at[k] for k in range(len(shape))]
