"""The table that resident blocks walk says what the plan says: a decoder reads it back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from fuzzing.random_graphs import SHAPES, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.backend.cuda.codegen.plan_table import (
    arena_bytes,
    counter_bytes,
    plan_table,
)
from tvm_rammer.backend.plan_rows import BaseLayout
from tvm_rammer.errors import PlanError
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import RProgram, RTask, Wait
from tvm_rammer.schedule import plan


@dataclass(frozen=True)
class Read:
    """What a row says."""

    kernel: int
    tiles: tuple[int, int]
    operands: tuple[tuple[int, int], ...]
    waits: tuple[tuple[int, int], ...]
    signal: int


def random_plan(seed: int, shape: str, num_veus: int, policy: str) -> RProgram:
    device = VDevice("test", num_veus=num_veus, cores=num_veus, threads=num_veus)
    return plan(random_graph(seed, shape, operators=25), device, policy)


plans = st.builds(
    random_plan,
    seed=st.integers(0, 10**6),
    shape=st.sampled_from(SHAPES),
    num_veus=st.integers(1, 5),
    policy=st.sampled_from(["sequential", "wavefront"]),
)


def layout_of(program: RProgram) -> BaseLayout:
    spaces = [buffer.space for buffer in program.buffers]
    return BaseLayout(spaces.count("input"), spaces.count("output"))


def encode(program: RProgram, by_wave: bool = False) -> np.ndarray:
    ids = {kernel.name: number for number, kernel in enumerate(program.kernels)}
    return plan_table(program, layout_of(program), ids, by_wave, wait_limit=1.5)


def decode(table: np.ndarray) -> list[list[list[Read]]]:
    """Segments x vEUs x rows, as the layout is described."""
    segments, veus, _ = table.shape
    words = table.ravel().tolist()
    assert words[0] == 1500

    def pairs(first: int, last: int) -> tuple[tuple[int, int], ...]:
        # Two words are fetched together.
        assert first % 2 == 0
        return tuple((words[k], words[k + 1]) for k in range(first, last, 2))

    def row(first: int) -> Read:
        assert first % 2 == 0
        kernel, start, stop, operand, first, last, signal, end = words[first : first + 8]
        places = tuple(
            (place // 64, place % 64 + 64 * lines) for place, lines in pairs(operand, end)
        )
        return Read(kernel, (start, stop), places, pairs(first, last), signal)

    return [
        [list(map(row, range(*words[2 + s * (veus + 1) + v :][:2], 8))) for v in range(veus)]
        for s in range(segments)
    ]


@settings(max_examples=60)
@given(plans)
def test_every_task_is_there_as_planned(program):
    layout = layout_of(program)
    (veus,) = decode(encode(program))
    awaited = {(w.veu, w.count) for _, _, task in program.tasks() for w in task.waits}
    for veu, (tasks, rows) in enumerate(zip(program.veus, veus, strict=True)):
        for position, (task, row) in enumerate(zip(tasks, rows, strict=True)):
            operator = program.operators[task.operator]
            assert (row.kernel, row.tiles) == (operator.kernel, (task.start, task.stop))
            assert row.waits == tuple((wait.veu, wait.count) for wait in task.waits)
            assert row.signal == (position + 1 if (veu, position + 1) in awaited else 0)
            assert row.operands == tuple(
                place(program, layout, number) for number in operator.arguments
            )


def place(program: RProgram, layout: BaseLayout, number: int) -> tuple[int, int]:
    """The base pointer of a buffer, and the bytes from there."""
    buffer = program.buffers[number]
    start = buffer.offset
    if buffer.space == "part":
        buffer = program.buffers[buffer.index]
        start += buffer.offset
    if buffer.space == "arena":
        return 0, start + counter_bytes(program)
    if buffer.space == "constant":
        return 1, start
    return 2 + buffer.index + (buffer.space == "output") * layout.num_inputs, start


@settings(max_examples=60)
@given(plans)
def test_a_launch_for_each_wave_waits_for_nobody(program):
    try:
        table = encode(program, by_wave=True)
    except PlanError as refused:
        assert str(refused).endswith('this policy needs form="program"')
        return
    assert table.shape[:2] == (program.num_waves, program.num_veus)
    for wave, veus in enumerate(decode(table)):
        for tasks, rows in zip(program.veus, veus, strict=True):
            of_wave = [(task.start, task.stop) for task in tasks if task.wave == wave]
            assert [row.tiles for row in rows] == of_wave
            assert not any(row.waits or row.signal for row in rows)


@settings(max_examples=60)
@given(plans)
def test_counters_come_before_the_arena(program):
    assert counter_bytes(program) >= 32 * program.num_veus
    assert arena_bytes(program) >= counter_bytes(program) + program.arena_bytes


def test_what_waits_inside_of_its_wave_cannot_be_a_launch_for_each_wave():
    program = random_plan(0, "chain", 2, "sequential")
    waiting = (RTask(1, 0, 1, (Wait(0, 1),), wave=0),)
    program = replace(program, veus=((RTask(0, 0, 1, wave=0),), waiting))
    with pytest.raises(PlanError) as refused:
        encode(program, by_wave=True)
    assert str(refused.value) == (
        f"{program.name}: rTask 0 of vEU 1 (wave 0) needs one of its own or a later wave on "
        'another vEU; this policy needs form="program"'
    )
