"""Parts of a buffer: written by several operators, read as one, and never over each other."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from plans import BODIES, constant_pool, side_by_side, with_buffer, with_task, with_veu
from rprogram.oracle import is_safe
from symbolic import UNWRITTEN, interpret_symbolic

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram import (
    Buffer,
    ROperator,
    RProgram,
    RTask,
    Wait,
    format_program,
    from_json,
    interpret_numeric,
    legal_interleavings,
    linear_extension,
    to_json,
    verify,
)
from tvm_rammer.rprogram.rows import in_place

PLAN = side_by_side()


def reading(buffer: Buffer, **changes: object) -> RProgram:
    """The plan, its last operator reading another buffer."""
    operators = (*PLAN.operators[:2], ROperator("increment", 2, (6, 5)))
    return replace(PLAN, buffers=(*PLAN.buffers, buffer), operators=operators, **changes)


def test_parts_need_no_order_and_their_reader_comes_after_both():
    verify(PLAN)
    assert is_safe(PLAN) == (True, "")
    assert in_place(PLAN) == ([4], [])


def test_a_part_may_consist_of_parts_and_be_part_of_one():
    """A reader depends on those that it overlaps."""
    whole = Buffer("all of it", (4, 16), "float32", "part", 4, 0, 64)
    verify(reading(whole))
    assert in_place(reading(whole)) == ([4, 6], [])
    left = reading(Buffer("left", (4, 4), "float32", "part", 4, 16, 64))
    verify(left)
    assert in_place(left) == ([4], [6])
    alone = with_task(left, 0, 1, waits=())
    verify(alone)  # squared ran on its own vEU
    assert is_safe(alone) == (True, "")


FAULTS = [
    (
        with_task(PLAN, 0, 1, waits=()),
        "'scale' tiles [0, 2) (vEU 1, position 0) writes buffer 'scaled' and "
        "'increment' tiles [0, 2) (vEU 0, position 1) reads buffer 'scaled' on arena bytes "
        "[32, 256) in no fixed order; add a wait between them or place the buffers apart",
    ),
    (
        with_veu(PLAN, 0, PLAN.veus[0][::-1]),
        "'increment' tiles [0, 2) (vEU 0, position 0) reads buffer 'squared' on arena bytes "
        "[0, 224), where 0 of the 4 tiles of its producer 'square' are in place; "
        "let it come after all of them",
    ),
    (
        with_buffer(PLAN, 3, offset=16),
        "buffers 'squared' and 'scaled' are both written and share bytes of every row of 'both'; "
        "place them side by side",
    ),
    (
        with_buffer(PLAN, 3, offset=48),
        "buffer 'scaled' is at bytes [48, 80) of rows of 64 bytes; "
        "let it be whole items inside of them",
    ),
    (
        with_buffer(PLAN, 3, offset=30),
        "buffer 'scaled' is at bytes [30, 62) of rows of 64 bytes; "
        "let it be whole items inside of them",
    ),
    (
        with_buffer(PLAN, 3, pitch=48),
        "buffer 'scaled' has the pitch 48, another part of 'both' has 64; "
        "give all of its parts the same",
    ),
    (
        with_buffer(PLAN, 2, pitch=48),
        "buffer 'squared' has the pitch 48, which does not divide the 256 bytes of 'both' into "
        "rows of float32; correct it",
    ),
    (
        with_buffer(PLAN, 2, shape=(8, 3)),
        "buffer 'squared' of shape (8, 3) does not fall into the 4 rows of 'both'; "
        "correct its shape or its pitch",
    ),
    (
        with_buffer(PLAN, 2, index=9),
        "buffer 'squared' is a part of buffer 9, but there are 6; correct the index",
    ),
    (
        with_buffer(PLAN, 2, index=3),
        "buffer 'squared' is a part of 'scaled', which is a part itself; "
        "let it be a part of the buffer that both lie in",
    ),
    (
        with_buffer(PLAN, 4, pitch=64),
        "buffer 'both' has the pitch 64 and is no part; give it the pitch 0",
    ),
    (
        with_buffer(PLAN, 2, index=0, pitch=32),
        "operator 'square' writes input 'squared'; write an arena or output buffer",
    ),
    (
        with_buffer(with_buffer(PLAN, 3, shape=(4, 7)), 0),
        "'increment' tiles [0, 2) (vEU 0, position 1) reads buffer 'both' on arena bytes [0, 256), "
        "which no operator writes; have one write it before",
    ),
    (
        replace(with_buffer(PLAN, 2, shape=(4, 16)), operators=(*PLAN.operators[:2],), veus=()),
        "buffers 'squared' and 'scaled' are both written and share bytes of every row of 'both'; "
        "place them side by side",
    ),
]


@pytest.mark.parametrize(("program", "message"), FAULTS)
def test_error_says_what_is_wrong(program, message):
    with pytest.raises(PlanError) as caught:
        verify(program)
    assert str(caught.value) == message
    assert not is_safe(program)[0]


def test_what_takes_the_place_of_a_buffer_comes_after_the_readers_of_its_parts():
    """``late`` is where the first two rows of ``both`` were."""
    program = replace(
        PLAN,
        buffers=(*PLAN.buffers, Buffer("late", (4, 8), "float32", "arena")),
        operators=(*PLAN.operators, ROperator("late", 0, (0, 6))),
    )
    early = with_veu(program, 0, (*PLAN.veus[0], RTask(3, 0, 4)))
    with pytest.raises(PlanError) as caught:
        verify(early)
    assert str(caught.value) == (
        "'late' tiles [0, 4) (vEU 0, position 2) writes buffer 'late' and "
        "'increment' tiles [2, 4) (vEU 1, position 1) reads buffer 'squared' on arena bytes "
        "[0, 128) in no fixed order; add a wait between them or place the buffers apart"
    )
    assert not is_safe(early)[0]
    verify(with_task(early, 0, 2, waits=(Wait(1, 2),)))


def test_symbolic_reads_see_all_writers():
    seen = interpret_symbolic(PLAN, linear_extension(PLAN))
    assert seen == {(0, 1, 0): {0, 1}, (1, 1, 0): {0, 1}}
    early = interpret_symbolic(with_task(PLAN, 0, 1, waits=()), [(0, 0), (0, 1), (1, 0), (1, 1)])
    assert early == {(0, 1, 0): {0, UNWRITTEN}, (1, 1, 0): {0, 1}}


def test_numeric_outputs_in_any_interleaving():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4, 8), np.float32), rng.standard_normal(8, np.float32)
    for order in islice(legal_interleavings(PLAN, 1), 5):
        (out,) = interpret_numeric(PLAN, order, BODIES, [x], constant_pool(w))
        np.testing.assert_array_equal(out, np.concatenate([x * x, x * w], 1) + 1)


def test_text_counts_concatenations():
    lines = format_program(PLAN).splitlines()
    assert lines[2] == (
        "  arena 256 B, constants 128 B, 1 input, 1 output, 1 concatenation in place"
    )


def test_json_keeps_parts():
    assert from_json(to_json(PLAN)) == PLAN
