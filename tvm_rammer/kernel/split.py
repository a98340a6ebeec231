"""From a scheduled PrimFunc to rTask bodies: one callable stage per root loop nest.

A scheduled PrimFunc is a sequence of loop nests. Each becomes a *stage*, a private function
``body(start, stop, *pointers) -> int32`` that runs the tiles ``start <= i < stop`` of its parallel
loop, and the buffers between the stages become scratch buffers that the planner places in the
arena. So a padded convolution whose padding was not inlined is two rOperators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import PointerType, PrimType

from tvm_rammer.errors import ModelError
from tvm_rammer.kernel.blocks import distinct, loads, variables
from tvm_rammer.kernel.footprint import Matrix, footprints
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.kernel.lowering.index_divisions import (
    HideDivisions,
    PositiveDivision,
    ShowDivisions,
)
from tvm_rammer.kernel.nodes import buffer_bytes, collect, statements
from tvm_rammer.rprogram.program import Mode

#: What the blocks of a schedule go through until they are plain loops. Where there are none, the
#: buffers have the sizes that they need: to look for smaller ones takes most of the time.
_LOWER_BLOCKS = (
    s_tir.transform.CanonicalizeLoop(),
    s_tir.transform.LowerInitBlock(),
    s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
    s_tir.transform.ConvertBlocksToOpaque(),
    s_tir.transform.CompactBufferAllocation(),
    s_tir.transform.LowerMatchBuffer(),
)
#: What a PrimFunc goes through by itself before its loop nests are taken apart. Its buffers keep
#: their axes at first.
_LOWER_LOOPS = (
    s_tir.transform.StmtSimplify(),
    PositiveDivision(),
    s_tir.transform.LowerOpaqueBlock(),
)
_LOWER_BUFFERS = (
    HideDivisions(),
    tirx.transform.FlattenBuffer(),
    ShowDivisions(),
    tirx.transform.BF16ComputeLegalize(),
    tirx.transform.NarrowDataType(32),
)


@dataclass(frozen=True)
class Scratch:
    """A buffer between two stages of one PrimFunc."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Stage:
    """One loop nest as a function of a tile range.

    ``arguments[k]`` names the buffer behind pointer ``k``: a parameter of the PrimFunc if below the
    number of parameters, else a scratch buffer.
    """

    body: tirx.PrimFunc
    num_tiles: int
    arguments: tuple[int, ...]
    modes: tuple[Mode, ...]
    tile_seconds: float
    footprints: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class SplitKernel:
    """All stages of a PrimFunc, in order, and the scratch buffers between them."""

    stages: tuple[Stage, ...]
    scratch: tuple[Scratch, ...]


#: Seconds that a tile takes one vEU: of a lowered loop nest, cut into so many tiles, that touches
#: so many bytes in all.
TileSeconds = Callable[[Any, int, int], float]


def untimed(nest: Any, num_tiles: int, nbytes: int) -> float:
    """What tiles take where nobody asks."""
    return 0.0


def split_into_stages(func: tirx.PrimFunc, tile_seconds: TileSeconds = untimed) -> SplitKernel:
    """Take a scheduled PrimFunc apart.

    Parameters
    ----------
    func : tirx.PrimFunc
        Scheduled; its root loops of kind *parallel* are tile loops, any other root statement is a
        stage of one tile.
    tile_seconds : callable
        What a tile costs where nothing was measured.

    Raises
    ------
    ModelError
        When a parameter is not a buffer, or a buffer is declared on something else.
    """
    kept = func.with_body(_with_marked_tile_loops(func.body))
    passes = [*(_LOWER_BLOCKS if collect(kept.body, s_tir.SBlock) else ()), *_LOWER_LOOPS]
    shaped = tvm.transform.Sequential(passes)(tvm.IRModule({"main": kept}))
    lowered = tvm.transform.Sequential(list(_LOWER_BUFFERS))(shaped)["main"]
    parts = _Parts.of(lowered)
    footprints = _Parts.of(shaped["main"]).footprints()
    stages = [
        parts.stage(nest, touched, tile_seconds)
        for nest, touched in zip(parts.together(), footprints, strict=True)
    ]
    used = {number for stage in stages for number in stage.arguments}
    if any(number not in used for number in range(len(lowered.params), parts.num_buffers)):
        return _drop_unused(stages, parts, used)
    return SplitKernel(tuple(stages), tuple(parts.scratch))


