"""The instruction table says what the plan says: read back by a decoder of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from fuzzing.random_graphs import SHAPES, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.backend.cpu.codegen.instruction_table import (
    arena_tensor_bytes,
    header_bytes,
    instruction_table,
)
from tvm_rammer.backend.plan_rows import BaseLayout
from tvm_rammer.errors import PlanError
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import RProgram, RTask, Wait
from tvm_rammer.schedule import plan


@dataclass(frozen=True)
class Instruction:
    """What a row says, with nothing looked up elsewhere."""

    kernel: int
    tiles: range
    operands: tuple[tuple[int, int], ...]
    waits: tuple[tuple[int, int], ...]
    signal: int
    veu: int


@dataclass(frozen=True)
class Decoded:
    """Segments x vEUs x instructions, and the same instructions in the serial order."""

    own: list[list[list[Instruction]]]
    serial: list[list[Instruction]]


def decode(words: list[int], arity: list[int]) -> Decoded:
    """Read a table as its layout is described; ``arity`` is the pointers of each kernel."""
    num_veus, num_segments, starts, spans, order, rows, waits, operands = words[:8]
    # A minute that a wait may take, and no stamps.
    assert words[8:16] == [60_000, *[0] * 7]

    def pairs(base: int, first: int, last: int) -> tuple[tuple[int, int], ...]:
        return tuple((words[base + 2 * k], words[base + 2 * k + 1]) for k in range(first, last))

    def row(number: int) -> Instruction:
        kernel, start, stop, operand, first, last, signal, veu = words[
            rows + 8 * number : rows + 8 * number + 8
        ]
        return Instruction(
            kernel,
            range(start, stop),
            pairs(operands, operand, operand + arity[kernel]),
            pairs(waits, first, last),
            signal,
            veu,
        )

    own = []
    for segment in range(num_segments):
        bounds = words[starts + segment * (num_veus + 1) :][: num_veus + 1]
        own.append([[row(k) for k in range(bounds[v], bounds[v + 1])] for v in range(num_veus)])
    serial = [
        [row(words[order + k]) for k in range(words[spans + s], words[spans + s + 1])]
        for s in range(num_segments)
    ]
    assert operands <= len(words)
    return Decoded(own, serial)


def layout_of(program: RProgram) -> BaseLayout:
    indices = {
        space: [b.index for b in program.buffers if b.space == space]
        for space in ("input", "output")
    }
    return BaseLayout(*(1 + max(indices[space], default=-1) for space in ("input", "output")))


def encode(program: RProgram, by_wave: bool = False) -> Decoded:
    ids = {kernel.name: number for number, kernel in enumerate(program.kernels)}
    table = instruction_table(program, layout_of(program), ids, by_wave)
    assert table.dtype == np.int32 and table.ndim == 1
    return decode(table.tolist(), [len(kernel.modes) for kernel in program.kernels])


def random_plan(seed: int, shape: str, num_veus: int, policy: str) -> RProgram:
    graph = random_graph(seed, shape, operators=25)
    device = VDevice("test", num_veus=num_veus, cores=num_veus, threads=num_veus)
    return plan(graph, device, policy)


plans = st.builds(
    random_plan,
    seed=st.integers(0, 10**6),
    shape=st.sampled_from(SHAPES),
    num_veus=st.integers(1, 5),
    policy=st.sampled_from(["sequential", "wavefront"]),
)


@settings(max_examples=60)
@given(plans)
def test_every_task_is_there_as_planned(program):
    """vEU by vEU in program order: kernel, tiles, addresses, waits."""
    layout, arena_start = layout_of(program), header_bytes(program, layout_of(program))
    ((*veus,),) = encode(program).own
    assert len(veus) == program.num_veus
    for veu, (tasks, instructions) in enumerate(zip(program.veus, veus, strict=True)):
        for task, instruction in zip(tasks, instructions, strict=True):
            operator = program.operators[task.operator]
            assert instruction.kernel == operator.kernel
            assert instruction.tiles == range(task.start, task.stop)
            assert instruction.waits == tuple((w.veu, w.count) for w in task.waits)
            assert instruction.veu == veu
            for (place, lines), number in zip(
                instruction.operands, operator.arguments, strict=True
            ):
                buffer = program.buffers[number]
                start = buffer.offset
                if buffer.space == "part":
                    buffer = program.buffers[buffer.index]
                    start += buffer.offset
                base, rest = divmod(place, 64)
                assert (
                    base
                    == {
                        "arena": 0,
                        "constant": 1,
                        "input": 2 + buffer.index,
                        "output": 2 + layout.num_inputs + buffer.index,
                    }[buffer.space]
                )
                assert 64 * lines + rest == start + arena_start * (buffer.space == "arena")


@settings(max_examples=60)
@given(plans)
def test_a_signal_where_somebody_waits_and_nowhere_else(program):
    """A task that somebody waits for stores how many of its vEU are complete."""
    awaited = {(w.veu, w.count) for _, _, task in program.tasks() for w in task.waits}
    ((*veus,),) = encode(program).own
    for veu, instructions in enumerate(veus):
        for position, instruction in enumerate(instructions):
            expected = position + 1 if (veu, position + 1) in awaited else 0
            assert instruction.signal == expected


@settings(max_examples=60)
@given(plans, st.booleans())
def test_the_serial_order_is_a_linear_extension(program, by_wave):
    """Walked by one worker, no wait is ever unfulfilled, and no vEU's tasks change places."""
    done = [0] * program.num_veus
    complete = [0] * program.num_veus
    for segment in encode(program, by_wave).serial:
        for instruction in segment:
            assert all(complete[veu] >= count for veu, count in instruction.waits)
            task = program.veus[instruction.veu][done[instruction.veu]]
            assert instruction.tiles == range(task.start, task.stop)
            done[instruction.veu] += 1
            if instruction.signal:
                complete[instruction.veu] = instruction.signal
    assert done == [len(tasks) for tasks in program.veus]


