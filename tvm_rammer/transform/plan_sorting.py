"""A compiler pass that makes loops of topk, sort and argsort, so that they are planned.

TVM sorts by a call into its runtime, which no plan reaches inside: the router of a mixture of
experts cuts its layer in two. Where few elements are wanted, rows are walked once, and what comes
before the last of those found is inserted among them. Elsewhere the rank of an element is the
number of those before it: that compares all pairs, in vectors and on any number of cores, and for
rows of some hundred elements takes no longer than sorting them. Longer rows are left to TVM.

Equal elements stay in their order, and NaN is larger than all numbers, as in PyTorch and numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_rammer.relax_util import calls_any, is_for_cpu, operator_name, rewrite, static_shape

_SORTING = frozenset({"relax.topk", "relax.sort", "relax.argsort"})
#: As many are inserted one by one, each after a walk along all of them.
_FEW = 32
#: Ranks of longer rows take longer than sorting, or than finding some: pairs grow with the square.
_LONG_TO_SORT, _LONG_TO_SEARCH = 512, 128
#: Integers that are their own order, and those with the bits of floats.
_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8"})
_BITS = {"float16": "int16", "float32": "int32", "float64": "int64"}


@tvm.transform.module_pass(opt_level=0, name="PlanSorting")
class PlanSorting:
    """Rewrite topk, sort and argsort where loops take no longer than what TVM calls."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Planner(mod)) if calls_any(mod, _SORTING) else mod


@relax.expr_functor.mutator
class _Planner(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        name = operator_name(call)
        shape = static_shape(call.args[0]) if name in _SORTING else None
        if not shape or 0 in shape or str(call.args[0].ty.dtype) not in _INTEGERS | _BITS.keys():
            return call
        data, attrs, of_topk = call.args[0], call.attrs, name == "relax.topk"
        axis = int(attrs.axis) % len(shape)
        count = int(attrs.k) if of_topk and int(attrs.k) > 0 else shape[axis]
        few = count <= _FEW and is_for_cpu()
        longest = _LONG_TO_SORT if count == shape[axis] else _LONG_TO_SEARCH
        if count > shape[axis] or (not few and shape[axis] > longest):
            return call
        keys = self._keys(data, bool(attrs.largest if of_topk else attrs.descending))
        if few:
            places = self._emit(_inserted, keys, axis, count)
        else:
            places = self._emit(_of_ranks, self._emit(_ranks, keys, axis), axis, count)
        results = []
        if name == "relax.sort" or (of_topk and attrs.ret_type != "indices"):
            results.append(self._emit(_taken, data, places, axis))
        if name == "relax.argsort" or (of_topk and attrs.ret_type != "values"):
            results.append(self.builder_.emit(relax.op.astype(places, str(attrs.dtype))))
        return results[0] if len(results) == 1 else relax.Tuple(results)

    def _keys(self, data: Any, descending: bool) -> Any:
        """Integers of which the smallest come first."""
        is_key = str(data.ty.dtype) in _INTEGERS and not descending
        return data if is_key else self._emit(_keys, data, descending)

    def _emit(self, function: Any, *arguments: Any) -> Any:
        return self.builder_.emit(self.builder_.call_te(function, *arguments))


def _keys(data: te.Tensor, descending: bool) -> te.Tensor:
    bits = _BITS.get(str(data.dtype))

    def key(*at: Any) -> Any:
        value = data(*at) if bits is None else _in_order(tirx.reinterpret(bits, data(*at)), bits)
        return ~value if descending else value

    return te.compute(data.shape, key, "keys")


def _in_order(pattern: Any, dtype: str) -> Any:
    """The bits of a float as an integer: those of negative ones turned round, zeros equal."""
    info = np.iinfo(dtype)
    infinity = np.array(np.inf, f"float{info.bits}").view(dtype).item()
    largest, zero = tirx.const(info.max, dtype), tirx.const(0, dtype)
    size = pattern & largest
    ordered = pattern ^ ((pattern >> tirx.const(info.bits - 1, dtype)) & largest)
    number = tirx.Select(size == zero, zero, ordered)
    return tirx.Select(size > tirx.const(infinity, dtype), largest, number)


def _inserted(keys: te.Tensor, axis: int, count: int) -> te.Tensor:
    """Where the first elements of every row stand: those found so far are kept in order."""
    sizes = [int(size) for size in keys.shape]
    before, length, after = prod(sizes[:axis]), sizes[axis], prod(sizes[axis + 1 :])

    def rows(keys_read: Any, places_written: Any) -> Any:
        with IRBuilder() as builder:
            data, found = T.buffer_proxy(keys_read), T.buffer_proxy(places_written)
            with T.parallel(0, before * after) as row:
                start = row // after * (length * after) + row % after
                first = row // after * (count * after) + row % after

                def key(place: Any) -> Any:
                    return data[start + place * after]

                with T.serial(0, count) as place:
                    found[first + place * after] = tirx.const(0, "int32")
                with T.serial(0, length) as place:
                    last = found[first + (count - 1) * after]
                    comes_in = tirx.any(place < count, key(place) < key(last))
                    with T.If(comes_in), T.Then(), T.serial(0, count) as step:
                        at = count - 1 - step
                        here = found[first + at * after]
                        ahead = found[first + tirx.max(at - 1, 0) * after]
                        is_behind = tirx.any(at == place, key(place) < key(here))
                        with T.If(tirx.all(at <= place, is_behind)), T.Then():
                            moves = tirx.all(at > 0, key(place) < key(ahead))
                            found[first + at * after] = tirx.Select(moves, ahead, place)
            return builder.get()

    return te.extern(
        [_moved(keys.shape, axis, count)],
        [keys],
        lambda read, written: rows(read[0], written[0]),
        name="places",
        dtype="int32",
    )


def _ranks(keys: te.Tensor, axis: int) -> te.Tensor:
    """How many elements of its row come before each."""
    other = te.reduce_axis((0, keys.shape[axis]), "other")

    def rank(*at: Any) -> Any:
        own, its = keys(*at), keys(*_moved(at, axis, other.var))
        is_before = tirx.any(its < own, tirx.all(its == own, other.var < at[axis]))
        one, none = tirx.const(1, "int32"), tirx.const(0, "int32")
        return te.sum(tirx.Select(is_before, one, none), axis=other)

    return te.compute(keys.shape, rank, "ranks")


def _of_ranks(ranks: te.Tensor, axis: int, count: int) -> te.Tensor:
    """Where the elements of the first ranks stand."""
    place = te.reduce_axis((0, ranks.shape[axis]), "place")

    def found(*at: Any) -> Any:
        has_rank = ranks(*_moved(at, axis, place.var)) == at[axis]
        number = tirx.Select(has_rank, place.var.astype("int32"), tirx.const(0, "int32"))
        return te.max(number, axis=place)

    return te.compute(_moved(ranks.shape, axis, count), found, "places")


def _taken(data: te.Tensor, places: te.Tensor, axis: int) -> te.Tensor:
    return te.compute(places.shape, lambda *at: data(*_moved(at, axis, places(*at))), "taken")


def _moved(at: Sequence[Any], axis: int, place: Any) -> tuple[Any, ...]:
    """Another place along an axis."""
    return (*at[:axis], place, *at[axis + 1 :])
