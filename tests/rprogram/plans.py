"""Small plans that the tests of this folder share: two made by hand, and random ones."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tvm_rammer.rprogram import Buffer, RKernel, ROperator, RProgram, RTask, Wait, aligned


def two_branches() -> RProgram:
    """``out = x * x + x * w`` on two vEUs: a branch on each, then half of the sum on each."""
    shape = (4, 8)
    return RProgram(
        name="two_branches",
        policy="by hand",
        buffers=(
            Buffer("x", shape, "float32", "input"),
            Buffer("w", (8,), "float32", "constant", offset=64),
            Buffer("squared", shape, "float32", "arena"),
            Buffer("scaled", shape, "float32", "arena", offset=128),
            Buffer("out", shape, "float32", "output"),
        ),
        kernels=(
            RKernel("square", 4, ("read", "write"), 1e-6, "generic", "1x8 outputs"),
            RKernel("scale", 2, ("read", "read", "write"), 2.5e-6, "generic", "2x8 outputs"),
            RKernel("add", 4, ("read", "read", "write"), 1e-6, "generic", "1x8 outputs"),
        ),
        operators=(
            ROperator("square", 0, (0, 2)),
            ROperator("scale", 1, (0, 1, 3)),
            ROperator("add", 2, (2, 3, 4)),
        ),
        veus=(
            (RTask(0, 0, 4), RTask(2, 0, 2, (Wait(1, 1),), wave=1)),
            (RTask(1, 0, 2), RTask(2, 2, 4, (Wait(0, 1),), wave=1)),
        ),
        arena_bytes=256,
        constant_bytes=128,
    )


def _square(start, stop, arrays):
    x, out = arrays
    out[start:stop] = x[start:stop] * x[start:stop]


def _scale(start, stop, arrays):
    x, w, out = arrays
    out[2 * start : 2 * stop] = x[2 * start : 2 * stop] * w


def _add(start, stop, arrays):
    a, b, out = arrays
    out[start:stop] = a[start:stop] + b[start:stop]


def _increment(start, stop, arrays):
    x, out = arrays
    out[start:stop] = x[start:stop] + 1


def side_by_side() -> RProgram:
    """``out = concatenate([x * x, x * w], 1) + 1`` on two vEUs.

    A product on each, the left and the right half of every row of ``both``; then half of the sum.
    """
    plan = two_branches()
    half, pitch = (4, 8), 64
    return replace(
        plan,
        name="side_by_side",
        buffers=(
            *plan.buffers[:2],
            Buffer("squared", half, "float32", "part", 4, 0, pitch),
            Buffer("scaled", half, "float32", "part", 4, 32, pitch),
            Buffer("both", (4, 16), "float32", "arena"),
            Buffer("out", (4, 16), "float32", "output"),
        ),
        kernels=(*plan.kernels[:2], RKernel("increment", 4, ("read", "write"))),
        operators=(*plan.operators[:2], ROperator("increment", 2, (4, 5))),
    )


#: The bodies of :func:`two_branches` and :func:`side_by_side`.
BODIES = {"square": _square, "scale": _scale, "add": _add, "increment": _increment}


def constant_pool(w: np.ndarray) -> np.ndarray:
    """The constants of both plans."""
    pool = np.zeros(128, np.uint8)
    pool[64:96] = w.view(np.uint8)
    return pool


def with_task(program: RProgram, veu: int, position: int, **changes: object) -> RProgram:
    """The program with one rTask changed."""
    task = replace(program.veus[veu][position], **changes)
    tasks = (*program.veus[veu][:position], task, *program.veus[veu][position + 1 :])
    return with_veu(program, veu, tasks)


def with_veu(program: RProgram, veu: int, tasks: tuple[RTask, ...]) -> RProgram:
    """The program with other rTasks on one vEU."""
    return replace(program, veus=(*program.veus[:veu], tasks, *program.veus[veu + 1 :]))


def with_buffer(program: RProgram, number: int, **changes: object) -> RProgram:
    """The program with one buffer changed."""
    buffer = replace(program.buffers[number], **changes)
    buffers = (*program.buffers[:number], buffer, *program.buffers[number + 1 :])
    return replace(program, buffers=buffers)


def random_program(
    seed: int, operators: int = 6, veus: int = 2, slots: int = 6, most_reads: int = 2
) -> RProgram:
    """A safe plan of a random operator graph whose buffers share an arena.

    Operators stand in a topological order, the last one writes the output. Their tiles go to random
    vEUs, and wait for the producers of what they read and for all that touched what they overwrite.
    """
    choice = random.Random(seed)
    reads = [
        sorted(choice.sample(range(op), k=min(op, choice.randint(1, most_reads))))
        for op in range(operators)
    ]
    results, after = _place(choice, reads, slots)
    kernels = []
    for op, sources in enumerate(reads):
        modes = ("read",) * max(len(sources), 1) + ("write",)
        kernels.append(RKernel(f"k{op}", choice.randint(1, 4), modes))
    return RProgram(
        name=f"random_{seed}",
        policy="random",
        buffers=(*results, Buffer("x", (16,), "float32", "input")),
        kernels=tuple(kernels),
        operators=tuple(
            ROperator(f"op{op}", op, (*(sources or [operators]), op))
            for op, sources in enumerate(reads)
        ),
        veus=_distribute(choice, kernels, after, veus),
        arena_bytes=max(b.offset + aligned(b.nbytes) for b in results),
    )


def _place(
    choice: random.Random, reads: list[list[int]], slots: int
) -> tuple[list[Buffer], list[set[int]]]:
    """The result of each operator, and the operators that must come before it.

    A result may take the place of others whose last reader comes before it; if no random
    place will do it goes behind all others.
    """
    count = len(reads)
    last_use = [max((r for r in range(count) if op in reads[r]), default=op) for op in range(count)]
    results: list[Buffer] = []
    after = [set(sources) for sources in reads]
    for op in range(count - 1):
        shape = (choice.choice((16, 32, 48)),)
        places = [64 * slot for slot in choice.sample(range(slots), slots)]
        places.append(max((b.offset + b.nbytes for b in results), default=0))
        for offset in places:
            buffer = Buffer(f"b{op}", shape, "float32", "arena", offset=offset)
            replaced = [r for r, b in enumerate(results) if _share_bytes(b, buffer)]
            if all(last_use[r] < op for r in replaced):
                break
        for r in replaced:
            after[op] |= {r, *(reader for reader in range(op) if r in reads[reader])}
        results.append(buffer)
    return [*results, Buffer("out", (16,), "float32", "output")], after


def _share_bytes(a: Buffer, b: Buffer) -> bool:
    return max(a.offset, b.offset) < min(a.offset + a.nbytes, b.offset + b.nbytes)


def _distribute(
    choice: random.Random, kernels: list[RKernel], after: list[set[int]], veus: int
) -> tuple[tuple[RTask, ...], ...]:
    lists: list[list[RTask]] = [[] for _ in range(veus)]
    for op, kernel in enumerate(kernels):
        last = [
            max((i + 1 for i, task in enumerate(tasks) if task.operator in after[op]), default=0)
            for tasks in lists
        ]
        inner = {choice.randint(0, kernel.num_tiles) for _ in range(veus)}
        for start, stop in pairwise(sorted({0, kernel.num_tiles, *inner})):
            veu = choice.randrange(veus)
            waits = tuple(Wait(u, count) for u, count in enumerate(last) if count and u != veu)
            lists[veu].append(RTask(op, start, stop, waits, wave=op))
    return tuple(map(tuple, lists))
