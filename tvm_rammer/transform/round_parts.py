"""A compiler pass that rounds the operands of a concatenation instead of its result.

Quantised networks change the scale of whatever a concatenation makes, which is one more operator
over all of it. Its operands come from operators that round already: there a second rounding costs
next to nothing, and none if both have the same steps, as ONNX's quantisers see to for one operand
at least. Then the operands are made where they belong, and the concatenation is nobody's work.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call

from tvm_rammer.relax_util import (
    bound_value,
    calls_any,
    operator_name,
    rewrite,
    used_once,
)
from tvm_rammer.transform.remove_dead_code import clean_up
from tvm_rammer.transform.scales import DEQUANTIZE, QUANTIZE, has_one_scale

_CONCAT = "relax.concat"
#: Steps of these types, times a scale and divided by it again, are nearer to themselves than to any
#: other, unless float32 does not hold the scale or the largest number to full precision.
_STEPS = frozenset({"int8", "uint8", "int16", "uint16"})
_FLOAT32 = np.finfo(np.float32)


@tvm.transform.module_pass(opt_level=0, name="RoundParts")
class RoundParts:
    """Change the scale of what is concatenated, and drop changes that change nothing."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Rounder(mod), clean_up) if calls_any(mod, {QUANTIZE}) else mod


@relax.expr_functor.mutator
class _Rounder(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.used_once = used_once(mod)

    def visit_call_(self, call: Any) -> Any:
        if operator_name(call) not in (QUANTIZE, DEQUANTIZE):
            return super().visit_call_(call)
        is_only_reader = call.args[0] in self.used_once
        call = super().visit_call_(call)
        if not has_one_scale(call):
            return call
        made = bound_value(self, call.args[0])
        parts = bound_value(self, made.args[0]) if operator_name(made) == _CONCAT else None
        if is_only_reader and isinstance(parts, relax.Tuple):
            changed = [self.builder_.emit(self._changed(call, part)) for part in parts.fields]
            return relax.op.concat(changed, int(made.attrs.axis))
        return self._changed(call, call.args[0])

    def _changed(self, call: Any, data: Any) -> Any:
        """Other data in another scale."""
        before = bound_value(self, data)
        if operator_name(before) == DEQUANTIZE and _is_undone(before, call):
            return before.args[0]
        if data.same_as(call.args[0]):
            return call
        return self.builder_.normalize(Call(call.op, [data, *call.args[1:]], call.attrs))


def _is_undone(dequantize: Any, quantize: Any) -> bool:
    """Whether steps that become numbers become the same steps again."""
    if operator_name(quantize) != QUANTIZE or not has_one_scale(dequantize):
        return False
    dtype = str(dequantize.args[0].ty.dtype)
    if dtype not in _STEPS or str(quantize.attrs.out_dtype) != dtype:
        return False
    (scale, point), (other, other_point) = (
        [each.value.numpy().reshape(()) for each in call.args[1:]]
        for call in (dequantize, quantize)
    )
    same = scale == other and int(point) == int(other_point)
    largest = np.float64(scale) * np.iinfo("uint16").max
    return bool(same and scale >= _FLOAT32.tiny and largest <= _FLOAT32.max)
