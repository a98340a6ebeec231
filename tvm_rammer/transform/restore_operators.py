"""A compiler pass that makes operators again of what an importer has lowered.

TVM's ONNX importer hands over Clip and Pad as ``call_tir`` of a PrimFunc. No layout is known for
these, so that both sides are transposed, and limits that are tensors lose NaN. A PrimFunc is an
operator if it is, but for names, what TVM makes of that operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, sym, tirx, topi
from tvm.ir import TensorLoad

from tvm_rammer.kernel.blocks import is_choice
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.relax_util import calls_any, operator_name, rewrite, static_shape
from tvm_rammer.transform.remove_dead_code import remove_dead_code

_COMPARISONS = {
    tirx.Max: (topi.maximum, relax.op.maximum),
    tirx.Min: (topi.minimum, relax.op.minimum),
}


@tvm.transform.module_pass(opt_level=0, name="RestoreOperators")
class RestoreOperators:
    """Restore maxima, minima and paddings."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        if not calls_any(mod, {"relax.call_tir"}):
            return mod
        return rewrite(mod, _Restorer(mod), remove_dead_code)


@dataclass(frozen=True)
class _Guess:
    """What a PrimFunc may be: as a computation on tensors, and as an operator."""

    compute: Callable[..., Any]
    operator: Callable[..., Any]


@relax.expr_functor.mutator
class _Restorer(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.module = mod
        self.known: dict[Any, _Guess | None] = {}

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if operator_name(call) != "relax.call_tir" or len(call.args) != 2:
            return call
        symbol, operands = call.args[0], list(call.args[1].fields)
        if symbol not in self.known:
            self.known[symbol] = _operator(self.module[symbol], [*operands, call])
        guess = self.known[symbol]
        return call if guess is None else self.builder_.normalize(guess.operator(*operands))


def _operator(func: Any, values: Sequence[Any]) -> _Guess | None:
    """What a PrimFunc is, given its operands and its result; none that passes have seen."""
    prepared = func.attrs and "op_pattern" in func.attrs
    if prepared or any(static_shape(value) is None for value in values):
        return None
    guess = _guess(func)
    if guess is None:
        return None
    operands = [relax.Var(f"operand{k}", value.ty) for k, value in enumerate(values[:-1])]
    builder = relax.BlockBuilder()
    with builder.function("main", operands):
        made = builder.emit_te(guess.compute, *operands, primfunc_name_hint="made")
        builder.emit_func_output(made)
    return guess if tvm_ffi.structural_equal(builder.get()["made"].body, func.body, True) else None


def _guess(func: Any) -> _Guess | None:
    stores = collect(func.body, tirx.BufferStore)
    if len(stores) != 1:
        return None
    value = stores[0].value
    if type(value) in _COMPARISONS:
        compute, operator = _COMPARISONS[type(value)]
        if isinstance(value.b, TensorLoad):
            return _Guess(compute, operator)
        if isinstance(value.b, tirx.FloatImm | tirx.IntImm):
            limit = value.b.value
            constant = relax.const(limit, str(value.ty))
            return _Guess(lambda x: compute(x, limit), lambda x: operator(x, constant))
    if is_choice(value) and isinstance(value.args[1], TensorLoad):
        return _padding(stores[0], *value.args[1:])
    return None


def _padding(store: Any, load: Any, value: Any) -> _Guess | None:
    steps = [
        sym.Analyzer().simplify(place - index)
        for place, index in zip(store.indices, load.indices, strict=True)
    ]
    if not all(isinstance(step, tirx.IntImm) for step in steps) or not isinstance(
        value, tirx.FloatImm
    ):
        return None
    before = [int(step) for step in steps]
    shapes = (store.buffer.shape, load.source.shape)
    after = [int(n) - int(m) - k for n, m, k in zip(*shapes, before, strict=True)]
    number = float(value.value)
    widths = [width for pair in zip(before, after, strict=True) for width in pair]
    return _Guess(
        lambda x: topi.nn.pad(x, before, after, number),
        lambda x: relax.op.nn.pad(x, widths, "constant", number),
    )
