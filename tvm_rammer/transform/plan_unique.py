"""A compiler pass that looks for different elements, or slices, by a loop of ours.

TVM calls numpy for it: a library would need Python where it runs, and tensors of a GPU came back as
the host's. Here indices are sorted by what they stand for (heapsort: Williams, "Algorithm 232",
1964), and what is equal lies side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_rammer.relax_util import calls_any, first_of, operator_name, rewrite

_UNIQUE = "relax.unique"


@tvm.transform.module_pass(opt_level=0, name="PlanUnique")
class PlanUnique:
    """Rewrite ``unique`` of tensors that have axes, but of bfloat16."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Planner(mod)) if calls_any(mod, {_UNIQUE}) else mod


@relax.expr_functor.mutator
class _Planner(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if operator_name(call) != _UNIQUE or call.args[0].ty.ndim <= 0:
            return call
        if str(call.args[0].ty.dtype) == "bfloat16":
            # TVM does not say of it what is no number.
            return call
        x, in_order, *wanted = call.args[:5]
        axis = int(call.args[5]) % x.ty.ndim if len(call.args) > 5 else None
        found = self.builder_.emit_te(_sorted_out, x, axis, bool(int(in_order)))
        firsts, inverse, counts, number = (
            self.builder_.emit(relax.TupleGetItem(found, k)) for k in range(4)
        )

        def kept(some: Any) -> Any:
            return first_of(self.builder_, some, number, 0, "num_unique")

        places = kept(firsts)
        from_whole = self.builder_.emit(op.reshape(x, (-1,))) if axis is None else x
        values = self.builder_.emit(op.take(from_whole, places, axis or 0))
        results = [places, inverse, kept(counts)]
        given = [each for each, asked in zip(results, wanted, strict=True) if int(asked)]
        return self.builder_.normalize(relax.Tuple([values, *given])) if given else values


def _sorted_out(x: te.Tensor, axis: int | None, in_order: bool) -> list[te.Tensor]:
    """Of every different slice where it is first, of every slice which one it is, how many there
    are of each, and the number of different ones; then what only the loops need.
    """
    sizes = [size.astype("int64") for size in x.shape]
    one = tirx.const(1, "int64")
    around = (sizes[:axis], sizes[axis + 1 :]) if axis is not None else ([], [])
    before, after = (prod(some, start=one) for some in around)
    count = sizes[axis] if axis is not None else prod(sizes, start=one)

    def loops(read: Sequence[Any], written: Sequence[Any]) -> Any:
        firsts, inverse, counts, number, *spare = map(T.buffer_proxy, written)
        with IRBuilder() as builder, T.serial(0, 1):
            result, at, *more = (_variable() for _ in range(6))
            elements = T.buffer_proxy(read[0])
            slices = _Slices(elements, str(x.dtype), count, before, after, result, at)
            order = spare[0]
            _sort(slices, order, count, *more)
            own, sums = (firsts, counts) if in_order else spare[1:]
            _group(slices, order, count, own, inverse, sums, number)
            if not in_order:
                # Those that come first have the smaller numbers.
                with T.serial(0, number[0]) as group:
                    order[group] = tirx.const(-1, "int64")
                number[0] = tirx.const(0, "int64")
                with T.serial(0, count) as place:
                    group = inverse[place]
                    with T.If(own[group] == place), T.Then():
                        order[group] = number[0]
                        firsts[number[0]] = place
                        counts[number[0]] = sums[group]
                        number[0] = number[0] + one
                    inverse[place] = order[group]
        return builder.get()

    shapes = [(count,), (count,), (count,), (1,), (count,), *[(count,)] * (0 if in_order else 2)]
    return list(te.extern(shapes, [x], loops, name="unique", dtype=["int64"] * len(shapes)))


@dataclass(frozen=True)
class _Slices:
    """The slices of a flat buffer ``(before, count, after)``, and what comparing them takes."""

    elements: Any
    dtype: str
    count: Any
    before: Any
    after: Any
    result: Any
    at: Any

    def compared(self, first: Any, second: Any) -> Any:
        """Loops that compare two slices, and the -1, 0 or 1 that they leave behind."""
        zero, one = tirx.const(0, "int64"), tirx.const(1, "int64")
        result, at = self.result, self.at
        result[0], at[0] = zero, zero
        with T.While(tirx.all(result[0] == zero, at[0] < self.before * self.after)):
            row, column = tirx.floordiv(at[0], self.after), tirx.floormod(at[0], self.after)
            a, b = (
                self._number((row * self.count + place) * self.after + column)
                for place in (first, second)
            )
            with T.If(self._less(a, b)), T.Then():
                result[0] = tirx.const(-1, "int64")
            with T.If(self._less(b, a)), T.Then():
                result[0] = one
            at[0] = at[0] + one
        return result[0]

    def _number(self, place: Any) -> Any:
        value = self.elements[place]
        if self.dtype == "bool":
            return value.astype("int8")
        return value if self.dtype != "float16" else value.astype("float32")

    def _less(self, a: Any, b: Any) -> Any:
        """As numpy has it: what is no number comes last."""
        if "float" not in self.dtype:
            return a < b
        return tirx.any(a < b, tirx.all(tirx.isnan(b), tirx.Not(tirx.isnan(a))))


def _variable() -> Any:
    return T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local"))


def _sort(
    slices: _Slices, order: Any, count: Any, end: Any, root: Any, child: Any, kept: Any
) -> None:
    """Write indices in the order of their slices, and of equal slices in their own."""
    zero, one, two = (tirx.const(value, "int64") for value in (0, 1, 2))
    half = tirx.floordiv(count, two)

    def is_less(first: Any, second: Any) -> Any:
        compared = slices.compared(first, second)
        return tirx.any(compared < zero, tirx.all(compared == zero, first < second))

    def swap(first: Any, second: Any) -> None:
        kept[0] = order[first]
        order[first] = order[second]
        order[second] = kept[0]

    with T.serial(0, count) as place:
        order[place] = place
    # First each half of the indices is put into the heap; then the largest is taken out, over and
    # over. Either way one index sinks to where it belongs.
    with T.serial(0, half + count) as step:
        end[0], root[0] = count, half - one - step
        with T.If(step >= half), T.Then():
            end[0] = count - one - (step - half)
            root[0] = zero
            swap(zero, end[0])
        child[0] = two * root[0] + one
        with T.While(child[0] < end[0]):
            with T.If(child[0] + one < end[0]), T.Then():
                beside = is_less(order[child[0]], order[child[0] + one])
                with T.If(beside), T.Then():
                    child[0] = child[0] + one
            sinks = is_less(order[root[0]], order[child[0]])
            with T.If(sinks):
                with T.Then():
                    swap(root[0], child[0])
                    root[0] = child[0]
                    child[0] = two * root[0] + one
                with T.Else():
                    child[0] = end[0]


def _group(
    slices: _Slices, order: Any, count: Any, firsts: Any, inverse: Any, counts: Any, number: Any
) -> None:
    """Number what is different, in the order of the indices."""
    zero, one = tirx.const(0, "int64"), tirx.const(1, "int64")
    number[0] = zero
    with T.serial(0, count) as rank:
        before = order[tirx.max(rank - one, zero)]
        differs = slices.compared(before, order[rank]) != zero
        with T.If(tirx.any(rank == zero, differs)), T.Then():
            firsts[number[0]] = order[rank]
            counts[number[0]] = zero
            number[0] = number[0] + one
        counts[number[0] - one] = counts[number[0] - one] + one
        inverse[order[rank]] = number[0] - one
