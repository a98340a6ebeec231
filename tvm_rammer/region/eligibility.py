"""Which bindings of a Relax function can be planned, and the reason for those that cannot."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, GlobalVar, Op

from tvm_rammer.kernel.nodes import collect
from tvm_rammer.relax_util import operator_name, static_shape, type_shape

#: The reason of bindings that compute nothing: tuples, their items, copies.
NO_OPERATOR = "no operator"

_DTYPES = frozenset(
    [
        *("float16", "float32", "float64", "bfloat16", "bool"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    ]
)


def reason_to_leave_out(value: Any, mod: tvm.IRModule) -> str | None:
    """Why a bound value is no operator of a plan; ``None`` when it is one.

    Parameters
    ----------
    value : relax.Expr
        The right-hand side of a binding.
    mod : IRModule
        Where its PrimFunc is found.
    """
    if isinstance(value, relax.If):
        return "control flow"
    if not isinstance(value, Call):
        return NO_OPERATOR
    name = operator_name(value)
    if name == "relax.call_tir_inplace":
        return "in-place call"
    if name in ("relax.call_dps_packed", "relax.call_pure_packed", "relax.call_packed"):
        return "packed call"
    if isinstance(value.op, relax.ExternFunc):
        return "packed call"
    if isinstance(value.op, GlobalVar | relax.Var):
        return "function call"
    if name != "relax.call_tir":
        return "dynamic shape" if _is_dynamic(value) else f"operator without a PrimFunc ({name})"
    return _reason_of_call_tir(value, mod)


def _reason_of_call_tir(call: Any, mod: tvm.IRModule) -> str | None:
    if len(call.args) != 2 or _is_dynamic(call):
        return "dynamic shape"
    for argument in call.args[1].fields[:]:
        if not isinstance(argument, relax.Var | GenericConst):
            return "argument that is no tensor"
        if static_shape(argument) is None:
            return "dynamic shape"
    return _reason_of_function(mod[call.args[0]])


@lru_cache(maxsize=256)
def _reason_of_function(func: tirx.PrimFunc) -> str | None:
    """Of a PrimFunc: an unrolled network calls a few of them thousands of times."""
    for dtype in _dtypes(func):
        if dtype not in _DTYPES:
            return f"dtype {dtype}"
    return "packed call" if _calls_out(func) else None


def result_types(call: Any) -> list[Any]:
    """The tensor types that a ``call_tir`` returns."""
    ty = call.ty_args[0]
    return list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]


def _is_dynamic(call: Any) -> bool:
    if operator_name(call) == "relax.call_tir":
        return any(type_shape(ty) is None for ty in result_types(call))
    return isinstance(call.ty, relax.TensorType) and type_shape(call.ty) is None


def _dtypes(func: tirx.PrimFunc) -> list[str]:
    return [str(param.dtype) for param in func.params]


_CALLS_OUT = frozenset(
    f"tirx.{name}"
    for name in ("tvm_call_packed", "tvm_call_cpacked", "call_extern", "call_llvm_intrin")
)


def _calls_out(func: tirx.PrimFunc) -> bool:
    """Whether a PrimFunc calls functions outside of it (sorting, for example)."""
    calls = collect(func.body, Call)
    return any(isinstance(call.op, Op) and call.op.name in _CALLS_OUT for call in calls)
