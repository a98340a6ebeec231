"""Operators that TVM has no code for in floats of 16 bits are computed in float32, and rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from tvm_rammer.frontend.torch.operator_call import (
    OperatorCall,
    dtype_of,
    tvm_dtype,
    wide_dtype,
)

#: Functions that processors have in 32 bits only.
_FUNCTIONS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "cosh", "sinh", "erfc", "erfinv"),
    *("lgamma", "digamma", "i0", "special_i0e", "special_i1", "special_i1e", "special_erfcx"),
    "special_ndtri",
)
#: What tests for NaN, divides, or compares with more than one number at a time; of bfloat16 alone.
_OF_BFLOAT16 = (
    *("argmax", "argmin", "cummax", "cummin", "div", "floor_divide", "fmax", "fmin", "fmod"),
    *("isinf", "isnan", "ldexp", "log1p", "logaddexp", "maximum", "minimum", "nan_to_num"),
    *("pow", "remainder", "searchsorted", "softplus"),
)
_WIDENED = {"float16": frozenset(_FUNCTIONS), "bfloat16": frozenset((*_FUNCTIONS, *_OF_BFLOAT16))}


class _WideCall(OperatorCall):
    """A call whose result is wider than the node says."""

    @property
    def dtype(self) -> str:
        return wide_dtype(super().dtype)


def widened(name: str, call: OperatorCall, arguments: list[Any]) -> bool:
    """Whether an operator is computed in float32, of which some operands have 16 bits."""
    operator = name.partition(".")[0].strip("_")
    given = [dtype_of(value) for value in arguments if isinstance(value, relax.Expr)]
    return any(operator in _WIDENED.get(dtype, ()) for dtype in (*given, call.dtype))


def in_float32(
    converter: Callable[..., Any], call: OperatorCall, builder: Any, arguments: list[Any]
) -> Any:
    """The result of a converter that is given float32, in the types that PyTorch has."""
    values = [call.wide(v) if isinstance(v, relax.Expr) else v for v in arguments]
    found = converter(_WideCall(call.node, builder), *values)
    types = call.node.meta["val"]
    if not isinstance(found, list):
        return call.cast(found, tvm_dtype(types.dtype))
    return [call.cast(value, tvm_dtype(ty.dtype)) for value, ty in zip(found, types, strict=False)]
