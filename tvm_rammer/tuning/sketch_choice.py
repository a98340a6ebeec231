"""A point of the sketch space: the trace of a schedule, and the kernel that it makes.

Its number is made of the trace itself, so that records can be put together from anywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.s_tir.schedule import Trace

from tvm_rammer.errors import TuningError
from tvm_rammer.kernel.blocks import is_reduced, loads, schedule_of, variables, with_statements
from tvm_rammer.kernel.iterations import Iterations
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.kernel.nodes import collect, parts_of, statements
from tvm_rammer.kernel.scheduled import Choice, Packing, Scheduled
from tvm_rammer.kernel.split import num_tiles, root_nests
from tvm_rammer.tuning.sketch_space import TILES

#: Numbers of sketches begin here; templates do not list that many configurations.
_FIRST = 1 << 60
_DIGITS = 14
#: What MetaSchedule calls a block that lays a parameter out anew.
_PACKS = "meta_schedule.layout_rewrite_preproc"
_NAME = "sketch"


def is_sketch(number: int) -> bool:
    """Whether the number of a choice is one of a sketch."""
    return number >= _FIRST


def is_sketched(trace: Any) -> bool:
    """Whether a trace, or its JSON, is one of the sketch space: it has its knobs."""
    if isinstance(trace, Trace):
        return any(list(map(str, step.attrs)) == [TILES] for step in trace.insts)
    return any(attributes == [TILES] for _, _, attributes, _ in trace[0])


def trace_text(trace: Any) -> str:
    """A trace, or its JSON, as one text, which is the same however it was kept."""
    content = trace.as_json() if isinstance(trace, Trace) else trace
    return json.dumps(_plain(content), separators=(",", ":"))


def sketch_number(text: str) -> int:
    """The number of a trace."""
    return _FIRST + int(hashlib.sha256(text.encode()).hexdigest()[:_DIGITS], 16)


def sketch_of(func: tirx.PrimFunc, text: str) -> Choice:
    """The choice that a trace stands for."""
    made = _made(func, text)
    return Choice(
        f"{_NAME}: {made.tiling} ({sketch_number(text) - _FIRST:0{_DIGITS}x})",
        partial(_made, func, text),
        (_NAME, *_order_of_sums(made.func)),
    )


@dataclass(frozen=True)
class SteppedLayout(Packing):
    """Each index of an axis moves an element by a distance of its own.

    Attributes
    ----------
    packed : tuple of int
        The shape.
    distances : tuple of tuple of int
        For every axis, how far each of its indices is from the beginning, in elements.
    """

    packed: tuple[int, ...]
    distances: tuple[tuple[int, ...], ...]

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that the kernel declares."""
        return self.packed

    def fill(self, packed: np.ndarray, array: np.ndarray) -> None:
        """Write every element where it belongs."""
        places = reduce(np.add.outer, [np.array(each, np.int64) for each in self.distances])
        packed.reshape(-1)[places] = array


def _made(func: tirx.PrimFunc, text: str) -> Scheduled:
    """The kernel of a trace.

    Raises
    ------
    TuningError
        If the trace is of something else.
    """
    schedule = schedule_of(func)
    try:
        Trace.apply_json_to_schedule(json.loads(text), schedule)
    except (ValueError, TypeError, RuntimeError, s_tir.ScheduleError) as error:
        raise TuningError(f"a record of a sketch is none of this operator: {error}") from error
    made, packings = _with_packed_parameters(_with_notes_inside(schedule.mod["main"]))
    tiles = [num_tiles(nest) for nest in root_nests(made.body)]
    return Scheduled(made, _NAME, f"{', '.join(map(str, tiles))} rTasks", packings)


