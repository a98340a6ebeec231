"""Happens-before of an rProgram: a linear extension of it and every rTask's vector clock.

The order is the transitive closure of two relations: the order of a vEU's own list, and ``Wait(u,
count)``, which puts the first ``count`` rTasks of vEU ``u`` before the task that holds it.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.program import RProgram, Wait

#: Where an rTask stands: its vEU, and its position in the list of that vEU.
Place = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Clocks:
    """The vector clocks of all rTasks.

    Attributes
    ----------
    order : tuple of (vEU, position)
        The linear extension that they were computed in.
    first_row : tuple of int
        Row of the first rTask of each vEU; its other rTasks follow.
    table : ndarray of int32, shape (rTasks, vEUs)
        ``table[row, u]`` counts the rTasks of vEU ``u`` that happen before the one of the row; on
        its own vEU that one is included.
    """

    order: tuple[Place, ...]
    first_row: tuple[int, ...]
    table: npt.NDArray[np.int32]

    def of(self, veu: int, position: int) -> npt.NDArray[np.int32]:
        """The clock of one rTask."""
        clock: npt.NDArray[np.int32] = self.table[self.first_row[veu] + position]
        return clock


def task_label(program: RProgram, veu: int, position: int) -> str:
    """An rTask as error messages name it."""
    task = program.veus[veu][position]
    name = program.operators[task.operator].name
    return f"{name!r} tiles [{task.start}, {task.stop}) (vEU {veu}, position {position})"


def linear_extension(program: RProgram) -> list[Place]:
    """One legal serial order of all rTasks, always the same for the same program.

    Of the vEUs that can go on, the one in the earliest wave goes first, then the one that has done
    least, so that the rTasks of one operator stay close together.

    Returns
    -------
    list of (vEU, position)

    Raises
    ------
    PlanError
        If a wait is out of range, or waits form a cycle.
    """
    return walk(program, lambda ready: 0)


def vector_clocks(program: RProgram) -> Clocks:
    """The vector clock of every rTask, in O(rTasks x vEUs), and as much for every list of waits.

    Raises
    ------
    PlanError
        If a wait is out of range, or waits form a cycle.
    """
    order = linear_extension(program)
    first_row = tuple(accumulate(map(len, program.veus), initial=0))[:-1]
    table = np.zeros((program.num_tasks, program.num_veus), np.int32)
    # By the identity of waits, which many rTasks share: the clock of who has waited for them.
    reached: dict[int, npt.NDArray[np.int32]] = {}
    for veu, position in order:
        row = first_row[veu] + position
        clock = table[row]
        if position:
            clock[:] = table[row - 1]
        if waits := program.veus[veu][position].waits:
            after = reached.get(id(waits))
            if after is None:
                rows = [first_row[wait.veu] + wait.count - 1 for wait in waits]
                after = table[rows[0]] if len(rows) == 1 else np.maximum.reduce(table[rows])
                reached[id(waits)] = after
            np.maximum(clock, after, out=clock)
        clock[veu] = position + 1
    return Clocks(tuple(order), first_row, table)


@dataclass(slots=True)
class _Awaited:
    """The waits that some rTasks share: those before ``over`` are over; ``veus`` are held up."""

    waits: tuple[Wait, ...]
    over: int = 0
    veus: list[int] = field(default_factory=list)


def walk(program: RProgram, choose: Callable[[int], int]) -> list[Place]:
    """Step through a program, one whole rTask at a time, until all vEUs are done.

    Parameters
    ----------
    program : RProgram
    choose : Callable
        Called with the number ``n > 0`` of vEUs that can go on (those whose next rTask has no wait
        left), in the order of (wave, position, vEU); says which one does, ``0 <= choose(n) < n``.

    Returns
    -------
    list of (vEU, position)
        The interleaving: a linear extension of happens-before.

    Raises
    ------
    PlanError
        If a wait is out of range, or waits form a cycle.
    """
    _check_waits(program)
    done = [0] * program.num_veus
    ready: list[tuple[int, int, int]] = []
    shared: dict[int, _Awaited] = {}
    blocked: defaultdict[Place, list[_Awaited]] = defaultdict(list)
    order: list[Place] = []

    def offer(veu: int) -> None:
        insort(ready, (program.veus[veu][done[veu]].wave, done[veu], veu))

    def look_at_next(veu: int) -> None:
        if done[veu] == len(program.veus[veu]):
            return
        waits = program.veus[veu][done[veu]].waits
        if waits:
            awaited = shared.get(id(waits))
            if awaited is None:
                awaited = shared[id(waits)] = _Awaited(waits)
                go_on(awaited)
            if awaited.over < len(waits):
                awaited.veus.append(veu)
                return
        offer(veu)

    def go_on(awaited: _Awaited) -> None:
        waits = awaited.waits
        for number in range(awaited.over, len(waits)):
            wait = waits[number]
            if done[wait.veu] < wait.count:
                awaited.over = number
                blocked[wait.veu, wait.count].append(awaited)
                return
        awaited.over = len(waits)
        for veu in awaited.veus:
            offer(veu)

    for veu in range(program.num_veus):
        look_at_next(veu)
    while ready:
        _, position, veu = ready.pop(choose(len(ready)))
        order.append((veu, position))
        done[veu] += 1
        look_at_next(veu)
        for awaited in blocked.pop((veu, done[veu]), ()):
            go_on(awaited)
    if blocked:
        held_up = {v: wait for wait, some in blocked.items() for each in some for v in each.veus}
        raise PlanError(_cycle_message(program, done, held_up))
    return order


def _check_waits(program: RProgram) -> None:
    """A wait names an rTask that exists and does not come later on the same vEU."""
    lengths = [len(tasks) for tasks in program.veus]
    # By the identity of waits that some rTask had before: the most that they want of each vEU.
    known: dict[int, dict[int, int]] = {}
    for veu, position, task in program.tasks():
        counts = known.get(id(task.waits))
        if counts is not None and counts.get(veu, 0) <= position:
            continue
        counts = known[id(task.waits)] = {}
        for wait in task.waits:
            if not 0 <= wait.veu < len(lengths):
                problem = f"for vEU {wait.veu}, but the program has {len(lengths)} vEUs"
            elif not 1 <= wait.count <= lengths[wait.veu]:
                problem = (
                    f"for {wait.count} rTasks of vEU {wait.veu}, which has {lengths[wait.veu]}"
                )
            elif wait.veu == veu and wait.count > position:
                problem = f"for {wait.count} rTasks of its own vEU, itself or later ones"
            else:
                counts[wait.veu] = max(counts.get(wait.veu, 0), wait.count)
                continue
            label = task_label(program, veu, position)
            raise PlanError(f"{label} waits {problem}; correct the wait")


def _cycle_message(program: RProgram, done: list[int], awaited: dict[int, Place]) -> str:
    """Follow the waits of the vEUs that cannot go on until one comes back.

    A vEU that is waited for is blocked too: no wait asks for more rTasks than its vEU has.
    """
    veu, path = min(awaited), list[int]()
    while veu not in path:
        path.append(veu)
        veu = awaited[veu][0]
    steps = []
    for stuck in path[path.index(veu) :]:
        other, count = awaited[stuck]
        label = task_label(program, stuck, done[stuck])
        steps.append(f"{label} waits for rTask {count - 1} of vEU {other}")
    return f"waits form a cycle: {', '.join(steps)}; remove one of these waits"