@settings(max_examples=60)
@given(plans)
def test_one_segment_for_each_wave(program):
    """The tasks of wave ``s`` and no others are in segment ``s``, in the order of their vEU."""
    waves = encode(program, by_wave=True).own
    assert len(waves) == max(1, program.num_waves)
    (whole,) = encode(program).own
    for veu, tasks in enumerate(program.veus):
        expected = [
            [row for row, task in zip(whole[veu], tasks, strict=True) if task.wave == wave]
            for wave in range(len(waves))
        ]
        assert [segment[veu] for segment in waves] == expected
    for own, serial in zip(waves, encode(program, by_wave=True).serial, strict=True):
        assert sorted(map(hash, serial)) == sorted(hash(row) for veu in own for row in veu)


def test_no_tasks():
    program = random_plan(0, "chain", 2, "wavefront")
    empty = replace(program, veus=((), (), ()))
    for by_wave in (False, True):
        assert encode(empty, by_wave) == Decoded([[[], [], []]], [[]])


def test_waves_must_be_in_order_for_a_launch_each():
    """A wave that needs a later one cannot be launched before it."""
    program = random_plan(0, "chain", 1, "wavefront")
    (tasks,) = program.veus
    turned = (*(replace(task, wave=1) for task in tasks[:-1]), replace(tasks[-1], wave=0))
    with pytest.raises(PlanError) as caught:
        encode(replace(program, veus=(turned,)), by_wave=True)
    assert str(caught.value) == (
        f"chain25: rTask {len(tasks) - 1} of vEU 0 (wave 0) comes after one of a later wave; "
        'this policy needs form="program"'
    )
    waiting = (RTask(0, 0, 1, (Wait(1, 1),), wave=0),), (RTask(1, 0, 1, wave=1),)
    with pytest.raises(PlanError, match="rTask 0 of vEU 0"):
        encode(replace(program, veus=waiting), by_wave=True)


def test_arenas_beyond_128_gib_are_refused():
    """Offsets count lines of 64 bytes in 31 bits."""
    program = random_plan(0, "chain", 2, "wavefront")
    buffers = tuple(
        replace(b, offset=64 * 2**31) if b.space == "arena" else b for b in program.buffers
    )
    with pytest.raises(PlanError) as caught:
        encode(replace(program, buffers=buffers))
    assert str(caught.value) == (
        "plan of chain25: an offset exceeds 137,438,953,472 bytes; "
        "split the model into smaller parts"
    )
    near = tuple(
        replace(b, offset=64 * (2**31 - 100)) if b.space == "arena" else b for b in program.buffers
    )
    largest = max(
        lines
        for veu in encode(replace(program, buffers=near)).own[0]
        for row in veu
        for _, lines in row.operands
    )
    assert largest > 2**31 - 101


@given(st.integers(1, 64), st.integers(0, 40), st.integers(0, 40))
def test_counters_flag_and_pointers_do_not_overlap(num_veus, inputs, outputs):
    """The arena tensor: a cache line for each counter and the flag, the pointers, the arena."""
    program = RProgram("empty", "none", (), (), (), ((),) * num_veus, arena_bytes=100)
    layout = BaseLayout(inputs, outputs)
    pointers = 8 * (2 + inputs + outputs)
    assert header_bytes(program, layout) % 64 == 0
    assert 64 * (num_veus + 1) + pointers <= header_bytes(program, layout)
    assert arena_tensor_bytes(program, layout) >= header_bytes(program, layout) + 100