def _with_notes_inside(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Move what is noted at a loop over rTasks to the loops within: rTasks have only these."""

    def moved(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL or not len(loop.annotations):
            return loop
        inner = [
            tirx.For(
                each.loop_var,
                each.min,
                each.extent,
                each.kind,
                each.body,
                annotations={**loop.annotations, **each.annotations},
                step=each.step,
            )
            if isinstance(each, tirx.For)
            else each
            for each in statements(loop.body)
        ]
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, sequence(inner))

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, moved)))


def _plain(content: Any) -> Any:
    """Containers and numbers of JSON; fractions as far as a file keeps them."""
    if content is None:
        return content
    if isinstance(content, str):
        # Layouts are JSON in a text, which TVM spaces otherwise in a file.
        spaced = content.startswith("{")
        return json.dumps(json.loads(content), separators=(",", ":")) if spaced else content
    if isinstance(content, float | tirx.FloatImm):
        return float(f"{float(content):.4g}")
    if isinstance(content, int | tirx.IntImm):
        return int(content)
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    return [_plain(each) for each in content]


def _with_packed_parameters(
    func: tirx.PrimFunc,
) -> tuple[tirx.PrimFunc, tuple[tuple[int, Packing], ...]]:
    """A function whose parameters come as its blocks would have laid them out."""
    packings = []
    for nest in root_nests(func.body):
        if block := _packing_block(nest):
            (load,) = loads(block.body)
            source, values = load.source, [axis.var for axis in block.iter_vars]
            number = next(k for k, param in enumerate(func.params) if param.same_as(source))
            packings.append((number, _layout(block.body, values, list(map(int, source.shape)))))
    if not packings:
        return func, ()
    # What it leaves of these blocks is empty.
    remove = s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)
    func = remove(tvm.IRModule({"main": func}))["main"]
    nests = [nest for nest in root_nests(func.body) if not _packing_block(nest)]
    return with_statements(func, sequence(nests)), tuple(packings)


def _packing_block(nest: Any) -> Any:
    """The block of a loop nest that lays a parameter out anew; ``None`` of any other nest."""
    return next((b for b in collect(nest, s_tir.SBlock) if _PACKS in b.annotations), None)


def _layout(store: Any, axes: Sequence[Any], shape: Sequence[int]) -> SteppedLayout:
    """How a store lays out what it loads along some axes."""
    packed = tuple(map(int, store.buffer.shape))

    def places(number: int, extent: int) -> tuple[int, ...]:
        known = {axis: np.zeros(1, np.int64) for axis in axes}
        known[axes[number]] = np.arange(extent)
        indices = [Iterations().values_of(index, known, most=1) for index in store.indices]
        found = np.atleast_1d(np.ravel_multi_index(np.broadcast_arrays(*indices), packed))
        return tuple(found.tolist()) * (extent // found.size)

    return SteppedLayout(packed, tuple(places(k, extent) for k, extent in enumerate(shape)))


def _order_of_sums(func: tirx.PrimFunc) -> Iterator[str]:
    """In which order each block adds up: the loops that its sums run along, from outside in."""
    loops: list[Any] = []

    def visit(statement: Any) -> Iterator[str]:
        if isinstance(statement, tirx.For):
            loops.append(statement)
        if isinstance(statement, s_tir.SBlockRealize):
            yield from _order(statement, loops)
        for part in parts_of(statement):
            yield from visit(part)
        if isinstance(statement, tirx.For):
            loops.pop()

    yield from visit(func.body)


def _order(realize: Any, loops: Sequence[Any]) -> Iterator[str]:
    """The same of one block, nothing if it sums nothing up."""
    summed = [
        value
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if is_reduced(axis)
    ]
    used = {variable for value in summed for variable in variables(value)}
    along = [loop for loop in loops if loop.loop_var in used and int(loop.extent) > 1]
    if not along:
        return
    names = {loop.loop_var: tirx.Var(f"r{k}", loop.loop_var.ty) for k, loop in enumerate(along)}
    zero = {loop.loop_var: tirx.const(0, loop.loop_var.ty) for loop in loops}

    def renamed(variable: Any) -> Any:
        return names.get(variable, zero.get(variable, variable))

    simpler = sym.Analyzer().simplify
    written = [simpler(tvm_ffi.structural_map(each, (tirx.Var, renamed))) for each in summed]
    yield f"{[int(loop.extent) for loop in along]} {list(map(str, written))}"
