"""Products of few rows, such as of one token: weights are read once, as wide as a thread can.

All threads of a block take the same results, a strip of N, and share out K. A thread loads its
weights in vectors, many before it needs the first, and sums its part in registers; the parts meet
in shared memory, where a thread for each result adds them up. A tree of sums, as TVM makes one, has
a barrier for each of its levels instead, which together take longer than the loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir, tirx

from tvm_rammer.backend.cuda.arch_target import LIMITS
from tvm_rammer.backend.cuda.block_tilings import sum_and_after, terms_read
from tvm_rammer.backend.cuda.devices import WARP_THREADS
from tvm_rammer.kernel.blocks import loads, variables

#: Columns of a thread, 16 bytes of float32.
_LANES = 4
#: A thread has registers for the sums of so many rows, and for so many vectors of weights.
_MOST_ROWS, _VECTORS = 8, 16
#: Sums of parts that a thread has at the same time: a sum waits for the one before.
_CHAINS = 4


@dataclass(frozen=True)
class ColumnStrips:
    """A sum of products where the weights, the largest operand, lie along N.

    Attributes
    ----------
    outputs : int
        Columns of a block, at most: so many as also divide N.
    """

    outputs: int

    def apply(self, func: tirx.PrimFunc, target: Any, _: bool) -> s_tir.Schedule | None:
        """As rules of dlight do: a schedule, or None of what is no such product."""
        found = sum_and_after(func)
        if found is None:
            return None
        sch, main, after = found
        axes = _Axes.of(sch, main)
        if axes is None or any(not each.is_injective() for each in after):
            return None
        # Of several rows, another thread might go on with a result.
        if _extent(sch, axes.rows) > 1 and not all(_keeps_order(sch, each, main) for each in after):
            return None
        vectors, ragged = divmod(_extent(sch, [axes.column]), _LANES)
        if ragged or _extent(sch, axes.rows) > _MOST_ROWS:
            return None
        outputs = _LANES * _divisor(vectors, self.outputs // _LANES)
        # Each thread has as many terms as another.
        parts = _divisor(_extent(sch, axes.terms), LIMITS.threads * _LANES // outputs)
        threads = parts * outputs // _LANES
        if threads < WARP_THREADS:
            return None
        sch.reorder(*axes.batch, *axes.rows, axes.column, *axes.terms)
        part, _ = sch.split(sch.fuse(*axes.terms), [parts, None])
        partial = sch.rfactor(part, 0)
        sch.set_scope(partial, 0, "shared")
        *_, part = sch.get_loops(main.block_rv)
        _, chain = sch.split(part, [None, _divisor(parts, _CHAINS)])
        chains = sch.rfactor(chain, 0)
        sch.set_scope(chains, 0, "local")
        block, results = _strips(sch, main.block_rv, len(axes.batch), outputs)
        sch.compute_at(chains, block, preserve_unit_loops=True)
        _sum_parts(sch, partial, block)
        for each in after:
            sch.set_scope(main.block_rv, 0, "local")
            sch.reverse_compute_at(each.block_rv, block, preserve_unit_loops=True)
            _bind(sch, sch.get_loops(each.block_rv)[1:], threads)
        # Last: TVM does not see who needs what behind loops that not all threads run.
        _bind(sch, results, threads)
        chain, part, results = _chain_loops(sch, chains)
        sch.reorder(*results, chain, part)
        _bind(sch, results, threads)
        for loop in (chain, part, sch.get_loops(main.block_rv)[-1]):
            sch.unroll(loop)
        for block in (chains, main.block_rv):
            sch.decompose_reduction(block, sch.get_loops(block)[2])
        return sch


def _keeps_order(sch: s_tir.Schedule, after: Any, main: Any) -> bool:
    """Whether what comes after a product takes its results one by one, as they lie."""
    buffer = sch.get(main.block_rv).writes[0].source
    block = sch.get(after.block_rv)
    axes = [each.var for each in block.iter_vars]
    taken = [load for load in loads(block.body) if load.source.same_as(buffer)]
    return all([each for each in load.indices if variables(each)] == axes for load in taken)


def _strips(sch: s_tir.Schedule, total: Any, batch: int, outputs: int) -> tuple[Any, Sequence[Any]]:
    """Give every block a strip of results: the loop of blocks, and those of their results."""
    *others, column, chain = sch.get_loops(total)
    strip, column = sch.split(column, [None, outputs])
    results = [*others[batch:], column]
    sch.reorder(*others[:batch], strip, *results, chain)
    block = sch.fuse(*others[:batch], strip)
    sch.bind(block, "blockIdx.x")
    return block, results


def _sum_parts(sch: s_tir.Schedule, partial: Any, block: Any) -> None:
    """Every thread sums its part of a few columns in registers."""
    kept = sch.cache_write(partial, 0, "local")
    sch.compute_at(kept, block, preserve_unit_loops=True)
    _, part, *others, column = sch.get_loops(kept)
    lane, column = sch.split(column, [None, _LANES])
    sch.reorder(part, lane, *others, column)
    thread = sch.fuse(part, lane)
    sch.bind(thread, "threadIdx.x")
    sch.vectorize(column)
    sch.compute_at(partial, thread, preserve_unit_loops=True)
    inner = sch.get_loops(partial)[2:]
    *spatial, column, step = inner
    outer, step = sch.split(step, [None, _divisor(_extent(sch, [step]), _VECTORS)])
    sch.reorder(outer, step, *spatial, column)
    for loop in (step, *spatial):
        sch.unroll(loop)
    sch.vectorize(column)
    sch.decompose_reduction(partial, outer)


@dataclass(frozen=True)
class _Axes:
    """Loops of a product: of results with weights of their own, of rows, of N, and of terms."""

    batch: Sequence[Any]
    rows: Sequence[Any]
    column: Any
    terms: Sequence[Any]

    @classmethod
    def of(cls, sch: s_tir.Schedule, block: Any) -> _Axes | None:
        """None where the largest operand does not lie along an axis of results."""
        iters = {
            each.var: (kind.kind, kind.loop_rv)
            for each, kind in zip(sch.get(block.block_rv).iter_vars, block.iters, strict=True)
        }
        terms = {var for var, (kind, _) in iters.items() if kind == "R"}
        read = terms_read(sch, block)
        if len(read) < 2:
            return None
        weights = max(read, key=lambda each: prod(map(int, each.source.shape)))
        last = weights.indices[-1]
        if last not in iters or last in terms:
            return None
        own = set().union(*map(variables, weights.indices))
        results = [var for var, (kind, _) in iters.items() if kind == "S" and var not in (last,)]
        return cls(
            [iters[var][1] for var in results if var in own],
            [iters[var][1] for var in results if var not in own],
            iters[last][1],
            [iters[var][1] for var in terms],
        )


def _chain_loops(sch: s_tir.Schedule, chains: Any) -> tuple[Any, Any, list[Any]]:
    """Loops of a block at the loop of blocks, which are in the order of its axes."""
    _, chain, *loops = sch.get_loops(chains)
    axes = sch.get(chains).iter_vars[1:]
    sums = [axis.iter_type == tirx.IterVar.CommReduce for axis in axes]
    return chain, loops.pop(sums.index(True)), loops


def _bind(sch: s_tir.Schedule, loops: Sequence[Any], threads: int) -> None:
    """Give every thread a result, or several, or none."""
    _, thread = sch.split(sch.fuse(*loops), [None, threads])
    sch.bind(thread, "threadIdx.x")


def _divisor(number: int, most: int) -> int:
    """The largest one that is not above a limit."""
    return max(each for each in range(1, most + 1) if number % each == 0)


def _extent(sch: s_tir.Schedule, loops: Sequence[Any]) -> int:
    return prod(int(sch.get(loop).extent) for loop in loops)
