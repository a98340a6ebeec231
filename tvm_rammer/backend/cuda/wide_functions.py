"""Functions of float16 are computed in float32, and their results rounded.

CUDA's header has some functions of half precision, TVM writes a few more before its kernels, and
the rest no compiler finds. Those of the header compute in float32 themselves.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, PrimType

_HALF, _WIDE = "float16", "float32"
#: Functions of the real numbers, by their names after ``tirx.``.
_FUNCTIONS = frozenset(
    {
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos"),
        *("cosh", "erf", "exp", "exp10", "exp2", "fabs", "floor", "fmod", "hypot", "isfinite"),
        *("isinf", "isnan", "ldexp", "log", "log10", "log1p", "log2", "nearbyint", "nextafter"),
        *("pow", "round", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
    }
)


def with_wide_functions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A PrimFunc that calls no function of float16; itself if it calls none."""

    def widened(call: Any) -> Any:
        if not isinstance(call.op, Op) or call.op.name.removeprefix("tirx.") not in _FUNCTIONS:
            return call
        if not any(_is_half(argument) for argument in call.args):
            return call
        arguments = [each.astype(_wide(each)) if _is_half(each) else each for each in call.args]
        result = Call(call.op, arguments, attrs=call.attrs, ret_ty=PrimType(_wide(call)))
        return result.astype(str(call.ty)) if _is_half(call) else result

    body = tvm_ffi.structural_map(func.body, (Call, widened))
    return func if body.same_as(func.body) else func.with_body(body)


def _is_half(value: Any) -> bool:
    return str(getattr(value, "ty", "")).partition("x")[0] == _HALF


def _wide(value: Any) -> str:
    return str(value.ty).replace(_HALF, _WIDE)
