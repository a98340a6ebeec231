"""A compiler pass that rewrites operators which importers leave behind into plainer ones.

What remains is what layout conversion, fusion and the kernels understand: no dropout, a batch norm
by constants is a multiplication and an addition, sums and maxima of stacked tensors become those of
two, constants of binary operators get the rank of the other side, exponents of one number are
scalars, and powers of 3 and 4 products, scales and zero points are operands, a broadcast to the
shape that a tensor already has disappears, as does the replacing of no elements, and a tensor that
becomes a shape is what the VM has for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst

from tvm_rammer.errors import ModelError
from tvm_rammer.relax_util import bound_value, operator_name, rewrite, static_shape
from tvm_rammer.tensors import constant
from tvm_rammer.transform.remove_dead_code import clean_up
from tvm_rammer.transform.scales import DEQUANTIZE, QUANTIZE

_BINARY = frozenset(
    f"relax.{name}"
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
)

_DIVISIONS = frozenset(f"relax.{name}" for name in ("divide", "floor_divide", "mod", "floor_mod"))
#: Exponents of powers that are products of the base.
_PRODUCTS = frozenset({3, 4})
_SCANS = frozenset({"relax.cumsum", "relax.cumprod"})
#: Where operators that replace elements of their first operand have the elements that they write.
_WRITTEN = {
    "relax.scatter_elements": 2,
    "relax.scatter_nd": 2,
    "relax.index_put": 2,
    "relax.slice_scatter": 1,
}
#: Reductions of stacked tensors, and what does the same with two of them.
_OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "relax.sum": relax.op.add,
    "relax.mean": relax.op.add,
    "relax.max": relax.op.maximum,
    "relax.min": relax.op.minimum,
}


@tvm.transform.module_pass(opt_level=0, name="SimplifyOperators")
class SimplifyOperators:
    """Rewrite dropout, batch norms, reductions of stacks, low-rank constants, empty broadcasts."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return clean_up(rewrite(mod, _Simplifier(mod)))


