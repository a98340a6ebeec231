"""A compiler pass for products with matrices that data choose.

A mixture of experts takes a matrix for each token, the one that its router names, and multiplies:
first whole matrices are copied, and then every copy is read once. Here the product reads them where
they lie. Constant ones are packed into vectors when the model is compiled, as any weights are. GPUs
have templates for products of copies only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import tvm
from tvm import relax, te, tirx

from tvm_rammer.relax_util import (
    ANCHOR,
    bound_value,
    calls_any,
    is_for_cpu,
    last_two_swapped,
    operator_name,
    permutation_of,
    reshaped,
    rewrite,
    static_shape,
)
from tvm_rammer.transform.remove_dead_code import clean_up

_CHOICES = frozenset({"relax.take", "relax.gather_nd"})
_MATMUL = "relax.matmul"
#: What take does with an index that is out of range: anything, or the nearest element.
_CLIPPING = ("fast", "clip")


@tvm.transform.module_pass(opt_level=0, name="MultiplyChosen")
class MultiplyChosen:
    """Rewrite products with matrices that were taken out of a stack of them."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        found = is_for_cpu() and calls_any(mod, _CHOICES) and calls_any(mod, {_MATMUL})
        return rewrite(mod, _Multiplier(mod), clean_up) if found else mod


@dataclass(frozen=True)
class _Chosen:
    """Matrices out of a stack, perhaps transposed.

    Attributes
    ----------
    stack : Expr
        Of three axes, of which the first is that of the matrices.
    numbers : Expr
        Which ones, of any shape.
    transposed : bool
    """

    stack: Any
    numbers: Any
    transposed: bool

    def element(self, stack: te.Tensor, number: Any, row: Any, column: Any) -> Any:
        """Of the matrix of a number, or of the nearest one that there is."""
        zero, largest = (
            tirx.const(value, str(number.ty)) for value in (0, int(stack.shape[0]) - 1)
        )
        near = tirx.min(tirx.max(number, zero), largest)
        return stack(near, column, row) if self.transposed else stack(near, row, column)


@relax.expr_functor.mutator
class _Multiplier(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if operator_name(call) != _MATMUL or str(call.ty.dtype) != "float32":
            return call
        left, right = call.args
        if (chosen := self._chosen(right)) is not None and _each_with_one(left, chosen):
            return self._product(left, chosen)
        if (chosen := self._chosen(left)) is not None and _each_with_one(right, chosen):
            # A product is that of the transposed factors, transposed.
            turned = replace(chosen, transposed=not chosen.transposed)
            return self._transposed(self._product(self._transposed(right), turned))
        return call

    def _chosen(self, matrices: Any) -> _Chosen | None:
        value = bound_value(self, matrices)
        transposed = operator_name(value) == "relax.permute_dims"
        if transposed:
            if permutation_of(value) != last_two_swapped(value.ty.ndim):
                return None
            value = bound_value(self, value.args[0])
        name = operator_name(value)
        if name not in _CHOICES or None in map(static_shape, value.args[:2]):
            return None
        stack, numbers = value.args[:2]
        shape = static_shape(numbers) or ()
        if name == "relax.gather_nd":
            plain = int(value.attrs.batch_dims) == 0 and shape[-1:] == (1,)
            shape = shape[:-1]
        else:
            axis = value.attrs.axis
            plain = axis is not None and int(axis) in (0, -3) and value.attrs.mode in _CLIPPING
        if not plain or not shape or stack.ty.ndim != 3 or 0 in (static_shape(stack) or ()):
            return None
        return _Chosen(stack, reshaped(self.builder_, numbers, shape), transposed)

    def _product(self, rows: Any, chosen: _Chosen) -> Any:
        """Every matrix of rows times the chosen one beside it."""
        *outer, count, inner = static_shape(rows) or ()
        batch = prod(outer)

        def product(rows: te.Tensor, stack: te.Tensor, numbers: te.Tensor) -> te.Tensor:
            k = te.reduce_axis((0, inner), "k")

            def element(b: Any, row: Any, column: Any) -> Any:
                return te.sum(
                    rows(b, row, k.var) * chosen.element(stack, numbers(b), k.var, column), k
                )

            columns = stack.shape[1 if chosen.transposed else 2]
            return te.compute((batch, count, columns), element, "products")

        made = self.builder_.call_te(
            product,
            reshaped(self.builder_, rows, (batch, count, inner)),
            chosen.stack,
            reshaped(self.builder_, chosen.numbers, (batch,)),
            primfunc_name_hint="matmul",
            primfunc_attrs={"op_pattern": ANCHOR},
        )
        *_, columns = static_shape(self.builder_.normalize(made)) or ()
        return reshaped(self.builder_, self.builder_.emit(made), (*outer, count, columns))

    def _transposed(self, matrices: Any) -> Any:
        """Of one row or column this is the same memory in another shape."""
        *outer, rows, columns = static_shape(matrices) or ()
        if 1 in (rows, columns):
            return reshaped(self.builder_, matrices, (*outer, columns, rows))
        axes = last_two_swapped(len(outer) + 2)
        return self.builder_.emit(relax.op.permute_dims(matrices, axes))


def _each_with_one(rows: Any, chosen: _Chosen) -> bool:
    """Whether every chosen matrix is multiplied with rows of its own."""
    shape = static_shape(rows)
    return shape is not None and shape[:-2] == static_shape(chosen.numbers)
