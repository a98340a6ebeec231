"""Products of matrices."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_rammer.frontend.torch.converters.reduction import vector_norm
from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall


def _product(call: OperatorCall, x: Any, y: Any) -> Any:
    return call.emit(relax.op.matmul(call.cast(x), call.cast(y)))


def _product_and_sum(
    call: OperatorCall, added: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1
) -> Any:
    """``beta * added + alpha * (x @ y)``; with a beta of 0, ``added`` may hold anything."""
    product = _scaled(call, _product(call, x, y), alpha)
    if beta == 0:
        return product
    return call.emit(relax.op.add(product, _scaled(call, added, beta)))


def _scaled(call: OperatorCall, x: Any, factor: Any) -> Any:
    return x if factor == 1 else call.emit(relax.op.multiply(x, call.cast(factor)))


def _distances(call: OperatorCall, x: Any, y: Any, order: float, *_: Any) -> Any:
    rows = call.emit(relax.op.expand_dims(x, -2))
    columns = call.emit(relax.op.expand_dims(y, -3))
    return vector_norm(call, call.emit(relax.op.subtract(rows, columns)), order, [-1])


CONVERTERS: dict[str, Converter] = {
    "mm.default": _product,
    "bmm.default": _product,
    "mv.default": _product,
    "dot.default": _product,
    "addmm.default": _product_and_sum,
    "baddbmm.default": _product_and_sum,
    "_cdist_forward.default": _distances,
}
