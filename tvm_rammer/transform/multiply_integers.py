"""A compiler pass that multiplies what a quantised model rounded as the integers that it is.

Between a change of scale and the next, a quantised model computes with floating-point numbers that
are 8-bit integers, less a zero point, times a scale. The sums of products of integers are exact,
and vectors that multiply pairs of 16-bit integers take half as many instructions for them. So data
are kept as 16-bit integers without their zero point, which every reader can have, and the scales
multiply the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_rammer.relax_util import bound_value, calls_any, operator_name, rewrite, static_shape
from tvm_rammer.tensors import as_array, constant
from tvm_rammer.transform.integer_products import CONVOLUTION, gains_by_pairs, with_operands
from tvm_rammer.transform.remove_dead_code import clean_up
from tvm_rammer.transform.scaled_bytes import ScaledBytes, scaled_bytes
from tvm_rammer.transform.scales import DEQUANTIZE, has_one_scale

_CONCAT = "relax.concat"
#: Types whose numbers, less a number of the type, are integers of 16 bits.
_SMALL = frozenset({"int8", "uint8"})
_LARGEST = 255
#: Sums of 32 bits.
_MOST = np.iinfo(np.int32).max


@dataclass(frozen=True)
class _Integers:
    """``values * scale``, the values of 16 bits."""

    values: Any
    scale: np.float32


@tvm.transform.module_pass(opt_level=0, name="MultiplyIntegers")
class MultiplyIntegers:
    """Rewrite products and convolutions of what was rounded with constant weights.

    Parameters
    ----------
    few_rows : int
        A product with so many rows or fewer takes as long as reading its weights, and those are
        smaller as bytes.
    """

    def __init__(self, few_rows: int) -> None:
        self.few_rows = few_rows

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        if not calls_any(mod, {DEQUANTIZE}):
            return mod
        rewritten = rewrite(mod, _Multiplier(mod, self.few_rows))
        return mod if rewritten.same_as(mod) else clean_up(rewritten)


@relax.expr_functor.mutator
class _Multiplier(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, few_rows: int) -> None:
        super().__init__(mod)
        self.few_rows = few_rows
        #: Of data that were asked for: what several operators read is made once.
        self.integers: dict[Any, _Integers | None] = {}
        self.weights: dict[Any, ScaledBytes | None] = {}

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if not gains_by_pairs(call, self.few_rows):
            return call
        if any(str(each.ty.dtype) != "float32" for each in (*call.args, call)):
            return call
        weights = self._bytes_of(call)
        if weights is None:
            return call
        data = self._integers_of(call.args[0])
        if data is None:
            return call
        shape = static_shape(call.args[1])
        columns = weights.values.astype(np.int16)
        kernel = columns.T.reshape(shape) if operator_name(call) == CONVOLUTION else columns
        product = self.builder_.emit(with_operands(call, data.values, constant(kernel), "int32"))
        sums = self.builder_.emit(relax.op.astype(product, "float32"))
        scale = data.scale if weights.scale is None else data.scale * weights.scale
        return relax.op.multiply(sums, constant(np.asarray(scale, np.float32)))

    def _bytes_of(self, call: Any) -> ScaledBytes | None:
        """The weights as a matrix of bytes, if no sum can leave 32 bits."""
        weights = call.args[1].value
        if weights not in self.weights:
            array = as_array(weights)
            matrix = array.reshape(len(array), -1).T if array.ndim > 2 else array
            found = scaled_bytes(matrix)
            if found is not None:
                magnitudes = np.abs(found.values.astype(np.int64)).sum(axis=0)
                found = found if int(magnitudes.max()) * _LARGEST <= _MOST else None
            self.weights[weights] = found
        return self.weights[weights]

    def _integers_of(self, data: Any) -> _Integers | None:
        if data not in self.integers:
            self.integers[data] = self._made(bound_value(self, data))
        return self.integers[data]

    def _made(self, value: Any) -> _Integers | None:
        if operator_name(value) == DEQUANTIZE:
            return self._centred(value)
        if operator_name(value) != _CONCAT:
            return None
        parts = bound_value(self, value.args[0])
        found = [self._integers_of(part) for part in getattr(parts, "fields", ())]
        known = [part for part in found if part is not None]
        if not known or len(known) < len(found) or len({part.scale for part in known}) > 1:
            return None
        joined = relax.op.concat([part.values for part in known], int(value.attrs.axis))
        return _Integers(self.builder_.emit(joined), known[0].scale)

    def _centred(self, call: Any) -> _Integers | None:
        """What becomes floating-point numbers, less its zero point."""
        data, *steps = call.args
        if not has_one_scale(call) or str(data.ty.dtype) not in _SMALL:
            return None
        scale, point = (as_array(each.value).reshape(()) for each in steps)
        wide = relax.op.astype(data, "int16")
        if int(point):
            zero = constant(np.array(int(point), np.int16))
            wide = relax.op.subtract(self.builder_.emit(wide), zero)
        return _Integers(self.builder_.emit(wide), np.float32(scale))
