"""Sums of few terms, such as pools and convolutions of one channel each: a thread for some results.

A thread adds up results that lie side by side, which it loads and stores as vectors, and computes
what comes after them: dlight launches that by itself, and the sums are stored and read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir, tirx

from tvm_rammer.backend.cuda.block_tilings import NOT_UNROLLED, sum_and_after

#: Terms that one thread adds up at most: others share more of them out.
_MOST_TERMS = 128
#: Terms that are written out: what a thread loads for them is under way together.
_MOST_UNROLLED = 36


@dataclass(frozen=True)
class ShortSum:
    """A sum of few terms for each result.

    Attributes
    ----------
    threads : int
        Of a block.
    lanes : int
        Results of a thread, which lie side by side.
    """

    threads: int
    lanes: int

    def apply(self, func: tirx.PrimFunc, target: Any, _: bool) -> s_tir.Schedule | None:
        """As rules of dlight do: a schedule, or None of what is no such sum."""
        found = sum_and_after(func)
        if found is None:
            return None
        sch, main, after = found
        terms = [each for each in main.iters if each.kind == "R"]
        if prod(_extents(sch, [each.loop_rv for each in terms])) > _MOST_TERMS:
            return None
        *outer, innermost = (each.loop_rv for each in main.iters if each.kind == "S")
        extents = _extents(sch, [*outer, innermost])
        if any(not e.is_injective() or prod(map(int, e.dom())) != prod(extents) for e in after):
            return None
        # Of fewer vectors than threads, TVM forgets that some threads have none.
        if extents[-1] % self.lanes or prod(extents) // self.lanes < self.threads:
            return None
        last = after[0].block_rv if after else sch.cache_write(main.block_rv, 0, "local")
        if after:
            sch.set_scope(main.block_rv, 0, "local")
        vector, lane = sch.split(innermost, [None, self.lanes])
        steps = [each.loop_rv for each in terms]
        sch.reorder(*outer, vector, *steps, lane)
        block, thread = sch.split(sch.fuse(*outer, vector), [None, self.threads])
        sch.bind(block, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        sch.reverse_compute_at(last, thread, preserve_unit_loops=True)
        if self.lanes > 1:
            sch.vectorize(lane)
            sch.vectorize(sch.get_loops(last)[-1])
        _unroll(sch, steps)
        sch.annotate(thread, NOT_UNROLLED, 0)
        sch.decompose_reduction(main.block_rv, steps[0])
        return sch


def _unroll(sch: s_tir.Schedule, steps: list[Any]) -> None:
    """Write out the innermost loops of terms, as many as are few together."""
    terms = 1
    for step in reversed(steps):
        terms *= int(sch.get(step).extent)
        if terms > _MOST_UNROLLED:
            return
        sch.unroll(step)


def _extents(sch: s_tir.Schedule, loops: list[Any]) -> list[int]:
    return [int(sch.get(loop).extent) for loop in loops]
