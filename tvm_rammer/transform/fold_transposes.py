"""A compiler pass that lets products of few rows read a transposed operand as it lies.

A decoder step multiplies one query by all keys, ``matmul(query, permute_dims(keys))``: as a product
of its own the transposition costs several times what the dot products do, which run along the keys.
Where many rows share the operand, its transposition pays and stays. So it does for weights, which
are packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import relax, te
from tvm.ir import Call, GenericConst, Op

from tvm_rammer.relax_util import (
    bound_value,
    calls_any,
    known_shapes,
    operator_name,
    permutation_of,
    rewrite,
    weight_parameters,
)
from tvm_rammer.transform.normalize import broadcast
from tvm_rammer.transform.remove_dead_code import remove_dead_code


@tvm.transform.module_pass(opt_level=0, name="FoldTransposes")
class FoldTransposes:
    """Make products of few rows with a transposed operand read it along its rows.

    Parameters
    ----------
    few_rows : int
        Products with more rows take longer than reading their weights does.
    """

    def __init__(self, few_rows: int) -> None:
        self.few_rows = few_rows

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        if not calls_any(mod, {"relax.permute_dims"}):
            return mod
        return rewrite(mod, _Folder(mod, self.few_rows), remove_dead_code)


@dataclass(frozen=True)
class _Product:
    """``matmul(left, permute_dims(source, axes))``.

    Attributes
    ----------
    left, source : tuple of int
        Shapes.
    axes : tuple of int
        The axis of the source that each axis of the transposed operand is.
    result : tuple of int
        Shape.
    dtype : str
    """

    left: tuple[int, ...]
    source: tuple[int, ...]
    axes: tuple[int, ...]
    result: tuple[int, ...]
    dtype: str

    @property
    def runs_along_source(self) -> bool:
        """Whether the elements that are summed up are neighbours in the source."""
        return self.axes[-2] == len(self.axes) - 1

    @property
    def rows(self) -> int:
        """Rows of the left operand that meet each row of the source."""
        return prod(self.result) * self.source[-1] // prod(self.source)

    def compute(self, left: te.Tensor, source: te.Tensor) -> te.Tensor:
        """The product as a tensor expression."""
        step = te.reduce_axis((0, self.source[-1]), name="k")

        def element(*place: Any) -> Any:
            *batch, row, column = place
            right = broadcast(batch, [self.source[axis] for axis in self.axes[:-2]])
            transposed = [*right, step, column]
            there = [transposed[self.axes.index(axis)] for axis in range(len(self.axes))]
            here = [*broadcast(batch, self.left[:-2]), row, step]
            return te.sum(left(*here) * source(*there), axis=step)

        return te.compute(self.result, element, name="matmul")


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, few_rows: int) -> None:
        super().__init__(mod)
        self.few_rows = few_rows
        self.weights: frozenset[Any] = frozenset()
        self.known: dict[_Product, Any] = {}

    def visit_function_(self, func: relax.Function) -> Any:
        self.weights = frozenset(weight_parameters(func))
        return super().visit_function_(func)

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if operator_name(call) != "relax.matmul":
            return call
        left, right = call.args
        transposition = bound_value(self, right)
        if operator_name(transposition) != "relax.permute_dims":
            return call
        source = transposition.args[0]
        if isinstance(source, GenericConst) or source in self.weights:
            return call
        product = _product(call, left, source, transposition)
        if product is None or not product.runs_along_source or product.rows > self.few_rows:
            return call
        if product not in self.known:
            made = self.builder_.call_te(product.compute, left, source, primfunc_name_hint="matmul")
            self.known[product] = (made.args[0], made.ty_args)
        symbol, types = self.known[product]
        operands = relax.Tuple([left, source])
        return Call(Op.get("relax.call_tir"), [symbol, operands], None, types)


def _product(call: Any, left: Any, source: Any, transposition: Any) -> _Product | None:
    """What a call computes; ``None`` if shapes are not known or empty, or types differ."""
    shapes = known_shapes(left, source, call)
    dtypes = {str(value.ty.dtype) for value in (left, source, call)}
    if not shapes or min(map(len, shapes)) < 2 or len(dtypes) > 1:
        return None
    of_left, of_source, of_result = shapes
    order = permutation_of(transposition)
    return _Product(of_left, of_source, order, of_result, dtypes.pop())
