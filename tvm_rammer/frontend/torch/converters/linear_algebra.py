"""Small square matrices: determinants, inverses, systems of equations, Cholesky's factors.

In doubles, and all but determinants column by column, unrolled: results in float32 then are no
further from the true ones than PyTorch's. Where PyTorch raises an error, of a matrix that is
singular or not positive definite, there the result has infinite numbers or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tvm_rammer.frontend.pivots import pivots
from tvm_rammer.frontend.torch.converters.layout import sliced
from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall, double, shape_of

#: Every row of what is unrolled is a handful of operators.
MOST_ROWS = 32


def _batch(
    call: OperatorCall,
    x: Any,
    batch: Sequence[int] | None = None,
    most_rows: int | None = MOST_ROWS,
) -> Any:
    """Matrices in doubles along one axis, repeated to the batch that the result has."""
    *own, rows, columns = shape_of(x)
    if 0 in (*own, *(batch or ()), rows, columns):
        call.refuse("it is given matrices without elements")
    if most_rows is not None and rows > most_rows:
        call.refuse(f"its matrices have more than {most_rows} rows")
    batch = own if batch is None else batch
    x = call.broadcast(call.cast(x, "float64"), (*batch, rows, columns))
    return call.reshape(x, (math.prod(batch), rows, columns))


def _transposed(call: OperatorCall, x: Any) -> Any:
    rank = len(shape_of(x))
    return call.permute(x, [*range(rank - 2), rank - 1, rank - 2])


def _identity(call: OperatorCall, like: Any) -> Any:
    count, rows, _ = shape_of(like)
    return call.broadcast(relax.const(np.eye(rows)[None], "float64"), (count, rows, rows))


def _eliminated(call: OperatorCall, x: Any) -> Any:
    """What right-hand sides become by Gauss and Jordan: of each column the largest is the pivot."""
    rows = shape_of(x)[1]
    numbers = relax.const(np.arange(rows).reshape(1, rows, 1), "int64")
    for k in range(rows):
        sizes = relax.op.abs(sliced(call, sliced(call, x, 1, k), 2, 0, 1))
        place = call.emit(relax.op.add(relax.op.argmax(sizes, 1, True), relax.const(k, "int64")))
        chosen = call.emit(relax.op.equal(numbers, place))
        row = call.emit(relax.op.sum(relax.op.where(chosen, x, double(0)), axis=[1], keepdims=True))
        pivot = sliced(call, row, 2, 0, 1)
        x = call.emit(relax.op.where(chosen, sliced(call, x, 1, k, k + 1), x))
        factors = call.emit(relax.op.divide(sliced(call, x, 2, 0, 1), pivot))
        rest = sliced(call, row, 2, 1)
        others = relax.op.subtract(sliced(call, x, 2, 1), relax.op.multiply(factors, rest))
        own = relax.const((np.arange(rows) == k).reshape(1, rows, 1))
        x = call.emit(relax.op.where(own, relax.op.divide(rest, pivot), others))
    return x


def _result(call: OperatorCall, x: Any, shape: Sequence[int]) -> Any:
    return call.cast(call.reshape(x, shape))


def _pivots(call: OperatorCall, x: Any) -> Any:
    x = _batch(call, x, most_rows=None)
    return call.emit(relax.TupleGetItem(call.compute(pivots, x), 0))


def _determinant(call: OperatorCall, x: Any) -> list[Any]:
    value = relax.op.prod(_pivots(call, x), axis=[1])
    return call.only(_result(call, call.emit(value), call.shape))


def _log_determinant(call: OperatorCall, x: Any) -> list[Any]:
    """``slogdet``: the sign, and the logarithm of the size."""
    found = _pivots(call, x)
    sign = relax.op.prod(relax.op.sign(found), axis=[1])
    total = relax.op.sum(relax.op.log(relax.op.abs(found)), axis=[1])
    return call.only(*(_result(call, call.emit(value), call.shape) for value in (sign, total)))


def _inverse(call: OperatorCall, x: Any, *_: Any) -> list[Any]:
    x = _batch(call, x)
    both = call.emit(relax.op.concat([x, _identity(call, x)], 2))
    return call.only(_result(call, _eliminated(call, both), call.shape))


def _solution(call: OperatorCall, x: Any, y: Any, left: bool = True, *_: Any) -> list[Any]:
    """``x @ z = y``, or ``z @ x = y``; ``y`` may be a vector for each matrix."""
    shape = shape_of(y)
    is_vector = len(shape) == 1 or shape == shape_of(x)[:-1]
    batch = call.shape[:-1] if is_vector else call.shape[:-2]
    if is_vector:
        y = call.emit(relax.op.expand_dims(y, -1))
    elif not left:
        y = _transposed(call, y)
    x = x if left else _transposed(call, x)
    sides = [_batch(call, matrices, batch) for matrices in (x, y)]
    found = _eliminated(call, call.emit(relax.op.concat(sides, 2)))
    found = found if left or is_vector else _transposed(call, found)
    return call.only(_result(call, found, call.shape))


def _cholesky(call: OperatorCall, x: Any, upper: bool = False, *_: Any) -> list[Any]:
    x = _batch(call, x)
    factor = _lower_factor(call, _transposed(call, x) if upper else x)
    factor = _transposed(call, factor) if upper else factor
    return call.only(_result(call, factor, call.shape))


def _lower_factor(call: OperatorCall, x: Any) -> Any:
    """``L`` of ``x = L @ L.mT``; reads the lower triangle."""
    count, rows, _ = shape_of(x)
    columns = []
    for k in range(rows):
        column = sliced(call, x, 2, 0, 1)
        root = relax.op.sqrt(sliced(call, column, 1, 0, 1))
        column = call.emit(relax.op.divide(column, root))
        above = [relax.const(np.zeros((count, k, 1)), "float64")] if k else []
        columns.append(call.emit(relax.op.concat([*above, column], 1)))
        if k < rows - 1:
            below = sliced(call, column, 1, 1)
            square = relax.op.multiply(below, _transposed(call, below))
            rest = sliced(call, sliced(call, x, 1, 1), 2, 1)
            x = call.emit(relax.op.subtract(rest, square))
    return call.emit(relax.op.concat(columns, 2))


def _substituted(call: OperatorCall, x: Any, y: Any, upper: bool, unit: bool = False) -> Any:
    """``z`` of ``x @ z = y`` for a triangle ``x``, row by row."""
    if upper:
        x = call.emit(relax.op.flip(relax.op.flip(x, 1), 2))
        y = call.emit(relax.op.flip(y, 1))
    count = shape_of(x)[1]
    rows = []
    for k in range(count):
        row = sliced(call, y, 1, 0, 1)
        below = sliced(call, sliced(call, x, 1, k), 2, k, k + 1)
        if not unit:
            row = call.emit(relax.op.divide(row, sliced(call, below, 1, 0, 1)))
        rows.append(row)
        if k < count - 1:
            known = relax.op.multiply(sliced(call, below, 1, 1), row)
            y = call.emit(relax.op.subtract(sliced(call, y, 1, 1), known))
    found = call.emit(relax.op.concat(rows, 1))
    return call.emit(relax.op.flip(found, 1)) if upper else found


def _triangular_solution(
    call: OperatorCall, x: Any, y: Any, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    if not left:
        x, y, upper = _transposed(call, x), _transposed(call, y), not upper
    x, y = (_batch(call, matrices, call.shape[:-2]) for matrices in (x, y))
    found = _substituted(call, x, y, upper, unitriangular)
    return _result(call, found if left else _transposed(call, found), call.shape)


def _solution_by_factor(call: OperatorCall, y: Any, factor: Any, upper: bool = False) -> Any:
    """``cholesky_solve``: ``factor @ factor.mT @ z = y``."""
    factor, y = (_batch(call, matrices, call.shape[:-2]) for matrices in (factor, y))
    lower = _transposed(call, factor) if upper else factor
    half = _substituted(call, lower, y, upper=False)
    found = _substituted(call, _transposed(call, lower), half, upper=True)
    return _result(call, found, call.shape)


def _inverse_by_factor(call: OperatorCall, factor: Any, upper: bool = False) -> Any:
    identity = call.reshape(_identity(call, _batch(call, factor)), call.shape)
    return _solution_by_factor(call, identity, factor, upper)


CONVERTERS: dict[str, Converter] = {
    "_linalg_det.default": _determinant,
    "_linalg_slogdet.default": _log_determinant,
    "linalg_inv_ex.default": _inverse,
    "_linalg_solve_ex.default": _solution,
    "linalg_cholesky_ex.default": _cholesky,
    "linalg_solve_triangular.default": _triangular_solution,
    "cholesky_solve.default": _solution_by_factor,
    "cholesky_inverse.default": _inverse_by_factor,
}
