#!/usr/bin/env python3
"""Simulate what it could gain that vEUs run their tiles of several operators without waiting.

    python python/bound_halo.py --models squeezenet,shufflenet,inception_v1
    python python/bound_halo.py --models squeezenet --veus 2,16 --measured

In a plan of ``auto`` an rTask waits for all tiles of the operators that it reads. Here the same
plan, every rTask on the same vEU in the same order, waits for less: for the tiles that it reads
alone; and where its own vEU wrote most of these and a halo is missing, not even for those, as it
computes them once more, or, which nothing can beat, has them for nothing. What memory that is used
again would have rTasks wait for is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import or_
from pathlib import Path
from typing import Literal

import click
from bench.graphs import operator_graphs
from bench.markdown import table, whole_page

from tvm_rammer.no_collection import no_collection
from tvm_rammer.options import Options
from tvm_rammer.rprogram import RProgram
from tvm_rammer.rprogram.program import (
    CELLS,
    Buffer,
    RKernel,
    RTask,
    Wait,
    cell_rows,
    cells_by_row,
)
from tvm_rammer.rprogram.rows import root_of, writers_of
from tvm_rammer.schedule import CostModel, simulate
from tvm_rammer.schedule.auto import auto
from tvm_rammer.schedule.policies import policies
from tvm_rammer.testing.models import get_model

_MODELS = "squeezenet,shufflenet,inception_v1,resnext29_16x64d"
_COLUMNS = ("model", "vEUs", "policy", "plan, us", "tiles", "computed", "for nothing", "no wait")
_PAGE = """\
Plans of `auto`, simulated, and how many times shorter the same plans would be, every rTask on \
the same vEU in the same order, if rTasks waited for less. As it is, they wait for all tiles of \
the operators that they read. *Tiles*: they wait for the tiles that they read, and where \
partitions agree for none. *Computed*: where their own vEU wrote most of these, they compute the \
rest, the halo, once more in place of waiting (overlapped tiling). *For nothing*: they have that \
halo at once, which no choice of whom to let compute can beat. *No wait*: no wait and no transfer \
takes any time. What memory that is used again would have them wait for is left out of all of \
them."""

#: What becomes of a halo: who reads it waits for it, computes it, or has it.
Halo = Literal["waited for", "computed", "free"]


@dataclass(frozen=True)
class Need:
    """What an rTask reads of one operator's result.

    Attributes
    ----------
    pointer, producer : int
    others : dict of int to int
        How many tasks each other vEU has up to the last one that writes some of it.
    missing, own : float
        The shares of the result that it reads and that others, or its own vEU, write.
    """

    pointer: int
    producer: int
    others: dict[int, int]
    missing: float
    own: float

    @property
    def is_halo(self) -> bool:
        """Whether its own vEU writes more of it than all others."""
        return 0 < self.missing < self.own


@click.command()
@click.option("--models", default=_MODELS, show_default=True, help="Names, separated by commas.")
@click.option("--veus", default="16", show_default=True, help="Numbers of vEUs.")
@click.option("--measured", is_flag=True, help="With costs of kernels as measured here.")
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), help="Write it here.")
def main(models: str, veus: str, measured: bool, page: Path | None) -> None:
    """Simulate what plans could gain from waiting for less."""
    known = Options().resolve().vdevice
    rows, shorter = [], []
    for model in models.split(","):
        graphs = operator_graphs(get_model(model).build(), measured=measured)
        for count in map(int, veus.split(",")):
            costs = CostModel.of(replace(known, num_veus=count))
            with no_collection():
                plans = [auto(graph, count, costs, policies())[0] for graph in graphs]
            names = "+".join(sorted({plan.name for plan in plans}))
            first, *others = seconds_of([plan.program for plan in plans], costs)
            shorter.append([first / each for each in others])
            gains = (f"{gain:.3f}x" for gain in shorter[-1])
            rows.append((model, str(count), names, f"{first * 1e6:.1f}", *gains))
    click.echo(table(_COLUMNS, rows))
    if page:
        of = "as measured here" if measured else "as the model of costs says"
        parts = ["# What waiting for tiles, and halos, could gain", f"{_PAGE} Kernels cost {of}."]
        parts.append(f"```text\npython python/bound_halo.py --page {page.as_posix()}\n```")
        tiles, computed, free, _ = (max(gains) - 1 for gains in zip(*shorter, strict=True))
        parts.append(
            f"Waiting for tiles gains {tiles:.1%} at most, with halos computed where they are read "
            f"{computed:+.1%}, with halos for nothing {free:.1%}."
        )
        page.write_text(whole_page([*parts, table(_COLUMNS, rows)]))


def seconds_of(programs: Sequence[RProgram], costs: CostModel) -> list[float]:
    """Of a model's plans: as they are, and as they could be."""
    kinds: tuple[Halo, ...] = ("waited for", "computed", "free")
    plans = [programs, *([waiting_for_tiles(each, halo) for each in programs] for halo in kinds)]
    found = [sum(simulate(each, costs).makespan for each in mine) for mine in plans]
    nothing = replace(costs, point_to_point=0.0, transfer=0.0, transfer_byte=0.0, topology=None)
    return [*found, sum(simulate(each, nothing).makespan for each in programs)]


