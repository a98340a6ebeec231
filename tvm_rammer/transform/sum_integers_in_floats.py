"""A compiler pass that sums products of small integers faster than in 32 bits, and as exactly.

Processors multiply and add floating-point numbers in one instruction; products of 32-bit integers
take two slow ones. A quantised model's factors are integers of 8 bits, and as long as no sum of
their magnitudes reaches 2**24, float32 has every partial sum, in whatever order: the result is the
same to the last bit. Longer sums stay with integers. Where vectors multiply neighbouring integers,
two of 16 bits or four bytes, sums take a half or a quarter of the instructions, whatever their
length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from tvm_rammer.relax_util import bound_value, calls_of, operator_name, rewrite, static_shape
from tvm_rammer.tensors import as_array, constant
from tvm_rammer.transform.integer_products import (
    BYTES,
    CONVOLUTIONS,
    FOUR,
    MATMUL,
    MOVING,
    PAIR,
    IntegerProducts,
    Integers,
    SmallWeights,
    has_one_element,
    meets_zeros,
    small_integers,
    sums_of,
    with_operands,
)
from tvm_rammer.transform.remove_dead_code import clean_up

#: float32 has every integer up to this one.
_EXACT = 2**24

_CAST = "relax.astype"
#: Values of a byte.
_BYTE = 256

#: How many operators between a product and integers of known size are looked through.
_DEPTH = 16

_NONE = IntegerProducts()

Limits = tuple[int, int]
#: Of types that are small.
_LIMITS: dict[str, Limits] = {
    dtype: (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    for dtype in ("int8", "uint8", "int16", "uint16")
}


@tvm.transform.module_pass(opt_level=0, name="SumIntegersInFloats")
class SumIntegersInFloats:
    """Rewrite products and convolutions of small integers.

    Parameters
    ----------
    products : IntegerProducts
        Which are made of several at once.
    """

    def __init__(self, products: IntegerProducts = _NONE) -> None:
        self.products = products

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        if not any(map(_sums_integers, calls_of(mod))):
            return mod
        return rewrite(mod, _Converter(mod, self.products), clean_up)


@relax.expr_functor.mutator
class _Converter(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, products: IntegerProducts) -> None:
        super().__init__(mod)
        self.products = products
        #: Operands of other types; those that several operators read are converted once.
        self.converted: dict[tuple[Any, str], Any] = {}
        self.bytes: dict[Any, Integers | None] = {}
        self.small: dict[tuple[Any, int], SmallWeights] = {}
        #: Of expressions that were asked for.
        self.limits: dict[Any, Limits | None] = {}

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if not _sums_integers(call):
            return call
        sums = self._of_neighbours(call)
        if sums is not None:
            return sums
        if self._largest_sum(call) >= _EXACT:
            return call
        product = self.builder_.emit(with_operands(call, *self._all_as(call, "float32")))
        return relax.op.astype(product, "int32")

    def _all_as(self, call: Any, dtype: str) -> tuple[Any, Any]:
        data, weights = (self._as(operand, dtype) for operand in call.args)
        return data, weights

    def _as(self, operand: Any, dtype: str) -> Any:
        if isinstance(operand, GenericConst):
            return constant(as_array(operand.value).astype(dtype))
        if (operand, dtype) not in self.converted:
            made = self.builder_.emit(relax.op.astype(operand, dtype))
            self.converted[operand, dtype] = made
        return self.converted[operand, dtype]

    def _of_neighbours(self, call: Any) -> Any:
        """The sums of several products at once, ``None`` where that does not pay."""
        emit, (data, weights) = self.builder_.emit, call.args
        if self.products.together(call) == FOUR and self._are_in(weights, "int8"):
            found = self._bytes_of(data)
            if found is not None and (_is_byte(found.point) or not meets_zeros(call)):
                return sums_of(emit, call, found, self._small(call, FOUR))
        if self.products.together(call, PAIR) == 1 or not self._are_in(weights, "int16"):
            return None
        if not self._are_in(data, "int16"):
            return None
        small = Integers(self._as(data, "int16"))
        return sums_of(emit, call, small, self._small(call, PAIR))

    def _small(self, call: Any, count: int) -> SmallWeights:
        key = call.args[1].value, count
        if key not in self.small:
            self.small[key] = SmallWeights.of(call, as_array(key[0]), count)
        return self.small[key]

    def _are_in(self, operand: Any, dtype: str) -> bool:
        """Whether a type has every integer that an operand can be."""
        (least, most), limits = _LIMITS[dtype], self._limits(operand)
        return limits is not None and least <= limits[0] and limits[1] <= most

    def _bytes_of(self, data: Any, depth: int = _DEPTH) -> Integers | None:
        """Bytes less a point, if an expression is that."""
        if data not in self.bytes:
            self.bytes[data] = self._found_bytes(data, depth)
        return self.bytes[data]

    def _found_bytes(self, data: Any, depth: int) -> Integers | None:
        value, emit = bound_value(self, data), self.builder_.emit
        name, operands = operator_name(value), list(getattr(value, "args", ()))
        if name in MOVING and depth:
            found = self._bytes_of(operands[0], depth - 1)
            return None if found is None else found.moved(emit, value)
        if name == _CAST and str(operands[0].ty.dtype) in BYTES:
            return small_integers(emit, operands[0], 0, FOUR)
        if name != "relax.subtract" or not has_one_element(operands[1]):
            return None
        cast, point = bound_value(self, operands[0]), operands[1]
        if operator_name(cast) != _CAST or str(cast.args[0].ty.dtype) not in BYTES:
            return None
        if isinstance(point, GenericConst):
            point = int(as_array(point.value).item())
        return small_integers(emit, cast.args[0], point, FOUR)

    def _largest_sum(self, call: Any) -> float:
        """What no sum of a product's magnitudes exceeds."""
        (data, weights), limits = call.args, [self._limits(operand) for operand in call.args]
        if None in limits:
            return np.inf
        largest, other = (max(map(abs, each)) for each in limits if each is not None)
        if isinstance(weights, GenericConst):
            summed = _axes_of_sums(call)
            magnitudes = np.abs(as_array(weights.value).astype(np.int64)).sum(axis=summed)
            return float(largest * int(magnitudes.max(initial=0)))
        count = static_shape(data) if operator_name(call) == MATMUL else None
        return float(largest * other * count[-1]) if count else np.inf

    def _limits(self, expression: Any, depth: int = _DEPTH) -> Limits | None:
        """The least and the largest integer that an expression can be, ``None`` if any."""
        if expression not in self.limits:
            self.limits[expression] = self._computed_limits(expression, depth)
        return self.limits[expression]

    def _computed_limits(self, expression: Any, depth: int) -> Limits | None:
        value, dtype = bound_value(self, expression), str(expression.ty.dtype)
        if dtype in _LIMITS or depth == 0 or not dtype.startswith("int"):
            return _LIMITS.get(dtype)
        if isinstance(value, GenericConst):
            array = as_array(value.value)
            return (int(array.min()), int(array.max())) if array.size else (0, 0)
        name = operator_name(value)
        if name == _CAST or name in MOVING:
            return self._limits(value.args[0], depth - 1)
        if name in ("relax.add", "relax.subtract"):
            return _combined(name, [self._limits(operand, depth - 1) for operand in value.args])
        return None


def _is_byte(point: Any) -> bool:
    """Whether a zero point is known, and a byte without a sign."""
    return isinstance(point, int) and 0 <= point < _BYTE


def _sums_integers(call: Any) -> bool:
    """Whether a call is a product or a convolution of integers of 32 bits."""
    if operator_name(call) not in (MATMUL, *CONVOLUTIONS):
        return False
    plain = all(isinstance(each.ty, relax.TensorType) for each in (*call.args, call))
    return plain and all(str(each.ty.dtype) == "int32" for each in (*call.args, call))


def _axes_of_sums(call: Any) -> tuple[int, ...]:
    """The axes of the weights that are summed over."""
    weights = call.args[1]
    rank = weights.ty.ndim
    if operator_name(call) == MATMUL:
        return (max(0, rank - 2),)
    outputs = str(call.attrs.kernel_layout).index("O")
    return tuple(axis for axis in range(rank) if axis != outputs)


def _combined(name: str, limits: list[Limits | None]) -> Limits | None:
    left, right = limits
    if left is None or right is None:
        return None
    low, high = right if name == "relax.add" else (-right[1], -right[0])
    return left[0] + low, left[1] + high
