"""A compiler pass that lets NaN through maxima and minima, as in ReLU, Clip and of two tensors.

TVM computes ``max(a, b)`` as ``a > b ? a : b``, whose result is ``b`` if either is NaN.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_rammer.kernel.blocks import distinct, loads
from tvm_rammer.kernel.lowering.llvm_file import llvm_file
from tvm_rammer.kernel.lowering.with_bodies import with_bodies, with_text

_COMPARISONS = (tirx.Max, tirx.Min)
_STATEMENTS = (tirx.BufferStore, tirx.Bind)
_INTRINSICS = {tirx.Max: "maximum", tirx.Min: "minimum"}
#: What LLVM calls a type, in the text and in the names of intrinsics.
_ELEMENTS = {"float16": ("half", "f16"), "float32": ("float", "f32"), "float64": ("double", "f64")}


@tvm.transform.module_pass(opt_level=0, name="KeepNaN")
class KeepNaN:
    """Put constants first, and call LLVM's own functions for two values that are not known.

    ``max(x, 0)`` becomes ``max(0, x)``, which is one instruction on x86 either way. What reduces
    stays, ``y[i] = max(y[i], x[j])`` and the maximum of a window, which are bound by computing:
    three instructions instead of one would take up to half as long again.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        texts: dict[str, str] = {}

        def kept(compared: Any) -> Any:
            turned = _turned(compared)
            if _is_constant(turned.a) or str(turned.ty).partition("x")[0] not in _ELEMENTS:
                return turned
            symbol, text = _function(_INTRINSICS[type(compared)], str(compared.ty))
            texts[symbol] = text
            return tirx.call_pure_extern(compared.ty, symbol, compared.a, compared.b)

        comparisons: list[Any] = []

        def seen(comparison: Any) -> Any:
            comparisons.append(comparison)
            return comparison

        def rewritten(statement: Any) -> Any:
            # Operands come before the statement, and few statements compare anything.
            if not comparisons:
                return statement
            comparisons.clear()
            reduces = isinstance(statement, tirx.BufferStore) and (
                _accumulates(statement) or _has_window(statement.value)
            )
            change = _turned if reduces else kept
            return tvm_ffi.structural_map(statement, (_COMPARISONS, change))

        rewrites = ((_COMPARISONS, seen), (_STATEMENTS, rewritten))
        mod = with_bodies(mod, lambda body: tvm_ffi.structural_map(body, rewrites))
        return with_text(mod, "\n".join(texts.values()))


def _turned(compared: Any) -> Any:
    return type(compared)(compared.b, compared.a) if _is_constant(compared.b) else compared


def _accumulates(store: tirx.BufferStore) -> bool:
    """Whether a store adds to what it finds."""
    return isinstance(store.value, _COMPARISONS) and any(
        load.source.same_as(store.buffer) for load in loads(store.value)
    )


def _has_window(value: Any) -> bool:
    """Whether a value has a maximum, or minimum, of more than two elements of one tensor."""
    nests: list[Any] = []
    tvm_ffi.structural_walk(value, (_COMPARISONS, nests.append))
    return any(_is_window(nest) for nest in nests)


def _is_window(nest: Any) -> bool:
    leaves = _leaves(nest, type(nest))
    sources = [distinct(load.source for load in loads(leaf)) for leaf in leaves]
    return len(leaves) > 2 and bool(sources[0]) and all(s == sources[0] for s in sources)


def _leaves(value: Any, kind: Any) -> list[Any]:
    if not isinstance(value, kind):
        return [value]
    return [*_leaves(value.a, kind), *_leaves(value.b, kind)]


def _is_constant(value: Any) -> bool:
    return isinstance(value.value if isinstance(value, tirx.Broadcast) else value, tirx.FloatImm)


def _function(name: str, dtype: str) -> tuple[str, str]:
    """A function on a type of TVM's: its symbol and its text."""
    element, _, lanes = dtype.partition("x")
    type_, short = _ELEMENTS[element]
    suffix = f"v{lanes}{short}" if lanes else short
    symbol = f"rammer_{name}_{suffix}"
    type_ = f"<{lanes} x {type_}>" if lanes else type_
    values = {"type": type_, "suffix": suffix, "symbol": symbol, "operation": name}
    return symbol, llvm_file("tvm_rammer.kernel.lowering", "extremum", **values)
