"""Finds the row program of a PrimFunc, if all its reductions run over the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, Op, TensorLoad

from tvm_rammer.backend.cpu.templates.rows.row_program import (
    Home,
    RowProgram,
    RowStep,
    Store,
    all_loads,
)
from tvm_rammer.kernel.blocks import (
    attempt,
    is_choice,
    is_reduced,
    is_reduction,
    loads,
    reduces,
    root_blocks,
    schedule_of,
    sole_block,
)
from tvm_rammer.kernel.nodes import collect, statements
from tvm_rammer.kernel.split import root_nests

_COMBINE = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)
#: Types that a vector accumulates in.
_DTYPES = frozenset({"float32", "float64", "int32", "int64"})


def recognise(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, RowProgram] | None:
    """A PrimFunc with its element-wise blocks inlined, and its row program; else ``None``."""
    if not reduces(func):
        return None
    # Simple indices show which variables run along which dimension.
    simplified = s_tir.transform.StmtSimplify()(tvm.IRModule({"main": func}))["main"]
    sch = schedule_of(simplified)
    if any(sole_block(nest) is None for nest in root_nests(sch.mod["main"].body)):
        return None
    _inline(sch)
    nests = [_nest(sch.get(block)) for block in root_blocks(sch)]
    main = sch.mod["main"]
    if not all(nest.stores and all(nest.extents.values()) for nest in nests):
        return None
    if not any(nest.reducing for nest in nests):
        return None
    axes = join_axes(nests, main.params)
    program = None if axes is None else _program(nests, axes, main.params)
    return None if program is None else (main, program)


def _inline(sch: s_tir.Schedule) -> None:
    """Inline the element-wise blocks, but compute no function twice."""
    while _moves_result(sch) and attempt(sch.reverse_compute_inline, root_blocks(sch)[-1]):
        pass
    for block in root_blocks(sch)[:-1]:
        shared = len(sch.get_consumers(block)) > 1
        if not is_reduction(sch, block) and not (shared and _calls(sch.get(block).body)):
            attempt(sch.compute_inline, block)


def _moves_result(sch: s_tir.Schedule) -> bool:
    """Whether the last block only follows an element-wise one: a reshape, an activation.

    Behind a slice, which leaves out some of what its producer makes, not every column has a place.
    """
    *_, last = root_blocks(sch)
    producers = sch.get_producers(last)
    if len(producers) != 1 or any(is_reduction(sch, b) for b in (last, producers[0])):
        return False
    made, kept = (_num_points(sch, block) for block in (producers[0], last))
    return made == kept


def _num_points(sch: s_tir.Schedule, block: Any) -> int:
    return prod(int(axis.dom.extent) for axis in sch.get(block).iter_vars)


def _calls(body: Any) -> bool:
    return any(isinstance(call.op, Op) and not is_choice(call) for call in collect(body, Call))


def _nest(block: Any) -> RowNest:
    extents = {axis.var: int(axis.dom.extent) for axis in block.iter_vars}
    reducing = frozenset(a.var for a in block.iter_vars if is_reduced(a))
    return RowNest(extents, reducing, stores_of(block))


def _program(nests: Sequence[RowNest], axes: Axes, params: Sequence[Any]) -> RowProgram | None:
    first = next(nest for nest in nests if nest.reducing)
    wide = [var for var, extent in first.extents.items() if extent > 1]
    order = sorted(wide, key=lambda var: var in first.reducing)
    numbers = {axes.find(var): number for number, var in enumerate(order)}
    extents = [first.extents[var] for var in order]
    num_kept = len([var for var in order if var not in first.reducing])
    if len(numbers) < len(order) or num_kept == len(order):
        return None
    steps = [_step(nest, axes, numbers, extents, num_kept) for nest in nests]
    if any(step is None for step in steps):
        return None
    known = tuple(step for step in steps if step is not None)
    dtype = str(order[0].ty)
    kept, reduced = tuple(extents[:num_kept]), tuple(extents[num_kept:])
    return RowProgram(kept, reduced, known, *_storage(known, params), dtype)


def _step(
    nest: RowNest, axes: Axes, numbers: dict[Any, int], extents: Sequence[int], num_kept: int
) -> RowStep | None:
    """The nest with its variables numbered; ``None`` when it does not run over the same axes."""
    own = {v: numbers.get(axes.find(v)) if n > 1 else None for v, n in nest.extents.items()}
    loose = [v for v, number in own.items() if number is None and nest.extents[v] > 1]
    missing = [n for n in range(num_kept, len(extents)) if n not in own.values()]
    if len(loose) == len(missing):
        # Nothing of other steps is read along these: which one is which reduced axis is free.
        own.update(zip(loose, missing, strict=True))
        numbers.update((axes.find(v), n) for v, n in zip(loose, missing, strict=True))
    found = sorted(number for number in own.values() if number is not None)
    if any(nest.extents[v] != extents[n] for v, n in own.items() if n is not None):
        return None
    reduced = {own[v] for v in nest.reducing} - {None}
    everything = list(range(len(extents)))
    if nest.reducing and (found != everything or reduced != set(everything[num_kept:])):
        return None
    if not nest.reducing and found not in (everything, everything[:num_kept]):
        return None
    if any(nest.extents[v] > 1 and own[v] is None for v in own):
        return None
    spans = not nest.reducing and found == everything
    return RowStep(own, nest.stores, spans)


def _storage(
    steps: Sequence[RowStep], params: Sequence[Any]
) -> tuple[dict[Any, Home], dict[Any, bool]]:
    """Buffers between steps: those that live in a parameter, and the other ones."""
    spans = {store.buffer: step.spans for step in steps for store in step.stores}
    homes: dict[Any, Home] = {}
    for number, step in enumerate(steps):
        later = {load.source for after in steps[number + 1 :] for load in all_loads(after.stores)}
        here = {load.source for load in all_loads(step.stores)}
        for store in step.stores:
            home = _home(store, step) if store.buffer in params else None
            if home is None:
                continue
            if store.buffer in later:
                homes[store.buffer] = home
            elif step.spans and set(home.axes) >= set(step.axes.values()) - {None}:
                # A row that is read here for the last time makes way for the result.
                dying = [b for b in here - later if spans.get(b) and b not in params]
                same = [b for b in dying if str(b.dtype) == str(store.buffer.dtype)]
                homes.update((buffer, home) for buffer in same[:1])
    others = {b: s for b, s in spans.items() if b not in params and b not in homes}
    return homes, others


def _home(store: Store, step: RowStep) -> Home | None:
    """The parameter of a store, when its dimensions are axes."""
    indices = [index if isinstance(index, tirx.Var) else None for index in store.indices]
    extents = [int(extent) for extent in store.buffer.shape]
    if any(i not in step.axes and n > 1 for i, n in zip(indices, extents, strict=True)):
        return None
    return Home(store.buffer, tuple(step.axes.get(index) for index in indices))


@dataclass(frozen=True)
class RowNest:
    """A loop nest: the extents of its variables, those that reduce, and its stores."""

    extents: Mapping[Any, int]
    reducing: frozenset[Any]
    stores: tuple[Store, ...]


@dataclass
class Axes:
    """Classes of variables and buffer dimensions that are one axis; they grow together."""

    parents: dict[Any, Any] = field(default_factory=dict)

    def find(self, node: Any) -> Any:
        """The representative of a variable or of a (buffer, dimension)."""
        while node in self.parents:
            node = self.parents[node]
        return node

    def join(self, one: Any, other: Any) -> None:
        """Make two classes one."""
        one, other = self.find(one), self.find(other)
        if one != other:
            self.parents[one] = other


def join_axes(nests: Sequence[RowNest], params: Iterable[Any]) -> Axes | None:
    """Join the variables of nests that index the same dimension of a buffer between them.

    ``None`` when a buffer between nests is indexed by anything but its own variables: then one
    row would need what another one computed. Where a result goes that nobody reads is free.
    """
    axes = Axes()
    finals = set(params) - {load.source for nest in nests for load in all_loads(nest.stores)}
    written = {store.buffer for nest in nests for store in nest.stores}
    for nest in nests:
        accesses = [(load.source, load.indices) for load in all_loads(nest.stores)]
        accesses += [(store.buffer, store.indices) for store in nest.stores]
        for buffer, indices in accesses:
            if buffer not in written:
                continue
            for dimension, index in enumerate(indices):
                extent = int(buffer.shape[dimension])
                plain = isinstance(index, tirx.Var) and nest.extents.get(index) == extent
                if plain:
                    axes.join(index, (buffer, dimension))
                elif extent != 1 and buffer not in finals:
                    return None
    return axes


def stores_of(block: Any) -> tuple[Store, ...]:
    """The stores of a block; none when it is neither a map nor a known reduction."""
    found = statements(block.body)
    bound = {s.var: s.value for s in found if isinstance(s, tirx.Bind)}
    stores = [s for s in found if isinstance(s, tirx.BufferStore)]
    if len(bound) + len(stores) != len(found):
        return ()
    if block.init is None:
        return tuple(Store(s.buffer, tuple(s.indices), s.value) for s in stores if not bound)
    init = [s for s in statements(block.init) if isinstance(s, tirx.BufferStore)]
    starts = {s.buffer: s.value for s in init}
    reductions = [_reduction(s, bound.get(s.value, s.value), starts) for s in stores]
    return tuple(r for r in reductions if r is not None) if all(reductions) else ()


def _reduction(store: Any, value: Any, starts: Mapping[Any, Any]) -> Store | None:
    """``c[i] = c[i] + operand`` and the like, started from the neutral element."""
    combine = next((kind for kind in _COMBINE if isinstance(value, kind)), None)
    dtype = str(store.buffer.dtype)
    if combine is None or dtype not in _DTYPES or store.buffer not in starts:
        return None
    if not _neutral(combine, starts[store.buffer], dtype):
        return None
    own, operand = (value.a, value.b) if _reads_back(value.a, store) else (value.b, value.a)
    # The accumulators may appear nowhere else, as they do in an arg-max.
    if not _reads_back(own, store) or any(load.source in starts for load in loads(operand)):
        return None
    return Store(store.buffer, tuple(store.indices), operand, combine)


def _reads_back(value: Any, store: Any) -> bool:
    return (
        isinstance(value, TensorLoad)
        and bool(value.source.same_as(store.buffer))
        and bool(tvm_ffi.structural_equal(value.indices, store.indices))
    )


def _neutral(combine: Any, start: Any, dtype: str) -> bool:
    if not isinstance(start, tirx.IntImm | tirx.FloatImm):
        return False
    if combine is tirx.Add or combine is tirx.Mul:
        return bool(start.value == (0 if combine is tirx.Add else 1))
    if combine is tirx.Max:
        return bool(start.value <= tirx.min_value(dtype).value)
    return bool(start.value >= tirx.max_value(dtype).value)
