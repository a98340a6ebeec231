"""A compiler pass for products with matrices that are repeated before they are multiplied.

In grouped-query attention (Ainslie et al., EMNLP 2023) several heads of queries share the keys and
values of one. Exporters repeat these for every head: a decoder copies all that it remembers, and
then reads each copy once, for every token. Here the queries of a group are rows of one product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst

from tvm_rammer.relax_util import (
    bound_value,
    calls_any,
    known_shapes,
    last_two_swapped,
    operator_name,
    permutation_of,
    reshaped,
    rewrite,
    static_shape,
)
from tvm_rammer.transform.remove_dead_code import clean_up

_MATMUL, _REPEAT = "relax.matmul", "relax.broadcast_to"


@tvm.transform.module_pass(opt_level=0, name="MultiplyRepeated")
class MultiplyRepeated:
    """Rewrite batched products whose second factor is the same for several of the batch."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        found = calls_any(mod, {_REPEAT}) and calls_any(mod, {_MATMUL})
        return rewrite(mod, _Grouper(mod), clean_up) if found else mod


@dataclass(frozen=True)
class _Repeated:
    """A batch of matrices each of which stands for ``times`` of a factor's, one after the other.

    Attributes
    ----------
    matrices : Expr
    times : int
    transposed : bool
        Whether the factor has them transposed.
    scales : tuple of Expr
        Numbers that the factor is them times.
    """

    matrices: Any
    times: int = 1
    transposed: bool = False
    scales: tuple[Any, ...] = ()


@relax.expr_functor.mutator
class _Grouper(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if operator_name(call) != _MATMUL:
            return call
        shapes = known_shapes(*call.args, call)
        found = self._repeated(call.args[1]) if shapes else None
        if found is None or not _side_by_side(*shapes):
            return call
        return self._product(call, found)

    def _repeated(self, factor: Any) -> _Repeated | None:
        """What a factor repeats, seen through what leaves its matrices as they are."""
        value = bound_value(self, factor)
        name = operator_name(value)
        if name not in _SEEN_THROUGH:
            return None
        shape, before = static_shape(value), static_shape(value.args[0])
        if shape is None or len(shape) < 3:
            return None
        if name == _REPEAT:
            same = before is not None and len(before) == len(shape)
            times = shape[-3]
            if not same or times == 1 or before != (*shape[:-3], 1, *shape[-2:]):
                return None
            return _Repeated(value.args[0], times)
        if name == "relax.multiply":
            return self._scaled(value)
        inner = self._repeated(value.args[0])
        if inner is None or before is None:
            return None
        if name == "relax.permute_dims":
            plain = permutation_of(value) == last_two_swapped(len(shape))
            return replace(inner, transposed=not inner.transposed) if plain else None
        return inner if before[-2:] == shape[-2:] else None

    def _scaled(self, product: Any) -> _Repeated | None:
        for one, other in (product.args, reversed(product.args)):
            if isinstance(other, GenericConst) and static_shape(other) == ():
                inner = self._repeated(one)
                return inner and replace(inner, scales=(*inner.scales, other))
        return None

    def _product(self, call: Any, found: _Repeated) -> Any:
        emit = self.builder_.emit
        rows = call.args[0]
        for scale in found.scales:
            rows = emit(relax.op.multiply(rows, scale))
        *outer, count, terms = static_shape(rows) or ()
        batch = prod(outer) // found.times
        rows = reshaped(self.builder_, rows, (batch, found.times * count, terms))
        matrix = (static_shape(found.matrices) or ())[-2:]
        matrices = reshaped(self.builder_, found.matrices, (batch, *matrix))
        if found.transposed:
            matrices = emit(relax.op.permute_dims(matrices, last_two_swapped(3)))
        product = emit(relax.op.matmul(rows, matrices, call.attrs.out_dtype))
        return relax.op.reshape(product, static_shape(call))


#: What may stand between a product and what is repeated.
_SEEN_THROUGH = frozenset({_REPEAT, "relax.multiply", "relax.permute_dims", "relax.reshape"})


def _side_by_side(left: Any, right: Any, result: Any) -> bool:
    """Whether each matrix of a factor is multiplied with one of the other."""
    return len(right) >= 3 and left[:-2] == right[:-2] == result[:-2]