def _drop_unused(stages: list[Stage], parts: _Parts, used: set[int]) -> SplitKernel:
    """Renumber the scratch buffers after some turned out to be private to a stage."""
    first = parts.num_buffers - len(parts.scratch)
    kept = [number for number in range(first, parts.num_buffers) if number in used]
    renumbered = {number: first + k for k, number in enumerate(kept)}
    moved = [
        replace(stage, arguments=tuple(renumbered.get(n, n) for n in stage.arguments))
        for stage in stages
    ]
    return SplitKernel(tuple(moved), tuple(parts.scratch[number - first] for number in kept))


@dataclass(frozen=True)
class _Parts:
    """A lowered PrimFunc: views of its parameters, buffers between the loop nests, the nests."""

    params: tuple[Any, ...]
    views: tuple[tuple[Any, int], ...]
    scratch: tuple[Scratch, ...]
    nests: list[Any]

    @property
    def num_buffers(self) -> int:
        return len(self.params) + len(self.scratch)

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> _Parts:
        params = tuple(func.params)
        name = str(func.attrs.get("global_symbol", "")) if func.attrs else ""
        for param in params:
            if not isinstance(param.ty, tirx.BufferType):
                raise ModelError(
                    f"PrimFunc {name!r} has the parameter {param.name!r}, which is no buffer: "
                    "leave the operator out of the plan"
                )
        views: dict[Any, int] = {param: number for number, param in enumerate(params)}
        scratch: list[Scratch] = []
        nests: list[Any] = []
        for statement in statements(func.body):
            if isinstance(statement, tirx.DeclBuffer):
                source = variables(statement.data) & set(views)
                if len(source) != 1:
                    raise ModelError(
                        f"PrimFunc {name!r} declares {statement.buffer.name!r} on something other "
                        "than a buffer: leave the operator out of the plan"
                    )
                views[statement.buffer] = views[source.pop()]
            elif isinstance(statement, tirx.AllocBuffer):
                views[statement.buffer] = len(params) + len(scratch)
                shape = tuple(int(extent) for extent in statement.buffer.shape)
                scratch.append(Scratch(shape, str(statement.buffer.dtype)))
            else:
                nests.append(statement)
        return cls(params, tuple(views.items()), tuple(scratch), nests)

    def together(self) -> list[Any]:
        """The nests, joined from the first to the last one that writes a buffer.

        A buffer has one producer. A scalar that is bound for the nests after it joins them all.
        """
        numbers = dict(self.views)
        stored = [_stored(nest) for nest in self.nests]
        written = [{numbers[view] for view in some if view in numbers} for some in stored]
        last = {number: place for place, some in enumerate(written) for number in some}
        joined: list[list[Any]] = [[]]
        end = 0
        for place, nest in enumerate(self.nests):
            if place > end:
                joined.append([])
            joined[-1].append(nest)
            shared = len(self.nests) - 1 if isinstance(nest, tirx.Bind) else place
            end = max(end, shared, *(last[number] for number in written[place]))
        return [sequence(nests) for nests in joined]

    def footprints(self) -> list[dict[int, tuple[int, ...]]]:
        """What the tiles of each stage touch of every buffer, while the buffers have axes."""
        matrices = {number: self._matrix(number) for number in range(self.num_buffers)}
        return [footprints(nest, dict(self.views), matrices) for nest in self.together()]

    def _matrix(self, number: int) -> Matrix:
        if number >= len(self.params):
            return Matrix.of(self.scratch[number - len(self.params)].shape)
        param = self.params[number]
        shape = tuple(int(extent) for extent in param.shape)
        strides = [int(stride) for stride in param.strides]
        return Matrix.of(shape, strides[-2] if len(strides) > 1 else None)

    def stage(
        self, nest: Any, touched_cells: Mapping[int, tuple[int, ...]], tile_seconds: TileSeconds
    ) -> Stage:
        """Make the function of a tile range that runs one loop nest."""
        reads, writes = _accessed(nest)
        accessed = reads | writes
        touched = [(view, number) for view, number in self.views if view in accessed]
        arguments = tuple(dict.fromkeys(number for _, number in touched))
        modes: tuple[Mode, ...] = tuple(
            "write" if any(view in writes for view, n in touched if n == number) else "read"
            for number in arguments
        )
        buffers = (*self.params, *self.scratch)
        pointers = {
            number: tirx.Var(f"p{k}", PointerType(PrimType(str(buffers[number].dtype))))
            for k, number in enumerate(arguments)
        }
        declared = [
            *self._offsets(nest),
            *(tirx.DeclBuffer(view, data=pointers[number]) for view, number in touched),
        ]
        start, stop = tirx.Var("start", "int32"), tirx.Var("stop", "int32")
        num_tiles, loop = _tile_loop(nest, start, stop)
        body = _function([start, stop, *pointers.values()], [*declared, loop])
        nbytes = sum(buffer_bytes(buffers[number]) for number in arguments)
        seconds = tile_seconds(nest, num_tiles, nbytes)
        cells = tuple(touched_cells.get(number, ()) for number in arguments)
        return Stage(body, num_tiles, arguments, modes, seconds, cells)

    def _offsets(self, nest: Any) -> list[Any]:
        """Where its tensor a parameter starts may be left open by a PrimFunc: at the pointer."""
        starts = (param.elem_offset for param in self.params)
        offsets = dict.fromkeys(start for start in starts if isinstance(start, tirx.Var))
        used = variables(nest) if offsets else set()
        return [tirx.Bind(offset, tirx.const(0, offset.ty)) for offset in offsets if offset in used]


