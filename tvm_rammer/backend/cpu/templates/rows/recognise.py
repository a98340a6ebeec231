"""Finds the row program of a PrimFunc, if all its reductions run over the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import Call, Op

from tvm_rammer.backend.cpu.templates.rows.axes import Axes, RowNest, join_axes
from tvm_rammer.backend.cpu.templates.rows.row_program import (
    Home,
    RowProgram,
    RowStep,
    Store,
    all_loads,
)
from tvm_rammer.backend.cpu.templates.rows.stores import stores_of
from tvm_rammer.kernel.blocks import (
    attempt,
    is_choice,
    is_reduced,
    is_reduction,
    reduces,
    root_blocks,
    schedule_of,
    sole_block,
)
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.kernel.split import root_nests


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
