"""Interpreting a plan in legal interleavings, on symbols and on numbers."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from plans import BODIES, constant_pool, random_program, two_branches, with_task, with_veu
from symbolic import UNWRITTEN, interpret_symbolic

from tvm_rammer.errors import InputError, PlanError
from tvm_rammer.rprogram import (
    ALIGNMENT,
    Interpreter,
    RTask,
    Wait,
    interpret_numeric,
    legal_interleavings,
    linear_extension,
)

PLAN = two_branches()
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 8), np.float32)
W = RNG.standard_normal(8, np.float32)


def test_interleavings_are_legal_repeatable_and_different():
    program = random_program(3, operators=8, veus=4, slots=30, most_reads=1)
    orders = list(islice(legal_interleavings(program, 7), 20))
    assert orders == list(islice(legal_interleavings(program, 7), 20))
    assert len({tuple(order) for order in orders}) > 10
    for order in orders:
        Interpreter.run(_Nothing(program), order)


class _Nothing(Interpreter):
    def run_task(self, veu, position, task):
        pass


def test_deadlock():
    program = with_task(PLAN, 0, 0, waits=(Wait(1, 2),))
    with pytest.raises(PlanError, match="waits form a cycle"):
        next(legal_interleavings(program, 0))


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (
            [(0, 1)],
            "the order has rTask 1 of vEU 0 where it does not come next; "
            "take one from legal_interleavings",
        ),
        (
            [(2, 0)],
            "the order has rTask 0 of vEU 2 where it does not come next; "
            "take one from legal_interleavings",
        ),
        (
            [(0, 0), (0, 1)],
            "the order has 'add' tiles [0, 2) (vEU 0, position 1) before rTask 0 of vEU 1, "
            "which it waits for; take one from legal_interleavings",
        ),
        (
            [(0, 0)],
            "the order has 1 of the 4 rTasks; take one from legal_interleavings",
        ),
    ],
)
def test_illegal_order(order, message):
    with pytest.raises(PlanError) as caught:
        interpret_symbolic(PLAN, order)
    assert str(caught.value) == message


def test_symbolic_reads_see_their_producers():
    seen = interpret_symbolic(PLAN, linear_extension(PLAN))
    assert seen == {
        (0, 1, 0): {0},
        (0, 1, 1): {1},
        (1, 1, 0): {0},
        (1, 1, 1): {1},
    }


def test_symbolic_shows_a_missing_wait():
    """Without its wait, the sum may start before the other branch has written anything."""
    program = with_task(PLAN, 0, 1, waits=())
    early = interpret_symbolic(program, [(0, 0), (0, 1), (1, 0), (1, 1)])
    late = interpret_symbolic(program, [(0, 0), (1, 0), (0, 1), (1, 1)])
    assert early[0, 1, 1] == {UNWRITTEN}
    assert late[0, 1, 1] == {1}


def test_symbolic_shows_an_incomplete_result():
    """Between the tiles of its producer a result may still hold what was there before."""
    halves = (RTask(0, 0, 2), PLAN.veus[0][1], RTask(0, 2, 4))
    seen = interpret_symbolic(with_veu(PLAN, 0, halves), [(1, 0), (0, 0), (0, 1), (0, 2), (1, 1)])
    assert seen[0, 1, 0] == {UNWRITTEN, 0}
    assert seen[1, 1, 0] == {0}


def test_numeric_outputs_in_any_interleaving():
    for order in islice(legal_interleavings(PLAN, 1), 5):
        (out,) = interpret_numeric(PLAN, order, BODIES, [X], constant_pool(W))
        np.testing.assert_array_equal(out, X * X + X * W)


def test_numeric_memory_is_poisoned():
    """What is read before it is written is NaN."""
    program = with_task(PLAN, 0, 1, waits=())
    (out,) = interpret_numeric(
        program, [(0, 0), (0, 1), (1, 0), (1, 1)], BODIES, [X], constant_pool(W)
    )
    assert np.isnan(out[:2]).all()
    assert not np.isnan(out[2:]).any()


def test_numeric_arrays_are_aligned_and_the_callers_are_safe():
    def check(start, stop, arrays):
        assert all(array.ctypes.data % ALIGNMENT == 0 for array in arrays)
        arrays[0][:] = 0

    x, pool = X.copy(), constant_pool(W)
    bodies = dict.fromkeys(BODIES, check)
    interpret_numeric(PLAN, linear_extension(PLAN), bodies, [x], pool)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize(
    ("bodies", "inputs", "constants", "message"),
    [
        ({}, [X], constant_pool(W), "no body for kernel 'add'; pass one for every kernel"),
        (
            BODIES,
            [],
            constant_pool(W),
            "no array for input 0 ('x'), only 0 were passed; pass every input",
        ),
        (
            BODIES,
            [X.astype("float64")],
            constant_pool(W),
            "input 0 ('x') is float64[4, 8]; pass float32[4, 8]",
        ),
        (
            BODIES,
            [X.T],
            constant_pool(W),
            "input 0 ('x') is float32[8, 4]; pass float32[4, 8]",
        ),
        (BODIES, [X], None, "the pool of constants is uint8[0]; pass uint8[128]"),
        (BODIES, [X], W, "the pool of constants is float32[8]; pass uint8[128]"),
    ],
)
def test_numeric_refuses_what_does_not_fit(bodies, inputs, constants, message):
    with pytest.raises(InputError) as caught:
        interpret_numeric(PLAN, linear_extension(PLAN), bodies, inputs, constants)
    assert str(caught.value) == message
