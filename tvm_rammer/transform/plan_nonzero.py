"""A compiler pass that looks for the elements that are not zero by operators that are planned.

TVM calls numpy for it: a library would need Python where it runs, and tensors of a GPU came back as
the host's. Here a running count says where each of them is written, and its last element how many
there are, the only thing that a run has to wait for. What is of sizes that only the run tells is
gone through by one loop.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_rammer.relax_util import (
    calls_any,
    first_of,
    has_axes,
    operator_name,
    rewrite,
    static_shape,
)
from tvm_rammer.tensors import constant

_NONZERO = "relax.nonzero"


@tvm.transform.module_pass(opt_level=0, name="PlanNonzero")
class PlanNonzero:
    """Rewrite ``nonzero`` of tensors that have axes."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Planner(mod)) if calls_any(mod, {_NONZERO}) else mod


@relax.expr_functor.mutator
class _Planner(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if operator_name(call) != _NONZERO or not has_axes(call.args[0].ty):
            return call
        shape = static_shape(call.args[0])
        if shape is None:
            found = self.builder_.emit_te(_gone_through, call.args[0])
            places, count = (self._emit(relax.TupleGetItem(found, k)) for k in (0, 1))
            return first_of(self.builder_, places, count, 1, "num_nonzero")
        if not prod(shape):
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


def _gone_through(x: te.Tensor) -> list[te.Tensor]:
    """The places of what is not zero, an axis a row, before others; and how many they are."""
    rank = len(x.shape)
    sizes = [size.astype("int64") for size in x.shape]

    def loops(read: Any, written: Any) -> Any:
        (source,), (places, count) = read, written
        with IRBuilder() as builder, T.serial(0, 1):
            T.buffer_store(count, tirx.const(0, "int64"), [0])
            with ExitStack() as nest:
                at = [nest.enter_context(T.serial(0, size)) for size in sizes]
                nest.enter_context(T.If(source[tuple(at)] != tirx.const(0, str(x.dtype))))
                nest.enter_context(T.Then())
                for axis, place in enumerate(at):
                    T.buffer_store(places, place.astype("int64"), [axis, count[0]])
                T.buffer_store(count, count[0] + tirx.const(1, "int64"), [0])
        return builder.get()

    shapes = [(rank, prod(sizes, start=tirx.const(1, "int64"))), (1,)]
    return list(te.extern(shapes, [x], loops, name="nonzero", dtype=["int64", "int64"]))


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
