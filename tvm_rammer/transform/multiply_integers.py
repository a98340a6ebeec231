"""A compiler pass that multiplies what a quantised model rounded as the integers that it is.

Between a change of scale and the next, a quantised model computes with floating-point numbers that
are 8-bit integers, less a zero point, times a scale. The sums of products of integers are exact,
and some vectors multiply neighbouring integers in one instruction: two of 16 bits, or four bytes,
those of the data without a sign. For pairs, data are kept as 16-bit integers without their zero
point. Bytes keep it, and what it adds to a sum, the same for all places, is subtracted. The scales
multiply the sums.

A model whose weights alone were rounded computes with floating-point numbers as they are. Where the
user allows it, the rows of its products are rounded to 8 bits here, each by a scale of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from tvm_rammer.relax_util import bound_value, calls_any, operator_name, rewrite, static_shape
from tvm_rammer.tensors import as_array, constant
from tvm_rammer.transform.integer_products import (
    BYTES,
    MATMUL,
    MOVING,
    IntegerProducts,
    Integers,
    SmallWeights,
    has_one_element,
    meets_zeros,
    small_integers,
    sums_of,
)
from tvm_rammer.transform.remove_dead_code import clean_up
from tvm_rammer.transform.scaled_bytes import ScaledBytes, scaled_bytes
from tvm_rammer.transform.scales import DEQUANTIZE, has_one_scale

_CONCAT, _SPLIT, _ROUND = "relax.concat", "relax.split", "relax.round"
_LARGEST = 255
#: Sums of 32 bits.
_MOST = np.iinfo(np.int32).max


#: What rounded rows have the largest magnitude of, and of a row of zeros its scale has this.
_MAGNITUDE, _TINY = 127, float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class _Scaled:
    """``integers * scale``, and times a scale for each row if there are such."""

    integers: Integers
    scale: np.float32
    row_scales: Any = None


@tvm.transform.module_pass(opt_level=0, name="MultiplyIntegers")
class MultiplyIntegers:
    """Rewrite products and convolutions of what was rounded with constant weights.

    Parameters
    ----------
    products : IntegerProducts
    round_data : bool
        Round what products of more than a few rows multiply.
    """

    def __init__(self, products: IntegerProducts, round_data: bool = False) -> None:
        self.products = products
        self.round_data = round_data

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        if not calls_any(mod, {MATMUL} if self.round_data else {DEQUANTIZE, _ROUND}):
            return mod
        return rewrite(mod, _Multiplier(mod, self.products, self.round_data), clean_up)


@relax.expr_functor.mutator
class _Multiplier(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, products: IntegerProducts, round_data: bool) -> None:
        super().__init__(mod)
        self.products = products
        self.round_data = round_data
        #: Data that were rounded here.
        self.rounded: dict[tuple[Any, int], _Scaled] = {}
        #: Of data that were asked for: what several operators read is made once.
        self.scaled: dict[tuple[Any, int], _Scaled | None] = {}
        self.weights: dict[Any, ScaledBytes | None] = {}
        #: Constants of the weights that several operators read.
        self.small: dict[tuple[Any, int], SmallWeights] = {}
        self.factors: dict[tuple[Any, np.float32], Any] = {}
        #: Splits of integers, by the split of what they stand for.
        self.splits: dict[tuple[Any, int], Integers] = {}

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        count = self.products.together(call)
        if count == 1 or any(str(each.ty.dtype) != "float32" for each in (*call.args, call)):
            return call
        weights = self._bytes_of(call)
        if weights is None:
            return call
        data = self._scaled_of(call.args[0], count)
        if data is None and self.round_data and self._has_many_rows(call):
            data = self._rounded_here(call.args[0], count)
        if data is None or (meets_zeros(call) and not isinstance(data.integers.point, int)):
            return call
        sums = sums_of(self.builder_.emit, call, data.integers, self._small(call, weights, count))
        result = relax.op.astype(self.builder_.emit(sums), "float32")
        for factor in (data.row_scales, self._factor(call, weights, data.scale)):
            if factor is not None:
                result = relax.op.multiply(self.builder_.emit(result), factor)
        return result

    def _has_many_rows(self, call: Any) -> bool:
        """Whether a call is a product of so many rows that it takes longer than to read weights."""
        shape = static_shape(call.args[0]) or ()
        return operator_name(call) == MATMUL and prod(shape[:-1]) > self.products.few_rows

    def _rounded_here(self, data: Any, count: int) -> _Scaled:
        """Rows as integers, the largest magnitude of each being 127. A NaN becomes some byte."""
        if (data, count) not in self.rounded:
            emit = self.builder_.emit
            largest = emit(relax.op.max(emit(relax.op.abs(data)), axis=-1, keepdims=True))
            step = relax.op.maximum(largest, constant(np.array(_TINY, np.float32)))
            step = emit(
                relax.op.multiply(emit(step), constant(np.array(1 / _MAGNITUDE, np.float32)))
            )
            whole = emit(relax.op.round(emit(relax.op.divide(data, step))))
            bytes_ = emit(relax.op.astype(whole, "int8"))
            integers = small_integers(emit, bytes_, 0, count)
            self.rounded[data, count] = _Scaled(integers, np.float32(1), step)
        return self.rounded[data, count]

    def _small(self, call: Any, weights: ScaledBytes, count: int) -> SmallWeights:
        key = call.args[1].value, count
        if key not in self.small:
            is_matrix, shape = operator_name(call) == MATMUL, static_shape(call.args[1])
            array = weights.values if is_matrix else weights.values.T.reshape(shape)
            self.small[key] = SmallWeights.of(call, array, count)
        return self.small[key]

    def _factor(self, call: Any, weights: ScaledBytes, scale: np.float32) -> Any:
        """What the sums are multiplied with; ``None`` if that is 1."""
        key = call.args[1].value, scale
        if key not in self.factors:
            product = np.asarray(scale if weights.scale is None else scale * weights.scale)
            self.factors[key] = None if np.all(product == 1) else constant(product)
        return self.factors[key]

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

    def _scaled_of(self, data: Any, count: int) -> _Scaled | None:
        if (data, count) not in self.scaled:
            self.scaled[data, count] = self._made(bound_value(self, data), count)
        return self.scaled[data, count]

    def _made(self, value: Any, count: int) -> _Scaled | None:
        name = operator_name(value)
        if isinstance(value, relax.TupleGetItem):
            return self._part(value, count)
        if name == DEQUANTIZE:
            return self._rounded(value, count)
        if name == "relax.subtract":
            return self._clipped(value, count)
        if name in MOVING:
            return self._moved(value, count)
        return self._joined(value, count) if name == _CONCAT else None

    def _moved(self, value: Any, count: int) -> _Scaled | None:
        found = self._scaled_of(value.args[0], count)
        if found is None:
            return None
        return _Scaled(found.integers.moved(self.builder_.emit, value), found.scale)

    def _joined(self, value: Any, count: int) -> _Scaled | None:
        parts = bound_value(self, value.args[0])
        found = [self._scaled_of(part, count) for part in getattr(parts, "fields", ())]
        known = [part for part in found if part is not None]
        steps = {(part.integers.point, part.scale) for part in known}
        if len(known) < len(found) or len(steps) != 1:
            return None
        ((point, scale),) = steps
        joined = relax.op.concat([part.integers.values for part in known], int(value.attrs.axis))
        return _Scaled(Integers(self.builder_.emit(joined), point), scale)

    def _part(self, item: Any, count: int) -> _Scaled | None:
        split = bound_value(self, item.tuple_value)
        if operator_name(split) != _SPLIT:
            return None
        found = self._scaled_of(split.args[0], count)
        if found is None:
            return None
        key = item.tuple_value, count
        if key not in self.splits:
            self.splits[key] = found.integers.moved(self.builder_.emit, split)
        parts = self.splits[key]
        part = self.builder_.emit(relax.TupleGetItem(parts.values, item.index))
        return _Scaled(Integers(part, parts.point), found.scale)

    def _clipped(self, difference: Any, count: int) -> _Scaled | None:
        """Floating-point numbers that are bytes less a byte of the run, as these:
        ``min(max(round(x / scale) + point, 0), 255) - point``, and ``point`` is within 0 and 255,
        as sums of 32 bits need it. A NaN becomes some byte.
        """
        inside, point = difference.args
        total = bound_value(self, self._between_bytes(inside))
        whole = bound_value(self, self._between_bytes(point))
        if operator_name(total) != "relax.add" or operator_name(whole) != _ROUND:
            return None
        if not all(each.same_as(point) or self._is_rounded(each) for each in total.args):
            return None
        emit = self.builder_.emit
        if not has_one_element(point) or point.ty.ndim > inside.ty.ndim:
            return None
        bytes_ = emit(relax.op.astype(inside, "uint8"))
        number = emit(relax.op.astype(point, "int32"))
        return _Scaled(small_integers(emit, bytes_, number, count), np.float32(1))

    def _between_bytes(self, expression: Any) -> Any:
        """What is kept within the values of a byte; ``None`` if an expression is no such thing."""
        low = self._operand_beside(expression, "relax.minimum", _LARGEST)
        return self._operand_beside(low, "relax.maximum", 0)

    def _operand_beside(self, expression: Any, name: str, number: int) -> Any:
        """The operand of an operator whose other one is a number; ``None`` if it is none such."""
        value = bound_value(self, expression)
        if operator_name(value) != name or not isinstance(value.args[1], GenericConst):
            return None
        return value.args[0] if np.all(as_array(value.args[1].value) == number) else None

    def _is_rounded(self, expression: Any) -> bool:
        return bool(operator_name(bound_value(self, expression)) == _ROUND)

    def _rounded(self, call: Any, count: int) -> _Scaled | None:
        """What becomes floating-point numbers."""
        data, *steps = call.args
        if not has_one_scale(call) or str(data.ty.dtype) not in BYTES:
            return None
        scale, point = (as_array(each.value).reshape(()) for each in steps)
        made = small_integers(self.builder_.emit, data, int(point), count)
        return _Scaled(made, np.float32(scale))
