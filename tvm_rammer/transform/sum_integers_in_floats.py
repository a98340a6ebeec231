"""A compiler pass that sums products of small integers faster than in 32 bits, and as exactly.

Processors multiply and add floating-point numbers in one instruction; products of 32-bit integers
take two slow ones. A quantised model's factors are integers of 8 bits, and as long as no sum of
their magnitudes reaches 2**24, float32 has every partial sum, in whatever order: the result is the
same to the last bit. Longer sums stay with integers. Where vectors multiply pairs of 16-bit
integers, those sums take half as many instructions again, whatever their length.
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
    CONVOLUTIONS,
    MATMUL,
    gains_by_pairs,
    with_operands,
)

#: float32 has every integer up to this one.
_EXACT = 2**24
#: Operators whose results are elements of their first operand.
_MOVING = frozenset(
    f"relax.{name}"
    for name in ("permute_dims", "reshape", "squeeze", "expand_dims", "strided_slice")
)

#: How many operators between a product and integers of known size are looked through.
_DEPTH = 16

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
    few_rows : int, optional
        Given where products of 16-bit integers are taken in pairs: those with more rows than this
        are worth it.
    """

    def __init__(self, few_rows: int | None = None) -> None:
        self.few_rows = few_rows

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        if not any(map(_sums_integers, calls_of(mod))):
            return mod
        return rewrite(mod, _Converter(mod, self.few_rows))


@relax.expr_functor.mutator
class _Converter(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, few_rows: int | None) -> None:
        super().__init__(mod)
        self.few_rows = few_rows
        #: Operands of other types; those that several operators read are converted once.
        self.converted: dict[tuple[Any, str], Any] = {}
        #: Of expressions that were asked for.
        self.limits: dict[Any, Limits | None] = {}

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if not _sums_integers(call):
            return call
        if self._are_pairs(call):
            return with_operands(call, *self._all_as(call, "int16"), "int32")
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

    def _are_pairs(self, call: Any) -> bool:
        """Whether the factors are of 16 bits, and their products faster in pairs."""
        if self.few_rows is None or not gains_by_pairs(call, self.few_rows):
            return False
        least, most = _LIMITS["int16"]
        limits = [self._limits(operand) for operand in call.args]
        return all(each is not None and least <= each[0] and each[1] <= most for each in limits)

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
        if name == "relax.astype" or name in _MOVING:
            return self._limits(value.args[0], depth - 1)
        if name in ("relax.add", "relax.subtract"):
            return _combined(name, [self._limits(operand, depth - 1) for operand in value.args])
        return None


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
