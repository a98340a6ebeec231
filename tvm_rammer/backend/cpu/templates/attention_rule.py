"""Attentions of few queries: in how many parts their places are dealt out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import s_tir, tirx

from tvm_rammer.backend.cpu.templates.attention_kernel import AttentionKernel
from tvm_rammer.kernel.attention_blocks import AttentionFunc
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.kernel.scheduled import Scheduled, Template
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import dtype_bytes

#: Places of a block: its scores, and what of its values is read together, stay in the first cache.
_LONGEST, _SHORTEST, _USUAL = 128, 32, 64
#: So many tiles for each vEU share out evenly.
_EVEN = 4


@dataclass(frozen=True)
class SharesOfPlaces:
    """A configuration: how many tiles share the places of a batch."""

    count: int

    def __str__(self) -> str:
        return f"{self.count} parts"


@dataclass(frozen=True)
class FewQueries:
    """An attention on a device."""

    func: AttentionFunc
    vdevice: VDevice

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.vdevice.vector_bytes // dtype_bytes("float32")

    @property
    def block(self) -> int:
        """Places of a block: whole vectors that divide all places, where there are such."""
        places = self.func.places
        if places <= _LONGEST:
            return places
        lengths = range(_LONGEST, _SHORTEST - 1, -self.lanes)
        return next((length for length in lengths if places % length == 0), _USUAL)

    @property
    def counts(self) -> list[int]:
        """How many parts places may be dealt out to: no more than there are blocks."""
        blocks = self.func.places // self.block
        return [1 << k for k in range(blocks.bit_length())]


@dataclass(frozen=True)
class FewQueriesRule(Template[FewQueries, SharesOfPlaces]):
    """Schedules what :class:`.FuseAttentions` makes."""

    name: str = "attention"

    def match(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> FewQueries | None:
        """As in :meth:`.Template.match`."""
        found = AttentionFunc.of(func)
        return None if found is None else FewQueries(found, vdevice)

    def space(self, found: FewQueries) -> Sequence[SharesOfPlaces]:
        """All numbers of parts; whole batches first where they share out evenly."""
        batches, veus = found.func.batches, found.vdevice.num_veus
        enough = [n for n in found.counts if n * batches >= _EVEN * veus]
        usual = 1 if batches % veus == 0 else (enough or found.counts[-1:])[0]
        return [SharesOfPlaces(usual), *(SharesOfPlaces(n) for n in found.counts if n != usual)]

    def emit(self, found: FewQueries, configuration: SharesOfPlaces) -> Scheduled:
        """So many parts."""
        func, count = found.func.func, configuration.count
        registers = found.vdevice.vector_registers // 2
        kernel = AttentionKernel(found.func, found.block, count, found.lanes, registers)
        stages, between = kernel.stages()
        body = sequence([*map(tirx.AllocBuffer, between), *stages])
        root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body))
        words = f"blocks of {found.block} places" + (f" in {count} parts" if count > 1 else "")
        return Scheduled(func.with_body(root), self.name, words)