def _tile_loop(nest: Any, start: tirx.Var, stop: tirx.Var) -> tuple[int, Any]:
    """The nest restricted to a tile range, and how many tiles there are in all."""
    if _is_parallel(nest) and isinstance(nest.extent, tirx.IntImm):
        # A loop that loaded int64 values index with stays int64.
        dtype, tiles = str(nest.loop_var.ty), int(nest.extent)
        # No caller goes beyond the tiles. TVM's simplifier would let them go up to 2^31, and ends
        # with an overflow where tiles are multiplied and divided.
        first, end = (tirx.min(tirx.max(each, 0), tiles) for each in (start, stop))
        bounds = (first.astype(dtype), (end - first).astype(dtype))
        body = _serial(nest.body)
        return tiles, tirx.For(nest.loop_var, *bounds, tirx.ForKind.SERIAL, body)
    index = tirx.Var("tile", "int32")
    return 1, tirx.For(index, start, stop - start, tirx.ForKind.SERIAL, _serial(nest))


def _with_marked_tile_loops(statement: Any) -> Any:
    """Lowering removes loops of one iteration, unless they are marked.

    Without its loop, a nest of one tile would fall apart, and its local buffers become scratch.
    """

    def mark(loop: Any) -> Any:
        if not _is_parallel(loop):
            return loop
        marks = {**loop.annotations, "tvm_rammer.tiles": True}
        bounds = (loop.loop_var, loop.min, loop.extent)
        return tirx.For(*bounds, loop.kind, loop.body, annotations=marks, step=loop.step)

    return tvm_ffi.structural_map(statement, (tirx.For, mark))


def _is_parallel(statement: Any) -> bool:
    return isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.PARALLEL


def _serial(statement: Any) -> Any:
    """A statement with its parallel loops made serial: a launch inside a launch is an error."""

    def serial(loop: Any) -> Any:
        if not _is_parallel(loop):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm_ffi.structural_map(statement, (tirx.For, serial))


def _function(params: list[Any], statements: list[Any]) -> tirx.PrimFunc:
    """A private function that returns 0; the device attributes serve its workspace allocations."""
    device = tirx.AttrStmt("default", "device_type", 1, tirx.SeqStmt(statements))
    device = tirx.AttrStmt("default", "device_id", 0, device)
    body = tirx.SeqStmt([device, tirx.Return(tirx.const(0, "int32"))])
    func = tirx.PrimFunc(params, body, ret_type=PrimType("int32"))
    return func.with_attrs({"tirx.noalias": True, "tirx.is_scheduled": True, "s_tir": True})


def num_tiles(nest: Any) -> int:
    """How many tiles a statement of a scheduled PrimFunc's body is cut into."""
    if _is_parallel(nest) and isinstance(nest.extent, tirx.IntImm):
        return int(nest.extent)
    return 1


def root_nests(body: Any) -> list[Any]:
    """The statements of a PrimFunc's body, within its root block where it has one."""
    return statements(body.block.body if isinstance(body, s_tir.SBlockRealize) else body)


def _accessed(nest: Any) -> tuple[set[Any], set[Any]]:
    """Buffers that a loop nest loads from and stores to."""
    return distinct(load.source for load in loads(nest)), _stored(nest)


def _stored(nest: Any) -> set[Any]:
    return distinct(store.buffer for store in collect(nest, tirx.BufferStore))
