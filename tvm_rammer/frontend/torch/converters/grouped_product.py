"""Products of groups of rows with a matrix each, as mixtures of experts have them.

How many rows a group has is known only when the program runs. So rows are put into blocks of one
number of rows, each with rows of one group: as many blocks as there may be at most. A block reads
the matrix of its group where it lies, once for all of its rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te

from tvm_rammer.frontend.row_blocks import most_blocks, rows_of_block
from tvm_rammer.frontend.sizes import as_size
from tvm_rammer.frontend.torch.converters.product import product
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    shape_of,
    table,
    wide_dtype,
)


def _grouped_product(
    call: OperatorCall, x: Any, y: Any, ends: Any = None, bias: Any = None, *_: Any
) -> Any:
    """Of groups of rows of ``x``, or of columns of ``y``; ``ends`` says where each of them ends."""
    if bias is not None:
        call.refuse("its bias must be added by an operation of its own")
    ranks = x.ty.ndim, y.ty.ndim
    if ranks == (2, 2):
        call.refuse("sums over groups, as training has them, cannot be computed")
    if ranks == (3, 3):
        return product(call, x, y)
    if ranks == (2, 3):
        return _of_rows(call, x, y, ends)
    transposed = _of_rows(call, call.permute(y, [1, 0]), call.permute(x, [0, 2, 1]), ends)
    return call.permute(transposed, [1, 0])


def _of_rows(call: OperatorCall, rows: Any, matrices: Any, ends: Any) -> Any:
    """Rows behind the last group become zeros."""
    if 0 in (*shape_of(rows), *shape_of(matrices)):
        return call.filled((shape_of(rows)[0], shape_of(matrices)[2]), 0)
    count, groups = shape_of(rows)[0], shape_of(matrices)[0]
    ends, places = call.cast(ends, "int64"), call.counted(count)
    group = _group(call, places, ends)
    size = rows_of_block(count, groups)
    if size == 1:
        result = _products(call, rows, matrices, group, 1)
    else:
        result = _in_blocks(call, rows, matrices, ends, group, size)
    last = call.take(ends, table([groups - 1]), 0)
    inside = call.reshape(call.emit(relax.op.less(places, last)), (count, 1))
    return call.emit(relax.op.where(inside, call.cast(result), call.cast(0)))


def _in_blocks(
    call: OperatorCall, rows: Any, matrices: Any, ends: Any, group: Any, size: int
) -> Any:
    """The rows are taken into their blocks, and the results out of them."""
    count, groups = shape_of(rows)[0], shape_of(matrices)[0]
    blocks = call.sizes.simplified(as_size(most_blocks(count, groups, size)))
    starts = call.take(
        call.emit(relax.op.concat([table([0]), ends], 0)), table(np.arange(groups)), 0
    )
    filled = relax.op.add(relax.op.subtract(ends, starts), table(size - 1))
    own = call.emit(relax.op.floor_divide(filled, table(size)))
    before = relax.op.multiply(call.reshape(own, (1, groups)), table(np.tri(groups, dtype="int64")))
    block_ends = call.emit(relax.op.sum(call.emit(before), axis=[1]))
    block_starts = relax.op.multiply(relax.op.subtract(block_ends, own), table(size))
    # From a row's place among all to that in the blocks.
    shifts = call.emit(relax.op.subtract(block_starts, starts))

    block_group = _group(call, call.counted(blocks), block_ends)
    back = call.reshape(call.take(shifts, block_group, 0), (blocks, 1))
    slots = call.reshape(call.counted(blocks * size), (blocks, size))
    taken = call.reshape(call.emit(relax.op.subtract(slots, back)), (blocks * size,))
    products = _products(call, call.take(rows, taken, 0), matrices, block_group, size)
    shift = call.take(shifts, group, 0)
    return call.take(products, call.emit(relax.op.add(call.counted(count), shift)), 0)


def _group(call: OperatorCall, places: Any, ends: Any) -> Any:
    """The group that each place lies in, the last one if it is behind all."""
    (groups,), (count,) = shape_of(ends), shape_of(places)
    behind = relax.op.greater_equal(
        call.reshape(places, (count, 1)), call.reshape(ends, (1, groups))
    )
    passed = call.emit(relax.op.sum(call.cast(call.emit(behind), "int64"), axis=[1]))
    return call.emit(relax.op.minimum(passed, table(groups - 1)))


def _products(call: OperatorCall, rows: Any, matrices: Any, group: Any, size: int) -> Any:
    """Every block of rows times the matrix of its group."""
    count, width = shape_of(rows)
    wide = wide_dtype(call.dtype)

    def products(rows: te.Tensor, matrices: te.Tensor, group: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, rows.shape[2]), "k")

        def element(b: Any, i: Any, j: Any) -> Any:
            x, y = rows[b, i, k], matrices[group[b], k, j]
            return te.sum(x.astype(wide) * y.astype(wide), k)

        return te.compute((*rows.shape[:2], matrices.shape[2]), element, "products")

    blocks = call.reshape(call.cast(rows), (count // size, size, width))
    result = call.compute(products, blocks, call.cast(matrices), group)
    return call.reshape(result, (count, shape_of(matrices)[2]))


CONVERTERS: dict[str, Converter] = {
    "_grouped_mm.default": _grouped_product,
    # The operator of transformers for types that PyTorch's own does not take in its compiler.
    "grouped_mm_fallback.default": _grouped_product,
}