@relax.expr_functor.mutator
class _Simplifier(relax.PyExprMutator):
    def visit_tuple_getitem_(self, item: Any) -> Any:
        source = bound_value(self, item.tuple_value)
        if operator_name(source) == "relax.nn.dropout" and item.index == 0:
            return self.visit_expr(source.args[0])
        if operator_name(source) == "relax.nn.batch_norm" and item.index == 0:
            normalized = self._of_batch_norm(source)
            if normalized is not None:
                return normalized
        return super().visit_tuple_getitem_(item)

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        name = operator_name(call)
        if name in _WRITTEN and 0 in (static_shape(call.args[_WRITTEN[name]]) or ()):
            return call.args[0]
        if name in _DIVISIONS and _is_zero(call.args[1]):
            return self._by_zero(call)
        if name in _BINARY:
            return self._raise_rank(self._of_one_exponent(call))
        if name == "relax.broadcast_to" and _same_type(call, call.args[0]):
            return call.args[0]
        if name in _SCANS and 0 in (static_shape(call) or ()):
            # TVM's loops write a first element in any case.
            return relax.op.zeros(static_shape(call), call.ty.dtype)
        if name in _OF_TWO:
            return self._of_stack(call, _OF_TWO[name])
        if name in (QUANTIZE, DEQUANTIZE):
            return self._scales_as_tensors(call)
        if name == "relax.tensor_to_shape":
            return _shape_of_data(call)
        return call

    def _of_batch_norm(self, call: Any) -> Any:
        """Its result by constants, which are computed in double precision; ``None`` for others."""
        data, dtype, attrs = call.args[0], str(call.args[0].ty.dtype), call.attrs
        known = all(isinstance(argument, GenericConst) for argument in call.args[1:])
        if not known or attrs.training or dtype not in ("float32", "float64"):
            return None
        scale, shift, mean, variance = (
            argument.value.numpy().astype(np.float64) for argument in call.args[1:]
        )
        with np.errstate(all="ignore"):
            factor = (scale if attrs.scale else 1) / np.sqrt(variance + attrs.epsilon)
            shift = (shift if attrs.center else 0) - mean * factor
            factor, shift = factor.astype(dtype), shift.astype(dtype)
        if not np.all(np.isfinite(factor)) or not np.all(np.isfinite(shift)):
            return None
        rank, axis = data.ty.ndim, int(attrs.axis)
        shape = [-1 if place == axis % rank else 1 for place in range(rank)]
        scaled = self.builder_.emit(relax.op.multiply(data, constant(factor.reshape(shape))))
        return relax.op.add(scaled, constant(shift.reshape(shape)))

    def _by_zero(self, call: Any) -> Any:
        """A division by the number 0 reads it: TVM refuses to write it into the code."""
        data, zero = call.args
        if not str(zero.ty.dtype).startswith(("float", "bfloat")):
            raise ModelError(
                f"{operator_name(call)} divides integers by the constant 0, which has no result: "
                "change the model"
            )
        return self.builder_.normalize(Call(call.op, [data, _with_rank(zero, 1)], call.attrs))

    def _of_one_exponent(self, call: Any) -> Any:
        """A power by one number names the number: the kernel of a root is not that of a power.

        By a small integer it is products; TVM warns of its own operator for negative numbers.
        """
        if operator_name(call) != "relax.power":
            return call
        left, right = call.args
        shape, rank = static_shape(left), len(static_shape(right) or ())
        one = isinstance(right, GenericConst) and right.value.numpy().size == 1
        if not one or shape is None or rank > len(shape):
            return call
        exponent = right.value.numpy().item()
        if exponent in _PRODUCTS and str(call.ty.dtype) in ("float32", "float64"):
            square = self.builder_.emit(relax.op.multiply(left, left))
            return relax.op.multiply(square, left if exponent == 3 else square)
        if rank == 0:
            return call
        right = _with_rank(right, 0)
        return self.builder_.normalize(Call(call.op, [left, right], call.attrs))

    def _raise_rank(self, call: Any) -> Any:
        left, right = call.args[:]
        if not isinstance(left, GenericConst) and not isinstance(right, GenericConst):
            return call
        left_shape, right_shape = static_shape(left), static_shape(right)
        if left_shape is None or right_shape is None:
            return call
        if isinstance(right, GenericConst) and 0 < len(right_shape) < len(left_shape):
            right = _with_rank(right, len(left_shape))
        elif isinstance(left, GenericConst) and 0 < len(left_shape) < len(right_shape):
            left = _with_rank(left, len(right_shape))
        else:
            return call
        return self.builder_.normalize(Call(call.op, [left, right], call.attrs))

    def _scales_as_tensors(self, call: Any) -> Any:
        """A change of scale whose constants are operands: layers then share their kernels.

        TVM writes constants without axes into the code. That is best for what costs nothing there.
        """
        data, scale, zero_point = call.args
        if data.ty.ndim < 1:
            return call
        operands = [_as_operand(scale, 1), _as_operand(zero_point, 0)]
        if operands[0].same_as(scale) and operands[1].same_as(zero_point):
            return call
        return self.builder_.normalize(Call(call.op, [data, *operands], call.attrs))

    def _of_stack(self, call: Any, of_two: Callable[[Any, Any], Any]) -> Any:
        """``sum(stack([a, b, c], axis=0), axis=0)`` is ``a + b + c`` (ONNX ``Sum`` imports so)."""
        axes = call.attrs.axis
        if axes is None or [int(axis) for axis in axes] != [0] or call.attrs.keepdims:
            return call
        stacked = bound_value(self, call.args[0])
        if operator_name(stacked) != "relax.stack" or int(stacked.attrs.axis) != 0:
            return call
        parts = bound_value(self, stacked.args[0])
        if not isinstance(parts, relax.Tuple):
            return call
        operands = self._before_broadcasts(parts.fields[:])
        total = reduce(lambda a, b: self.builder_.emit(of_two(a, b)), operands)
        if operator_name(call) != "relax.mean":
            return total
        return relax.op.divide(total, relax.const(len(operands), call.ty.dtype))

    def _before_broadcasts(self, parts: Sequence[Any]) -> list[Any]:
        """Tensors of one shape as they were before they were repeated to it, if one was not."""
        values = [bound_value(self, part) for part in parts]
        repeats = [operator_name(value) == "relax.broadcast_to" for value in values]
        if all(repeats):
            return list(parts)
        every = zip(parts, values, repeats, strict=True)
        return [value.args[0] if repeated else part for part, value, repeated in every]


def _as_operand(expression: Any, neutral: int) -> Any:
    """A constant without axes with one, unless its value changes nothing."""
    scalar = isinstance(expression, GenericConst) and static_shape(expression) == ()
    if not scalar or expression.value.numpy() == neutral:
        return expression
    return _with_rank(expression, 1)


def _is_zero(expression: Any) -> bool:
    """Whether an expression is the number 0."""
    scalar = isinstance(expression, GenericConst) and static_shape(expression) == ()
    return scalar and not expression.value.numpy().any()


def _with_rank(constant: Any, rank: int) -> Any:
    """A constant with more or fewer leading axes of length one."""
    value = constant.value.numpy()
    shape = (1,) * (rank - value.ndim) + value.shape[max(0, value.ndim - rank) :]
    return relax.const(value.reshape(shape), value.dtype.name)


def _shape_of_data(call: Any) -> Any:
    """What the VM has for ``tensor_to_shape``.

    TVM's own decomposition gives each size a second symbol, and its fusion loses the results
    between operators whose types say one and whose PrimFuncs say the other.
    """
    return relax.call_pure_packed("vm.builtin.tensor_to_shape", *call.args, ty_args=[call.ty])


def _same_type(call: Any, argument: Any) -> bool:
    shape = static_shape(call)
    return shape is not None and shape == static_shape(argument)
