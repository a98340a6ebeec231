"""Compiler passes that turn calls of elementary functions into calls of our own vector code.

A call must stay a call until loops are vectorised and expressions are simplified: as arithmetic it
would be copied wherever TVM copies an expression. So before vectorisation
:class:`NameElementaryFunctions` makes it the call of an operator of ours, which, unlike some of
TVM's, may have vectors as arguments; and in the end :class:`LinkElementaryFunctions` gives each
number of lanes its own function as LLVM IR text, which LLVM inlines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op

from tvm_rammer.backend.cpu.codegen import vector_math
from tvm_rammer.backend.cpu.codegen.vector_math_text import Value, function_text
from tvm_rammer.kernel.lowering.with_bodies import with_bodies, with_text

#: What there is vector code for, by the last part of the name of TVM's operator.
_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": vector_math.exp,
    "exp2": vector_math.exp2,
    "log": vector_math.log,
    "log2": vector_math.log2,
    "log10": vector_math.log10,
    "sigmoid": vector_math.sigmoid,
    "tanh": vector_math.tanh,
    "erf": vector_math.erf,
    "nearbyint": vector_math.nearbyint,
    "rsqrt": vector_math.rsqrt,
    "pow": vector_math.power,
    "sin": vector_math.sin,
    "cos": vector_math.cos,
}
#: What TVM 0.27 cannot generate code for, and what libm calls it, by type.
_OF_LIBM = {
    f"tirx.{short}": {"float32": f"{short}f", "float64": short} for short in ("sinh", "cosh")
}
#: Where TVM keeps operators of scalars, and where we keep ours.
_SPACES, _OURS = ("tirx.", "prim."), "tvm_rammer."
_REGISTERING = Lock()


@cache
def _operators() -> dict[str, Op]:
    """Our operator for each of TVM's: pure, and vectors are welcome."""
    pure = Op.get("tirx.exp").get_attr("TCallEffectKind")
    # Shards of a module are lowered side by side, and an attribute may be registered only once.
    with _REGISTERING:
        known = set(Op.list_op_names())
        for short in _FUNCTIONS:
            if _OURS + short not in known:
                tvm.ir.register_op_attr(_OURS + short, "TVectorizable", True)
                tvm.ir.register_op_attr(_OURS + short, "TCallEffectKind", pure)
    return {space + short: Op.get(_OURS + short) for space in _SPACES for short in _FUNCTIONS}


@tvm.transform.module_pass(opt_level=0, name="NameElementaryFunctions")
class NameElementaryFunctions:
    """Replace calls of TVM's elementary functions of float32 by calls of our operators."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        operators = _operators()

        def rename(call: Any) -> Any:
            name = getattr(call.op, "name", "")
            if symbol := _OF_LIBM.get(name, {}).get(str(call.ty)):
                return tirx.call_pure_extern(call.ty, symbol, *call.args)
            operator = operators.get(name)
            if operator is None or _lanes(call) is None:
                return call
            return Call(operator, call.args, ret_ty=call.ty)

        return _with_calls(mod, rename)


@tvm.transform.module_pass(opt_level=0, name="LinkElementaryFunctions")
class LinkElementaryFunctions:
    """Replace calls of our operators by calls of LLVM functions, and import their text."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        texts: dict[str, str] = {}
        called: set[str] = set()

        def link(call: Any) -> Any:
            name, lanes = getattr(call.op, "name", ""), _lanes(call)
            if not name.startswith(_OURS) or lanes is None:
                return call
            short, function, arguments = _chosen(name.removeprefix(_OURS), list(call.args))
            symbol = f"rammer_{short}_f32x{lanes}"
            if symbol not in texts:
                texts[symbol], used = function_text(symbol, function, len(arguments), lanes)
                called.update(used)
            return tirx.call_pure_extern(call.ty, symbol, *arguments)

        linked = _with_calls(mod, link)
        return with_text(linked, "\n".join([*sorted(called), *texts.values()]))


def _lanes(call: Any) -> int | None:
    """How many lanes of float32 a call computes."""
    dtype = str(call.ty)
    if dtype == "float32":
        return 1
    head, _, lanes = dtype.partition("x")
    return int(lanes) if head == "float32" and lanes.isdecimal() else None


def _chosen(short: str, arguments: list[Any]) -> tuple[str, Callable[..., Value], list[Any]]:
    """The function behind an operator: a power with a plain exponent has one of its own."""
    if short == "pow":
        quarters = _quarters(arguments[1])
        if quarters in vector_math.QUARTERS:
            sign = "minus_" if quarters < 0 else ""
            function = vector_math.power_by_roots(quarters)
            return f"power_{sign}{abs(quarters)}_quarters", function, arguments[:1]
    return short, _FUNCTIONS[short], arguments


def _quarters(exponent: Any) -> int:
    """An exponent in quarters, or 0 where it is none, or not known."""
    if isinstance(exponent, tirx.Broadcast):
        exponent = exponent.value
    if not isinstance(exponent, tirx.FloatImm):
        return 0
    quarters = 4 * float(exponent.value)
    return int(quarters) if quarters.is_integer() else 0


def _with_calls(mod: tvm.IRModule, rewrite: Callable[[Any], Any]) -> tvm.IRModule:
    """A module whose PrimFuncs have other calls."""
    return with_bodies(mod, lambda body: tvm_ffi.structural_map(body, (Call, rewrite)))
