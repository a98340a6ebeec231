"""A compiler pass that looks for different elements, or slices, by a loop of ours.

TVM calls numpy for it: a library would need Python where it runs, and tensors of a GPU came back as
the host's. Here indices are sorted by what they stand for (merge sort: Knuth, "The Art of Computer
Programming" 3, 5.2.4), and what is equal lies side by side.
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

from tvm_rammer.relax_util import calls_any, first_unnamed, has_axes, operator_name, rewrite

_UNIQUE = "relax.unique"


@tvm.transform.module_pass(opt_level=0, name="PlanUnique")
class PlanUnique:
    """Rewrite ``unique`` of tensors that have axes."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Planner(mod)) if calls_any(mod, {_UNIQUE}) else mod


@relax.expr_functor.mutator
class _Planner(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if operator_name(call) != _UNIQUE or not has_axes(call.args[0].ty):
            return call
        x, in_order, *wanted = call.args[:5]
        axis = int(call.args[5]) % x.ty.ndim if len(call.args) > 5 else None
        if axis is not None and not _are_known(x.ty.shape, but=axis):
            return call
        found = self.builder_.emit_te(_sorted_out, x, axis, bool(int(in_order)))
        firsts, inverse, counts, number = (
            self.builder_.emit(relax.TupleGetItem(found, k)) for k in range(4)
        )
        from_whole = self.builder_.emit(op.reshape(x, (-1,))) if axis is None else x
        chosen = self.builder_.emit(op.take(from_whole, firsts, axis or 0))
        values = first_unnamed(self.builder_, chosen, number, axis or 0)
        places, counts = (
            first_unnamed(self.builder_, each, number, 0) for each in (firsts, counts)
        )
        results = [places, inverse, counts]
        given = [each for each, asked in zip(results, wanted, strict=True) if int(asked)]
        return self.builder_.normalize(relax.Tuple([values, *given])) if given else values


def _are_known(shape: Any, but: int) -> bool:
    """Whether the sizes of all axes but one are numbers."""
    return all(isinstance(size, tirx.IntImm) for k, size in enumerate(shape.values) if k != but)


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
            result, at, *more = (_variable() for _ in range(5))
            elements = T.buffer_proxy(read[0])
            slices = _Slices(elements, str(x.dtype), count, before, after, result, at)
            order = spare[0]
            # Beyond those that are found, any place that there is.
            with T.serial(0, count) as place:
                firsts[place] = tirx.const(0, "int64")
            _sort(slices, order, inverse, count, *more)
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

    def compare(self, first: Any, second: Any) -> None:
        """Loops that compare two slices, and leave -1, 0 or 1 as the result."""
        zero, one = tirx.const(0, "int64"), tirx.const(1, "int64")
        result, at = self.result, self.at
        length = self.before * self.after

        def order_at(row: Any, column: Any) -> Any:
            a, b = (
                self._number((row * self.count + place) * self.after + column)
                for place in (first, second)
            )
            smaller, larger = (
                tirx.Cast("int64", each) for each in (self._less(a, b), self._less(b, a))
            )
            return larger - smaller

        if isinstance(length, tirx.IntImm) and int(length) == 1:
            result[0] = order_at(zero, zero)
            return
        result[0], at[0] = zero, zero
        with T.While(tirx.all(result[0] == zero, at[0] < length)):
            result[0] = order_at(tirx.floordiv(at[0], self.after), tirx.floormod(at[0], self.after))
            at[0] = at[0] + one

    def _number(self, place: Any) -> Any:
        value = self.elements[place]
        if self.dtype == "bool":
            return value.astype("int8")
        return value.astype("float32") if self.dtype in ("float16", "bfloat16") else value

    def _less(self, a: Any, b: Any) -> Any:
        """As numpy has it: what is no number comes last."""
        if "float" not in self.dtype:
            return a < b
        return tirx.any(a < b, tirx.all(tirx.isnan(b), tirx.Not(tirx.isnan(a))))


def _variable() -> Any:
    return T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local"))


def _sort(
    slices: _Slices, order: Any, moved: Any, count: Any, width: Any, left: Any, right: Any
) -> None:
    """Write indices in the order of their slices, and of equal slices in their own: ordered parts
    are merged in pairs, each time twice as long.
    """
    zero, one, two = (tirx.const(value, "int64") for value in (0, 1, 2))
    result = slices.result

    with T.serial(0, count) as place:
        order[place] = place
    width[0] = one
    with T.While(width[0] < count):
        with T.serial(0, tirx.ceildiv(count, two * width[0])) as pair:
            first = two * width[0] * pair
            middle = tirx.min(first + width[0], count)
            end = tirx.min(middle + width[0], count)
            left[0], right[0] = first, middle
            with T.serial(0, end - first) as step:
                result[0] = tirx.Select(right[0] < end, tirx.const(-1, "int64"), zero)
                with T.If(tirx.all(left[0] < middle, right[0] < end)), T.Then():
                    slices.compare(order[right[0]], order[left[0]])
                # No branch: of data without order half of them were guessed wrong.
                from_right = tirx.Cast("int64", result[0] < zero)
                from_left = one - from_right
                moved[first + step] = order[left[0] * from_left + right[0] * from_right]
                left[0], right[0] = left[0] + from_left, right[0] + from_right
        with T.serial(0, count) as place:
            order[place] = moved[place]
        width[0] = two * width[0]


def _group(
    slices: _Slices, order: Any, count: Any, firsts: Any, inverse: Any, counts: Any, number: Any
) -> None:
    """Number what is different, in the order of the indices."""
    zero, one = tirx.const(0, "int64"), tirx.const(1, "int64")
    number[0] = zero
    with T.serial(0, count) as rank:
        before = order[tirx.max(rank - one, zero)]
        slices.compare(before, order[rank])
        with T.If(tirx.any(rank == zero, slices.result[0] != zero)), T.Then():
            firsts[number[0]] = order[rank]
            counts[number[0]] = zero
            number[0] = number[0] + one
        counts[number[0] - one] = counts[number[0] - one] + one
        inverse[order[rank]] = number[0] - one
