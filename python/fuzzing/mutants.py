"""Small changes to an rProgram that may make it unsafe: what a verifier has to notice.

A mutation changes one thing and adjusts nothing else. Whether the mutant really is unsafe is for
someone else to decide: a dropped wait may have been implied by another one, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from tvm_rammer.rprogram import ALIGNMENT, RProgram, RTask, Wait

Mutation = Callable[[RProgram, np.random.Generator], RProgram | None]


def drop_wait(program: RProgram, rng: np.random.Generator) -> RProgram | None:
    """Remove a wait, or lower its count; None if nothing waits."""
    waiting = [(veu, position) for veu, position, task in program.tasks() if task.waits]
    if not waiting:
        return None
    veu, position = waiting[rng.integers(len(waiting))]
    task = program.veus[veu][position]
    chosen = int(rng.integers(len(task.waits)))
    waits = list(task.waits)
    wait = waits.pop(chosen)
    if wait.count > 1 and rng.random() < 0.5:
        waits.insert(chosen, replace(wait, count=int(rng.integers(1, wait.count))))
    return _with_task(program, veu, position, replace(task, waits=tuple(waits)))


def swap_tasks(program: RProgram, rng: np.random.Generator) -> RProgram | None:
    """Exchange two rTasks, on one vEU or on two, or move one; None if there are not two."""
    if program.num_tasks < 2:
        return None
    veus = [list(tasks) for tasks in program.veus]
    places = [(veu, position) for veu, position, _ in program.tasks()]
    veu, position = places[rng.integers(len(places))]
    near = [place for place in places if place[0] == veu and place != (veu, position)]
    if near and rng.random() < 0.6:
        _, other = near[rng.integers(len(near))]
        veus[veu][position], veus[veu][other] = veus[veu][other], veus[veu][position]
    else:
        task = veus[veu].pop(position)
        target = veus[rng.integers(len(veus))]
        target.insert(int(rng.integers(len(target) + 1)), task)
    return _with_veus(program, veus)


def overlap_offset(program: RProgram, rng: np.random.Generator) -> RProgram | None:
    """Move an arena buffer onto another one; None if there are not two with bytes."""
    arena = [i for i, b in enumerate(program.buffers) if b.space == "arena" and b.nbytes]
    if len(arena) < 2:
        return None
    moved, onto = rng.permutation(arena)[:2].tolist()
    target = program.buffers[onto]
    offset = target.offset + int(rng.integers(-(-target.nbytes // ALIGNMENT))) * ALIGNMENT
    buffers = list(program.buffers)
    buffers[moved] = replace(buffers[moved], offset=offset)
    arena_bytes = max(program.arena_bytes, offset + buffers[moved].nbytes)
    return replace(program, buffers=tuple(buffers), arena_bytes=arena_bytes)


def move_part(program: RProgram, rng: np.random.Generator) -> RProgram | None:
    """Shift a part, make it longer, or give it another pitch or whole; None if there is none."""
    parts = [i for i, buffer in enumerate(program.buffers) if buffer.space == "part"]
    if not parts:
        return None
    number = parts[rng.integers(len(parts))]
    part = program.buffers[number]
    whole = program.buffers[part.index]
    rows = whole.nbytes // part.pitch
    wider = (rows, part.nbytes // 4 // rows + int(rng.integers(1, 20)))
    changed = (
        replace(part, offset=4 * int(rng.integers(max(1, part.pitch // 4)))),
        replace(part, offset=part.offset + int(rng.integers(-8, 9))),
        replace(part, shape=wider, dtype="float32"),
        replace(part, pitch=whole.nbytes // int(rng.integers(1, 5))),
        replace(part, index=int(rng.integers(len(program.buffers)))),
    )
    buffers = list(program.buffers)
    buffers[number] = changed[rng.integers(len(changed))]
    return replace(program, buffers=tuple(buffers))


def duplicate_task(program: RProgram, rng: np.random.Generator) -> RProgram | None:
    """List an rTask once more, anywhere; None if there is none."""
    tasks = [task for _, _, task in program.tasks()]
    if not tasks:
        return None
    veus = [list(tasks) for tasks in program.veus]
    target = veus[rng.integers(len(veus))]
    target.insert(int(rng.integers(len(target) + 1)), tasks[rng.integers(len(tasks))])
    return _with_veus(program, veus)


def remove_task(program: RProgram, rng: np.random.Generator) -> RProgram | None:
    """Leave an rTask out; None if there is none."""
    places = [(veu, position) for veu, position, _ in program.tasks()]
    if not places:
        return None
    veu, position = places[rng.integers(len(places))]
    veus = [list(tasks) for tasks in program.veus]
    del veus[veu][position]
    return _with_veus(program, veus)


def add_wait(program: RProgram, rng: np.random.Generator) -> RProgram | None:
    """Let an rTask wait for any other, which closes a cycle or does not; None if there is none."""
    places = [(veu, position) for veu, position, _ in program.tasks()]
    if not places:
        return None
    (veu, position), (other, last) = (places[i] for i in rng.integers(len(places), size=2))
    task = program.veus[veu][position]
    waits = (*task.waits, Wait(other, last + 1))
    return _with_task(program, veu, position, replace(task, waits=waits))


#: Every mutation under the name of the fault that it may cause.
MUTATIONS: Mapping[str, Mutation] = MappingProxyType(
    {
        "dropped wait": drop_wait,
        "swapped order": swap_tasks,
        "overlapping offset": overlap_offset,
        "moved part": move_part,
        "task listed twice": duplicate_task,
        "task missing": remove_task,
        "wait cycle": add_wait,
    }
)


def _with_veus(program: RProgram, veus: list[list[RTask]]) -> RProgram:
    return replace(program, veus=tuple(map(tuple, veus)))


def _with_task(program: RProgram, veu: int, position: int, task: RTask) -> RProgram:
    veus = [list(tasks) for tasks in program.veus]
    veus[veu][position] = task
    return _with_veus(program, veus)
