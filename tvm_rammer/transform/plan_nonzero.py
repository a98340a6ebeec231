"""A compiler pass that looks for the elements that are not zero by operators that are planned.

TVM calls numpy for it: a library would need Python where it runs, and tensors of a GPU came back as
the host's. Here a running count says where each of them is written, and its last element how many
there are, the only thing that a run has to wait for.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import op

from tvm_rammer.relax_util import calls_any, operator_name, rewrite, static_shape
from tvm_rammer.tensors import constant

_NONZERO = "relax.nonzero"


@tvm.transform.module_pass(opt_level=0, name="PlanNonzero")
class PlanNonzero:
    """Rewrite ``nonzero`` of tensors whose shapes are known."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Planner(mod)) if calls_any(mod, {_NONZERO}) else mod


@relax.expr_functor.mutator
class _Planner(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        shape = static_shape(call.args[0]) if operator_name(call) == _NONZERO else None
        if not shape or not prod(shape):
            return call
        places, count = self._places(call.args[0], prod(shape))
        sizes = self._emit(op.tensor_to_shape(count))
        known = tirx.Var("num_nonzero", "int64")
        self.builder_.match_cast(sizes, relax.ShapeType([known]))
        return self.builder_.call_te(_coordinates, places, known, shape)

    def _places(self, x: Any, elements: int) -> tuple[Any, Any]:
        """Where elements are that are not zero, in order and then anything; and how many."""
        flat = self._emit(op.reshape(x, (elements,)))
        if str(x.ty.dtype) != "bool":
            flat = self._emit(op.not_equal(flat, relax.const(0, x.ty.dtype)))
        ones = self._emit(op.astype(flat, "int64"))
        ends = self._emit(op.cumsum(ones, axis=0, dtype="int64"))
        before = self._emit(op.subtract(ends, relax.const(1, "int64")))
        # All others share a place that is none.
        beyond = constant(np.full(elements, elements))
        slots = self._emit(op.where(flat, before, beyond))
        empty = constant(np.zeros(elements + 1, "int64"))
        places = op.scatter_elements(empty, slots, constant(np.arange(elements)), axis=0)
        return self._emit(places), self._emit(op.strided_slice(ends, [0], [-1], [elements]))

    def _emit(self, value: Any) -> Any:
        return self.builder_.emit(value)


def _coordinates(places: te.Tensor, count: Any, shape: tuple[int, ...]) -> te.Tensor:
    """The first places of a flat tensor as those of another shape, an axis a row."""

    def coordinate(axis: Any, k: Any) -> Any:
        rows = [
            tirx.floormod(tirx.floordiv(places[k], prod(shape[number + 1 :])), extent)
            for number, extent in enumerate(shape)
        ]
        found = rows[-1]
        for number in reversed(range(len(shape) - 1)):
            found = tirx.Select(axis == number, rows[number], found)
        return found

    return te.compute((len(shape), count), coordinate, "coordinates")
