"""Random safe rPrograms, made without the project's own policies and memory planner.

They show what a verifier must accept: exact waits, implied ones, repeated ones, waits for the own
vEU, barriers, idle vEUs, rTasks of several operators interleaved, arenas with and without reuse,
buffers that are parts of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tvm_rammer.rprogram import (
    Buffer,
    OperatorGraph,
    RKernel,
    ROperator,
    RProgram,
    RTask,
    Wait,
    aligned,
)


def random_program(graph: OperatorGraph, num_veus: int, rng: np.random.Generator) -> RProgram:
    """Place the operators of ``graph`` on ``num_veus`` vEUs at random, with waits and an arena.

    Parameters
    ----------
    graph : OperatorGraph
        What to run; one candidate of every operator is drawn.
    num_veus : int
        How many vEUs; some may stay idle.
    rng : numpy.random.Generator
        Decides everything else.

    Returns
    -------
    program : RProgram
        A safe program.
    """
    chosen = [op.candidates[rng.integers(len(op.candidates))] for op in graph.operators]
    kernels = tuple(dict.fromkeys(chosen))
    placement = _place(graph, chosen, num_veus, rng)
    buffers = _plan_arena(graph, placement, rng)
    ends = [b.offset + b.nbytes for b in buffers if b.space == "arena"]
    return RProgram(
        name=graph.name,
        policy="random",
        buffers=buffers,
        kernels=kernels,
        operators=tuple(
            ROperator(op.name, kernels.index(kernel), op.arguments)
            for op, kernel in zip(graph.operators, chosen, strict=True)
        ),
        veus=tuple(tuple(placed.task for placed in tasks) for tasks in placement),
        arena_bytes=aligned(max(ends, default=0)),
        constant_bytes=graph.constant_bytes,
    )


@dataclass(frozen=True)
class _Placed:
    """An rTask and its place; ``before`` has a bit for every rTask that happens before it."""

    task: RTask
    number: int
    veu: int
    position: int
    before: int


#: The rTasks that each vEU runs.
_Placement = list[list[_Placed]]


def _place(
    graph: OperatorGraph, kernels: list[RKernel], num_veus: int, rng: np.random.Generator
) -> _Placement:
    """List scheduling with nothing but chance: any ready rTask, any vEU."""
    placement: _Placement = [[] for _ in range(num_veus)]
    done: list[list[_Placed]] = [[] for _ in graph.operators]
    styles = rng.choice(len(_STYLES), size=rng.integers(1, 4))
    missing = [len(before) for before in graph.predecessors]
    ready: list[RTask] = []
    parts: dict[int, int] = {}

    def release(operator: int) -> None:
        split = _split(kernels[operator].num_tiles, num_veus, rng)
        parts[operator] = len(split)
        level = graph.levels[operator]
        ready.extend(RTask(operator, start, stop, wave=level) for start, stop in split)

    for operator, count in enumerate(missing):
        if count == 0:
            release(operator)
    number = 0
    while ready:
        task = ready.pop(rng.integers(len(ready)))
        veu = int(rng.integers(num_veus))
        needed = [p for before in graph.predecessors[task.operator] for p in done[before]]
        waits = _STYLES[rng.choice(styles)](placement, needed, veu, rng)
        task = replace(task, waits=tuple(waits))
        placed = _Placed(task, number, veu, len(placement[veu]), _history(placement, veu, waits))
        number += 1
        placement[veu].append(placed)
        done[task.operator].append(placed)
        if len(done[task.operator]) == parts[task.operator]:
            for successor in graph.successors[task.operator]:
                missing[successor] -= 1
                if missing[successor] == 0:
                    release(successor)
    return placement


def _split(tiles: int, num_veus: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Cut ``tiles`` at random into at most two contiguous parts for every vEU."""
    cuts = min(tiles, int(rng.integers(1, 2 * num_veus + 1))) - 1
    inner = sorted((1 + rng.permutation(tiles - 1)[:cuts]).tolist())
    return list(zip([0, *inner], [*inner, tiles], strict=True))