def waiting_for_tiles(program: RProgram, halo: Halo) -> RProgram:
    """The same rTasks, each of which waits for the tiles that it reads and for no others."""
    tasks_of: dict[int, list[tuple[int, int, RTask]]] = defaultdict(list)
    for veu, position, task in program.tasks():
        tasks_of[task.operator].append((veu, position, task))
    writes = {b: n for n in range(len(program.operators)) for b in program.writes(n)}
    writers = writers_of(program.buffers, writes)
    operators, kernels = list(program.operators), list(program.kernels)
    veus = []
    for veu, mine in enumerate(program.veus):
        tasks = []
        for task in mine:
            needs = list(_needs(program, writers, tasks_of, veu, task))
            spared = [need for need in needs if need.is_halo and halo != "waited for"]
            last: dict[int, int] = defaultdict(int)
            for need in needs:
                for other, count in () if need in spared else need.others.items():
                    last[other] = max(last[other], count)
            waits = tuple(Wait(*each) for each in sorted(last.items()))
            number = task.operator
            if spared:
                more = (
                    sum(_seconds(program, need) for need in spared) if halo == "computed" else 0.0
                )
                kernels.append(_with_its_halo(program.kernel_of(number), task, spared, more))
                operators.append(replace(operators[number], kernel=len(kernels) - 1))
                number = len(operators) - 1
            tasks.append(replace(task, operator=number, waits=waits))
        veus.append(tuple(tasks))
    return replace(program, operators=tuple(operators), kernels=tuple(kernels), veus=tuple(veus))


def _with_its_halo(kernel: RKernel, task: RTask, spared: Sequence[Need], seconds: float) -> RKernel:
    """The rKernel of an rTask that fetches nothing of some results, and takes so much longer."""
    there = {need.pointer for need in spared}
    prints = kernel.footprints or ((),) * len(kernel.modes)
    return replace(
        kernel,
        tile_time=kernel.tile_time + seconds / (task.stop - task.start),
        footprints=tuple((0,) if k in there else masks for k, masks in enumerate(prints)),
    )


def _seconds(program: RProgram, need: Need) -> float:
    """What it takes to compute a halo once more."""
    kernel = program.kernel_of(need.producer)
    return need.missing * kernel.num_tiles * kernel.tile_time


def _needs(
    program: RProgram,
    writers: Sequence[Sequence[int]],
    tasks_of: Mapping[int, Sequence[tuple[int, int, RTask]]],
    veu: int,
    task: RTask,
) -> Iterator[Need]:
    """What an rTask reads, by pointer and operator."""
    reader, kernel = program.operators[task.operator], program.kernel_of(task.operator)
    for pointer, (buffer, mode) in enumerate(zip(reader.arguments, kernel.modes, strict=True)):
        for producer in writers[buffer] if mode == "read" else ():
            cells = kernel.touched(pointer, task.start, task.stop)
            theirs, own, read = [], 0, 0
            for other, position, writing in tasks_of[producer]:
                for wrote, written in enumerate(program.operators[producer].arguments):
                    maker = program.kernel_of(producer)
                    if maker.modes[wrote] == "write" and _root(program, written) == _root(
                        program, buffer
                    ):
                        held = maker.touched(wrote, writing.start, writing.stop)
                        read, places = _places(program.buffers, buffer, cells, written, held)
                        if other == veu:
                            own |= places
                        else:
                            theirs.append((other, position + 1, places))
            read_of_others = [(o, count, p & read & ~own) for o, count, p in theirs]
            missing = reduce(or_, (p for *_, p in read_of_others), 0)
            last = {o: count for o, count, p in sorted(read_of_others) if p}
            if last:
                shares = (missing.bit_count() / CELLS, (own & read).bit_count() / CELLS)
                yield Need(pointer, producer, last, *shares)


def _root(program: RProgram, number: int) -> int:
    return root_of(program.buffers, number)


def _places(
    buffers: Sequence[Buffer], read: int, cells: int, written: int, held: int
) -> tuple[int, int]:
    """Cells of two buffers in the same place, as masks that can be compared.

    Of a buffer and a part of it all cells of the rows that they have some of.
    """
    if read == written:
        return cells, held
    rows, others = (prod(buffers[k].shape[:-1]) for k in (read, written))
    down = cell_rows(rows) if rows == others else 1
    return _whole_rows(cells, down), _whole_rows(held, down)


def _whole_rows(cells: int, down: int) -> int:
    row = (1 << CELLS // down) - 1
    counts = cells_by_row(cells, down)
    return sum(row << k * CELLS // down for k, count in enumerate(counts) if count)


if __name__ == "__main__":
    main()
