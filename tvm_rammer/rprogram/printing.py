"""Print an rProgram for people: what runs, on what, wave by wave, and what waits for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from tvm_rammer.printable import printable
from tvm_rammer.rprogram.program import RProgram, RTask, Wait
from tvm_rammer.rprogram.rows import in_place
from tvm_rammer.units import counted, duration, size


def format_program(program: RProgram, limit: int | None = 60) -> str:
    """A program as text.

    Parameters
    ----------
    program : RProgram
    limit : int, optional
        Of more rTasks than this only the first and the last are shown; None shows all.

    Returns
    -------
    str
        A summary, the table of kernels, and the rTasks of each wave. ``#3`` is the rTask at
        position 3 of its vEU; ``after vEU 1 #6`` means that it waits until that one and all before
        it are done.
    """
    lines = [*_header(program), "", *_kernels(program), *_waves(program, limit)]
    return printable("\n".join(lines)) + "\n"


def _header(program: RProgram) -> list[str]:
    spaces = Counter(buffer.space for buffer in program.buffers)
    counts = [
        counted(len(program.operators), "operator"),
        counted(program.num_tasks, "rTask"),
        counted(program.num_veus, "vEU"),
        counted(program.num_waves, "wave"),
        counted(sum(len(task.waits) for _, _, task in program.tasks()), "wait"),
    ]
    memory = [
        f"arena {size(program.arena_bytes)}",
        f"constants {size(program.constant_bytes)}",
        counted(spaces["input"], "input"),
        counted(spaces["output"], "output"),
    ]
    nouns = zip(in_place(program), ("concatenation", "slice"), strict=True)
    memory += [f"{counted(len(found), noun)} in place" for found, noun in nouns if found]
    lines = [
        f"rProgram {program.name}, policy {program.policy}",
        "  " + ", ".join(counts),
        "  " + ", ".join(memory),
    ]
    if len(program.launches) > 1:
        lines.append(f"  one launch per wave: {program.launches[0]} ... {program.launches[-1]}")
    return lines


def _kernels(program: RProgram) -> list[str]:
    uses = Counter(op.kernel for op in program.operators)
    rows = [("kernel", "used", "tiles", "a tile", "origin", "tiling")]
    rows += [
        (
            kernel.name,
            f"{uses[number]}x",
            str(kernel.num_tiles),
            duration(kernel.tile_time),
            kernel.origin,
            kernel.tiling,
        )
        for number, kernel in enumerate(program.kernels)
    ]
    return _table(rows, right=(1, 2, 3))


def _waves(program: RProgram, limit: int | None) -> list[str]:
    """The rTasks by (wave, vEU, position) under a heading for each wave."""
    tasks = sorted(program.tasks(), key=lambda entry: (entry[2].wave, *entry[:2]))
    shown = len(tasks) if limit is None else min(limit, len(tasks))
    head, tail = -(-shown // 2), len(tasks) - shown // 2
    gap = tasks[head:tail]
    kept = tasks[:head] + tasks[tail:]
    rows = _table([_row(program, *entry) for entry in kept], right=(1,))
    waves = [task.wave for _, _, task in kept]
    if not gap:
        return _under_headings(waves, rows)
    before = _under_headings(waves[:head], rows[:head])
    after = _under_headings(waves[head:], rows[head:])
    return [*before, "", _gap(gap), *after]


def _under_headings(waves: Sequence[int], rows: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for wave, group in groupby(zip(waves, rows, strict=True), key=itemgetter(0)):
        lines += ["", f"wave {wave}", *(row for _, row in group)]
    return lines


def _row(program: RProgram, veu: int, position: int, task: RTask) -> tuple[str, ...]:
    name = program.operators[task.operator].name
    tiles = f"[{task.start}, {task.stop})"
    waits = ", ".join(_wait(program, wait) for wait in task.waits)
    return f"vEU {veu}", f"#{position}", name, tiles, f"after {waits}" if waits else ""


def _wait(program: RProgram, wait: Wait) -> str:
    awaited = program.veus[wait.veu][wait.count - 1]
    return f"vEU {wait.veu} #{wait.count - 1} {program.operators[awaited.operator].name}"


def _gap(left_out: Sequence[tuple[int, int, RTask]]) -> str:
    first, last = left_out[0][2].wave, left_out[-1][2].wave
    waves = f"wave {first}" if first == last else f"waves {first} to {last}"
    return f"... {counted(len(left_out), 'rTask')} of {waves} not shown ..."


def _table(rows: Sequence[tuple[str, ...]], right: Iterable[int] = ()) -> list[str]:
    """Columns as wide as their widest cell; those of numbers are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned_right = set(right)
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if column in aligned_right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
