"""The back end that interprets: what the protocol asks, most of which it has no need of."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from math import ceil
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import ScheduleError

from tvm_rammer.backend.interpret.runs import Compiler, encode, lowering_pipeline
from tvm_rammer.backend.protocol import WAIT_LIMIT, Backend, EncodedPlan
from tvm_rammer.backend.signature import RegionSignature
from tvm_rammer.errors import LibraryError
from tvm_rammer.kernel.blocks import extent, is_scheduled, root_blocks, schedule_of, split_loops
from tvm_rammer.kernel.lowering.compare_booleans import CompareBooleans
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.kernel.split import SplitKernel, split_into_stages
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import RProgram

#: vEUs of a plan if nobody says how many.
_NUM_VEUS = 4
#: Nothing runs at the same time, so that a plan may have as many as it likes.
_MOST_VEUS = 1 << 14
#: Of the arena that kernels are called with: the interpreter has one of its own.
_ARENA_BYTES = 64


class InterpretBackend(Backend):
    """Runs plans step by step; see :class:`~tvm_rammer.backend.protocol.Backend`."""

    name = "interpret"
    #: Asked for by name only.
    kinds: tuple[str, ...] = ()
    forms = ("program",)

    def resolve(self, target: tvm.target.Target | None) -> tvm.target.Target:
        """This machine's most general processor, whatever is asked for: nothing is to be fast."""
        return tvm.target.Target("llvm")

    def vdevice(
        self, target: tvm.target.Target, num_veus: int | None = None, oversubscribe: bool = False
    ) -> VDevice:
        device = VDevice("interpreter", _NUM_VEUS, self.name, _MOST_VEUS, _MOST_VEUS)
        return device if num_veus is None else device.with_veus(num_veus)

    def schedule(
        self,
        func: tirx.PrimFunc,
        constants: frozenset[int],
        vdevice: VDevice,
        winograd_tolerance: float,
    ) -> Scheduled:
        return tiled(func)

    def split(self, func: tirx.PrimFunc, vdevice: VDevice) -> SplitKernel:
        return split_into_stages(func, tile_seconds)

    def compiler(self, target: tvm.target.Target) -> Compiler:
        return Compiler(target)

    def encode(
        self,
        program: RProgram,
        signature: RegionSignature,
        ids: Mapping[str, int],
        by_wave: bool = False,
        wait_limit: float = WAIT_LIMIT,
    ) -> EncodedPlan:
        return EncodedPlan(encode(program), _ARENA_BYTES)

    def build_operators(
        self, functions: Mapping[str, tirx.PrimFunc], target: tvm.target.Target
    ) -> list[tvm.runtime.Module]:
        named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
        return [tvm.tirx.build(tvm.IRModule(named), target, pipeline=lowering_pipeline())]

    def passes_for_vm(self) -> list[tvm.transform.Pass]:
        return [CompareBooleans()]

    def device(self, given: Any) -> Any:
        return tvm.cpu()

    def adopt(self, module: tvm.runtime.Module) -> None:
        raise LibraryError("a library that is interpreted runs in the process that built it only")


#: Enough for several vEUs, few enough to be stepped through.
_MOST_TILES = 8
#: Seconds of a tile: so long that policies spread the tiles of an operator.
_TILE_SECONDS = 1e-4


def tiled(func: tirx.PrimFunc) -> Scheduled:
    """Cut a legalized PrimFunc into tiles; what is scheduled already stays as it is."""
    if is_scheduled(func):
        return Scheduled(func, "as given", "")
    sch = schedule_of(func)
    try:
        blocks = root_blocks(sch)
    except ScheduleError:
        # Loops that nobody put into blocks: running sums.
        return Scheduled(func.with_attr("global_symbol", "main"), "as written", "")
    counts = [_cut(sch, block) for block in blocks]
    return Scheduled(sch.mod["main"], "interpreted", ", ".join(f"{n} tiles" for n in counts))


def tile_seconds(nest: Any, num_tiles: int, nbytes: int) -> float:
    """What a tile costs; nobody waits for it."""
    return _TILE_SECONDS


def _cut(sch: s_tir.Schedule, block: Any) -> int:
    """Cut the loops around a block that do not reduce; how many tiles there are."""
    spatial, reduced = split_loops(sch, block)
    inner = [sch.get(loop) for loop in reduced]
    outer = list(
        takewhile(
            lambda loop: not any(sch.get(loop).same_as(each) for each in inner),
            sch.get_loops(block),
        )
    )
    if not outer or not all(extent(sch, loop) for loop in (*spatial, *reduced)):
        return 1
    try:
        fused = sch.fuse(*outer)
        length = ceil(extent(sch, fused) / _MOST_TILES)
        tiles, _ = sch.split(fused, [None, length])
        sch.parallel(tiles)
    except ScheduleError:
        return 1
    return extent(sch, tiles)