def _history(placement: _Placement, veu: int, waits: list[Wait]) -> int:
    """What happens before an rTask that is put at the end of ``veu`` with ``waits``."""
    direct = placement[veu][-1:]
    direct += [placement[wait.veu][wait.count - 1] for wait in waits]
    before = 0
    for earlier in direct:
        before |= earlier.before | 1 << earlier.number
    return before


def _exact(
    placement: _Placement, needed: list[_Placed], veu: int, rng: np.random.Generator
) -> list[Wait]:
    """One wait for every other vEU that ran a producer."""
    last: dict[int, int] = {}
    for producer in needed:
        if producer.veu != veu:
            last[producer.veu] = max(last.get(producer.veu, 0), producer.position + 1)
    return [Wait(*item) for item in last.items()]


def _minimal(
    placement: _Placement, needed: list[_Placed], veu: int, rng: np.random.Generator
) -> list[Wait]:
    """Only the waits that neither program order nor another wait implies."""
    waits: list[Wait] = []
    for producer in sorted(needed, key=lambda placed: -placed.number):
        if not _history(placement, veu, waits) >> producer.number & 1:
            waits.append(Wait(producer.veu, producer.position + 1))
    return waits


def _generous(
    placement: _Placement, needed: list[_Placed], veu: int, rng: np.random.Generator
) -> list[Wait]:
    """Waits for more than is needed, for the own vEU, and for one vEU twice."""
    waits = []
    for producer in needed:
        limit = len(placement[producer.veu])
        waits.append(Wait(producer.veu, int(rng.integers(producer.position + 1, limit + 1))))
    other = int(rng.integers(len(placement)))
    if placement[other]:
        waits.append(Wait(other, int(rng.integers(1, len(placement[other]) + 1))))
    return [waits[i] for i in rng.permutation(len(waits))]


def _barrier(
    placement: _Placement, needed: list[_Placed], veu: int, rng: np.random.Generator
) -> list[Wait]:
    """Everything that was placed so far."""
    return [Wait(other, len(tasks)) for other, tasks in enumerate(placement) if tasks]


_Style = Callable[[_Placement, list[_Placed], int, np.random.Generator], list[Wait]]
_STYLES: tuple[_Style, ...] = (_exact, _minimal, _generous, _barrier)


def _plan_arena(
    graph: OperatorGraph, placement: _Placement, rng: np.random.Generator
) -> tuple[Buffer, ...]:
    """First fit in random order; bytes are shared where happens-before allows it, or never."""
    reuse = rng.random() < 0.8
    lives = _lifetimes(graph, placement)
    buffers = list(graph.buffers)
    placed: list[int] = []
    arena = [index for index, buffer in enumerate(buffers) if buffer.space == "arena"]
    for index in rng.permutation(arena).tolist():
        taken = [
            (buffers[other].offset, buffers[other].offset + aligned(buffers[other].nbytes))
            for other in placed
            if not (reuse and lives[index].disjoint(lives[other]))
        ]
        size = buffers[index].nbytes
        offset = next(
            start
            for start in sorted({0, *(stop for _, stop in taken)})
            if all(start + size <= first or stop <= start for first, stop in taken)
        )
        buffers[index] = replace(buffers[index], offset=offset)
        placed.append(index)
    return tuple(buffers)


@dataclass(frozen=True)
class _Lifetime:
    """Bits of all rTasks that use a buffer, and of those that happen before all of its writers.

    Who uses a part uses the buffer that it lies in.
    """

    users: int
    before: int

    def disjoint(self, other: _Lifetime) -> bool:
        """Whether all is over with one buffer before the other one is written."""
        return not self.users & ~other.before or not other.users & ~self.before


def _lifetimes(graph: OperatorGraph, placement: _Placement) -> list[_Lifetime]:
    users = [0] * len(graph.buffers)
    before = [-1] * len(graph.buffers)
    for tasks in placement:
        for placed in tasks:
            operator = graph.operators[placed.task.operator]
            for buffer, mode in zip(operator.arguments, operator.candidates[0].modes, strict=True):
                is_part = graph.buffers[buffer].space == "part"
                whole = graph.buffers[buffer].index if is_part else buffer
                users[whole] |= 1 << placed.number
                if mode == "write":
                    before[whole] &= placed.before
    return [_Lifetime(*pair) for pair in zip(users, before, strict=True)]
