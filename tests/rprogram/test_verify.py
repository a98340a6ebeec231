"""A safe plan passes; whatever is wrong with one is said word for word."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import random_program, two_branches, with_buffer, with_task, with_veu
from symbolic import interpret_symbolic

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram import (
    Buffer,
    RKernel,
    ROperator,
    RProgram,
    RTask,
    Wait,
    legal_interleavings,
    linear_extension,
    vector_clocks,
    verify,
)
from tvm_rammer.rprogram.program import CELLS, TILE_RANGES

PLAN = two_branches()
SEEDS = st.integers(0, 10**6)


def with_kernel(number: int, **changes: object) -> RProgram:
    kernels = list(PLAN.kernels)
    kernels[number] = replace(kernels[number], **changes)
    return replace(PLAN, kernels=tuple(kernels))


def with_operator(number: int, **changes: object) -> RProgram:
    operators = list(PLAN.operators)
    operators[number] = replace(operators[number], **changes)
    return replace(PLAN, operators=tuple(operators))


def serial(*operators: int) -> tuple[tuple[RTask, ...], ...]:
    """The operators of the plan, whole, one after another on one vEU."""
    return (tuple(RTask(op, 0, PLAN.kernel_of(op).num_tiles) for op in operators),)


FULL = ((1 << CELLS) - 1,) * TILE_RANGES

MALFORMED = [
    (
        with_kernel(1, footprints=(FULL, FULL)),
        "kernel 'scale' has 2 footprints for 3 pointers; give one for each, or none at all",
    ),
    (
        with_kernel(0, footprints=(FULL, (*FULL, 0))),
        "kernel 'square' has a footprint that is not up to 64 masks of 256 cells; "
        "correct it, or leave it empty",
    ),
    (
        with_kernel(0, footprints=(FULL, (1 << CELLS, *FULL[1:]))),
        "kernel 'square' has a footprint that is not up to 64 masks of 256 cells; "
        "correct it, or leave it empty",
    ),
    (
        replace(
            PLAN,
            operators=PLAN.operators[::-1],
            veus=tuple(
                tuple(replace(task, operator=2 - task.operator) for task in tasks)
                for tasks in PLAN.veus
            ),
        ),
        "operator 'add' reads what 'square' writes and stands before it; "
        "list operators in the order of their data",
    ),
    (
        with_task(PLAN, 0, 1, wave=7),
        "'add' tiles [0, 2) (vEU 0, position 1) is in wave 7; number them from 0 to below 7",
    ),
    (
        with_task(PLAN, 0, 0, wave=-1),
        "'square' tiles [0, 4) (vEU 0, position 0) is in wave -1; number them from 0 to below 7",
    ),
    (
        replace(PLAN, arena_bytes=1 << 60),
        "arena_bytes is 1152921504606846976, which no machine has; correct it",
    ),
    (
        with_buffer(PLAN, 0, shape=(1 << 40, 1 << 40)),
        "buffer 'x' has 4835703278458516698824704 bytes, which no machine has; correct its shape",
    ),
    (
        replace(
            PLAN,
            buffers=(
                *PLAN.buffers,
                Buffer("wide", (1 << 26, 4), "float32", "input", 1),
                Buffer("part", (1 << 26, 2), "float32", "part", 5, pitch=16),
            ),
        ),
        "the parts up to buffer 'part' have 67108864 rows, a plan may have 33554432; "
        "correct their pitches",
    ),
    (
        with_buffer(PLAN, 2, space="heap"),
        "buffer 'squared' is in the space 'heap'; "
        "use one of ('arena', 'constant', 'input', 'output', 'part')",
    ),
    (
        with_buffer(PLAN, 2, shape=(4, -8)),
        "buffer 'squared' has the shape (4, -8); give it extents from 0",
    ),
    (
        with_buffer(PLAN, 2, dtype="float31"),
        "buffer 'squared' has the unknown dtype 'float31'; use a TVM dtype",
    ),
    (
        with_buffer(PLAN, 2, dtype="f4,f4"),
        "buffer 'squared' has the unknown dtype 'f4,f4'; use a TVM dtype",
    ),
    (
        with_buffer(PLAN, 0, offset=64),
        "buffer 'x' is input 0 at offset 64; give it an index from 0 and the offset 0",
    ),
    (
        with_buffer(PLAN, 4, index=1),
        "outputs are numbered [1]; number them from 0, each once",
    ),
    (
        with_buffer(PLAN, 2, offset=32),
        "buffer 'squared' is at offset 32; give it a multiple of 64",
    ),
    (
        with_buffer(PLAN, 3, offset=192),
        "buffer 'scaled' is at arena bytes [192, 320), outside of the 256 bytes there are; "
        "correct its offset or arena_bytes",
    ),
    (
        with_buffer(PLAN, 2, offset=-64),
        "buffer 'squared' is at arena bytes [-64, 64), outside of the 256 bytes there are; "
        "correct its offset or arena_bytes",
    ),
    (
        replace(PLAN, constant_bytes=64),
        "buffer 'w' is at constant bytes [64, 96), outside of the 64 bytes there are; "
        "correct its offset or constant_bytes",
    ),
    (
        with_kernel(0, num_tiles=-1),
        "kernel 'square' has -1 tiles of 1e-06 s; give it finite numbers from 0",
    ),
    (
        with_kernel(0, tile_time=float("nan")),
        "kernel 'square' has 4 tiles of nan s; give it finite numbers from 0",
    ),
    (
        with_kernel(0, modes=("read", "update")),
        "kernel 'square' has the mode 'update'; use read or write",
    ),
    *(
        (
            with_kernel(0, in_place=pair),
            f"kernel 'square' may have the pointers {pair} in one place; "
            "name one that is read, and one that is written",
        )
        for pair in ((1, 0), (0, 0), (0, 2), (-1, 1))
    ),
    (
        with_operator(0, kernel=3),
        "operator 'square' has kernel 3, but there are 3; correct the index",
    ),
    (
        with_operator(0, arguments=(0,)),
        "operator 'square' has 1 arguments, but its kernel 'square' has 2; pass one for each",
    ),
    (
        with_operator(0, arguments=(0, -1)),
        "operator 'square' has buffer -1, but there are 5; correct the index",
    ),
    (
        with_operator(0, arguments=(0, 0)),
        "operator 'square' writes input 'x'; write an arena or output buffer",
    ),
    (
        with_operator(0, arguments=(0, 1)),
        "operator 'square' writes constant 'w'; write an arena or output buffer",
    ),
    (
        with_operator(2, arguments=(2, 4, 4)),
        "operator 'add' writes buffer 'out' over its own argument 'out' "
        "on output 0 bytes [0, 128); place them apart",
    ),
    (
        replace(
            with_operator(2, arguments=(2, 3, 5)),
            buffers=(*PLAN.buffers, Buffer("sum", (4, 8), "float32", "arena", offset=64)),
        ),
        "operator 'add' writes buffer 'sum' over its own argument 'squared' "
        "on arena bytes [64, 128); place them apart",
    ),
    (
        with_operator(1, arguments=(0, 1, 2)),
        "operators 'square' and 'scale' both write buffer 'squared'; give each a buffer of its own",
    ),
    (replace(PLAN, veus=()), "the program has no vEU; give it at least one"),
    (
        with_task(PLAN, 0, 0, operator=3),
        "the rTask on vEU 0 at position 0 is of operator 3, but there are 3; correct the index",
    ),
    (
        with_task(PLAN, 0, 0, stop=5),
        "'square' tiles [0, 5) (vEU 0, position 0) is not a range of the 4 tiles of its operator; "
        "correct it",
    ),
    (
        with_task(PLAN, 0, 0, start=4),
        "'square' tiles [4, 4) (vEU 0, position 0) is not a range of the 4 tiles of its operator; "
        "correct it",
    ),
    (
        with_task(PLAN, 0, 0, start=1),
        "tiles [0, 1) of operator 'square' do not run; run every tile once",
    ),
    (
        with_task(PLAN, 1, 1, stop=3),
        "tiles [3, 4) of operator 'add' do not run; run every tile once",
    ),
    (
        with_veu(PLAN, 0, (*PLAN.veus[0], PLAN.veus[0][0])),
        "tile 0 runs twice, in 'square' tiles [0, 4) (vEU 0, position 0) "
        "and in 'square' tiles [0, 4) (vEU 0, position 2); run every tile once",
    ),
    (
        with_task(PLAN, 0, 1, stop=3),
        "tile 2 runs twice, in 'add' tiles [0, 3) (vEU 0, position 1) "
        "and in 'add' tiles [2, 4) (vEU 1, position 1); run every tile once",
    ),
    (
        with_veu(PLAN, 0, PLAN.veus[0][1:]),
        "tiles [0, 4) of operator 'square' do not run; run every tile once",
    ),
]

BAD_WAITS = [
    (
        with_task(PLAN, 0, 1, waits=(Wait(2, 1),)),
        "'add' tiles [0, 2) (vEU 0, position 1) waits for vEU 2, but the program has 2 vEUs; "
        "correct the wait",
    ),
    (
        with_task(PLAN, 0, 1, waits=(Wait(1, 3),)),
        "'add' tiles [0, 2) (vEU 0, position 1) waits for 3 rTasks of vEU 1, which has 2; "
        "correct the wait",
    ),
    (
        with_task(PLAN, 0, 1, waits=(Wait(1, 0),)),
        "'add' tiles [0, 2) (vEU 0, position 1) waits for 0 rTasks of vEU 1, which has 2; "
        "correct the wait",
    ),
    (
        with_task(PLAN, 0, 1, waits=(Wait(0, 2),)),
        "'add' tiles [0, 2) (vEU 0, position 1) waits for 2 rTasks of its own vEU, "
        "itself or later ones; correct the wait",
    ),
    (
        with_task(PLAN, 0, 0, waits=(Wait(1, 2),)),
        "waits form a cycle: "
        "'square' tiles [0, 4) (vEU 0, position 0) waits for rTask 1 of vEU 1, "
        "'add' tiles [2, 4) (vEU 1, position 1) waits for rTask 0 of vEU 0; "
        "remove one of these waits",
    ),
]

UNSAFE = [
    (
        with_task(PLAN, 0, 1, waits=()),
        "'scale' tiles [0, 2) (vEU 1, position 0) writes buffer 'scaled' and "
        "'add' tiles [0, 2) (vEU 0, position 1) reads buffer 'scaled' on arena bytes [128, 256) "
        "in no fixed order; add a wait between them or place the buffers apart",
    ),
    (
        with_veu(PLAN, 0, PLAN.veus[0][::-1]),
        "'add' tiles [0, 2) (vEU 0, position 0) reads buffer 'squared' on arena bytes [0, 128), "
        "where 0 of the 4 tiles of its producer 'square' are in place; "
        "let it come after all of them",
    ),
    (
        with_buffer(PLAN, 3, offset=64),
        "'square' tiles [0, 4) (vEU 0, position 0) writes buffer 'squared' and "
        "'scale' tiles [0, 2) (vEU 1, position 0) writes buffer 'scaled' on arena bytes [64, 128) "
        "in no fixed order; add a wait between them or place the buffers apart",
    ),
    (
        replace(with_buffer(PLAN, 3, offset=64), veus=serial(0, 1, 2)),
        "'add' tiles [0, 4) (vEU 0, position 2) reads buffer 'squared' on arena bytes [64, 128), "
        "where 'scale' has written buffer 'scaled' last; "
        "place the buffers apart or change the order",
    ),
    (
        replace(
            with_operator(2, arguments=(2, 5, 4)),
            buffers=(*PLAN.buffers, Buffer("nothing", (4, 8), "float32", "arena", offset=128)),
            veus=serial(0, 1, 2),
        ),
        "'add' tiles [0, 4) (vEU 0, position 2) reads buffer 'nothing' on arena bytes [128, 256), "
        "which no operator writes; have one write it before",
    ),
    (
        replace(PLAN, buffers=(*PLAN.buffers, Buffer("more", (2,), "int8", "output", index=1))),
        "output 'more' is not written; have an operator write all of it",
    ),
]


@pytest.mark.parametrize(("program", "message"), MALFORMED + BAD_WAITS + UNSAFE)
def test_error_says_what_is_wrong(program, message):
    with pytest.raises(PlanError) as caught:
        verify(program)
    assert str(caught.value) == message


@pytest.mark.parametrize(("program", "message"), BAD_WAITS)
def test_linear_extension_refuses_bad_waits(program, message):
    with pytest.raises(PlanError) as caught:
        linear_extension(program)
    assert str(caught.value) == message


def test_safe_plans_pass():
    verify(PLAN)
    verify(replace(PLAN, veus=serial(0, 1, 2)))
    verify(replace(PLAN, veus=serial(1, 0, 2)))
    verify(RProgram("empty", "none", (), (), (), ((),)))


def test_wait_on_an_earlier_task_of_the_same_veu_is_allowed():
    verify(with_task(PLAN, 0, 1, waits=(Wait(0, 1), Wait(1, 1))))


def test_empty_buffers_need_no_producer():
    buffers = (*PLAN.buffers, Buffer("nothing", (0, 8), "float32", "output", index=1))
    verify(replace(PLAN, buffers=buffers))


def overwritten_by_two_tiles(waits: tuple[Wait, ...]) -> RProgram:
    """``old`` and then the two tiles of ``new``, on vEUs 0 and 1, write the same bytes."""
    return RProgram(
        "overwritten",
        "by hand",
        buffers=(
            Buffer("old", (16,), "float32", "arena"),
            Buffer("new", (16,), "float32", "arena"),
        ),
        kernels=(RKernel("one", 1, ("write",)), RKernel("two", 2, ("write",))),
        operators=(ROperator("old", 0, (0,)), ROperator("new", 1, (1,))),
        veus=(
            (RTask(0, 0, 1), RTask(1, 0, 1)),
            (RTask(1, 1, 2, waits, wave=1),),
        ),
        arena_bytes=64,
    )


def test_own_write_does_not_hide_an_older_one():
    """The second tile may be unordered with the first one, not with what both overwrite."""
    verify(overwritten_by_two_tiles((Wait(0, 1),)))
    with pytest.raises(PlanError) as caught:
        verify(overwritten_by_two_tiles(()))
    assert str(caught.value) == (
        "'old' tiles [0, 1) (vEU 0, position 0) writes buffer 'old' and "
        "'new' tiles [1, 2) (vEU 1, position 0) writes buffer 'new' on arena bytes [0, 64) "
        "in no fixed order; add a wait between them or place the buffers apart"
    )


def test_result_with_a_foreign_write_between_its_tiles_is_not_complete():
    """All pairs are ordered and all tiles have run, but one of them was overwritten."""
    kernels = (RKernel("one", 1, ("write",)), RKernel("two", 2, ("write",)))
    program = RProgram(
        "interrupted",
        "by hand",
        buffers=(
            Buffer("a", (16,), "float32", "arena"),
            Buffer("b", (16,), "float32", "arena"),
            Buffer("out", (16,), "float32", "output"),
        ),
        kernels=(*kernels, RKernel("copy", 1, ("read", "write"))),
        operators=(ROperator("a", 1, (0,)), ROperator("b", 0, (1,)), ROperator("copy", 2, (0, 2))),
        veus=((RTask(0, 0, 1), RTask(1, 0, 1), RTask(0, 1, 2), RTask(2, 0, 1)),),
        arena_bytes=64,
    )
    with pytest.raises(PlanError) as caught:
        verify(program)
    assert str(caught.value) == (
        "'copy' tiles [0, 1) (vEU 0, position 3) reads buffer 'a' on arena bytes [0, 64), "
        "where 1 of the 2 tiles of its producer 'a' are in place; let it come after all of them"
    )


def test_clocks():
    clocks = vector_clocks(PLAN)
    assert clocks.order == ((0, 0), (1, 0), (0, 1), (1, 1))
    np.testing.assert_array_equal(clocks.table, [[1, 0], [2, 1], [0, 1], [1, 2]])
    np.testing.assert_array_equal(clocks.of(1, 0), [0, 1])


@given(SEEDS, st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_clocks_cover_only_what_is_always_done(seed, veus, order_seed):
    """In every interleaving an rTask starts after at least the rTasks that its clock covers."""
    program = random_program(seed, veus=veus)
    clocks = vector_clocks(program)
    done = np.zeros(veus, np.int32)
    for veu, position in next(legal_interleavings(program, order_seed)):
        done[veu] += 1
        assert (clocks.of(veu, position) <= done).all()


def faithful(program: RProgram, interleavings: int, seed: int) -> bool:
    """Whether every read sees the result of its producer alone in some random interleavings."""
    producer = {b: op for op in range(len(program.operators)) for b in program.writes(op)}
    return all(
        writers == {producer[program.operators[program.veus[veu][position].operator].arguments[k]]}
        for order in islice(legal_interleavings(program, seed), interleavings)
        for (veu, position, k), writers in interpret_symbolic(program, order).items()
    )


@given(SEEDS, st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_random_safe_plans_pass_and_are_faithful(seed, veus):
    program = random_program(seed, operators=8, veus=veus)
    verify(program)
    assert faithful(program, 5, seed)


def mutant(program: RProgram, choice: random.Random) -> RProgram:
    """The plan with a wait dropped or shortened, two rTasks swapped, or a buffer moved."""
    veu = choice.randrange(program.num_veus)
    tasks = program.veus[veu]
    waiting = [position for position, task in enumerate(tasks) if task.waits]
    kind = choice.choice(("drop", "shorten", "swap", "move"))
    if kind == "move":
        number = choice.randrange(len(program.operators) - 1)
        room = (program.arena_bytes - program.buffers[number].nbytes) // 64
        return with_buffer(program, number, offset=64 * choice.randint(0, room))
    if kind == "swap" and len(tasks) > 1:
        i = choice.randrange(len(tasks) - 1)
        return with_veu(program, veu, (*tasks[:i], tasks[i + 1], tasks[i], *tasks[i + 2 :]))
    if kind != "swap" and waiting:
        position = choice.choice(waiting)
        waits = list(tasks[position].waits)
        wait = waits.pop(choice.randrange(len(waits)))
        if kind == "shorten" and wait.count > 1:
            waits.append(Wait(wait.veu, wait.count - 1))
        return with_task(program, veu, position, waits=tuple(waits))
    return program


def test_mutants_that_pass_are_faithful():
    """What verify lets through is right in every interleaving tried; it refuses many mutants."""
    choice = random.Random(0)
    accepted = refused = 0
    for seed in range(200):
        program = mutant(random_program(seed, veus=1 + seed % 3, slots=4), choice)
        try:
            verify(program)
        except PlanError:
            refused += 1
        else:
            accepted += 1
            assert faithful(program, 4, seed)
    assert accepted > 40
    assert refused > 40
