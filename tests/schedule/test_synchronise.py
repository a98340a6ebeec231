from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from operator import ge

import numpy as np
import pytest
from graphs import costs, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic import interpret_symbolic

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram import Wait
from tvm_rammer.rprogram.happens_before import linear_extension, vector_clocks
from tvm_rammer.rprogram.verify import verify
from tvm_rammer.schedule import (
    POLICIES,
    Placed,
    Placement,
    plan_memory,
    sequential,
    synchronise,
    wavefront,
)

#: With these, many waits for many are gathered wherever that makes them fewer.
GATHERING = replace(costs(), wait=1.0)
CHAIN = graph(([], [(2, 1.0)]), ([0], [(2, 1.0)]), ([1], [(2, 1.0)]))


def waits(program):
    return [[task.waits for task in tasks] for tasks in program.veus]


def random_placement(made, num_veus, seed):
    """Ranges of the operators anywhere, in any topological order, interleaved at will."""
    rng = np.random.default_rng(seed)
    veus = [[] for _ in range(num_veus)]
    left = [len(before) for before in made.predecessors]
    ready = [number for number, count in enumerate(left) if not count]
    waiting = []
    while ready or waiting:
        while ready and (not waiting or rng.random() < 0.5):
            number = ready.pop(rng.integers(len(ready)))
            candidate = int(rng.integers(len(made.operators[number].candidates)))
            tiles = made.operators[number].candidates[candidate].num_tiles
            cuts = sorted({0, tiles, *rng.integers(0, tiles + 1, rng.integers(0, 4)).tolist()})
            pieces = [
                Placed(number, candidate, start, stop, made.levels[number])
                for start, stop in pairwise(cuts)
            ]
            waiting.append([number, pieces])
        number, pieces = waiting[rng.integers(len(waiting))]
        veus[rng.integers(num_veus)].append(pieces.pop())
        if not pieces:
            waiting.remove([number, []])
            for after in made.successors[number]:
                left[after] -= 1
                if not left[after]:
                    ready.append(after)
    return Placement("random", tuple(map(tuple, veus)))


def without(program, veu, position, wait):
    tasks = list(program.veus[veu])
    kept = tuple(w for w in tasks[position].waits if w != wait)
    tasks[position] = replace(tasks[position], waits=kept)
    return replace(program, veus=(*program.veus[:veu], tuple(tasks), *program.veus[veu + 1 :]))


def test_a_task_waits_for_the_ranges_of_its_producer_on_other_veus():
    program = synchronise(CHAIN, sequential(CHAIN, 2, costs()))
    assert waits(program) == [
        [(), (Wait(1, 1),), (Wait(1, 2),)],
        [(), (Wait(0, 1),), (Wait(0, 2),)],
    ]


def test_waits_that_earlier_ones_imply_are_left_out():
    """0 -> 1 -> 2 and 0 -> 2, operator 1 on the other vEU: 2 waits for 1, which waited for 0."""
    made = graph(([], [(1, 1.0)]), ([0], [(1, 1.0)]), ([0, 1], [(1, 1.0)]), ([1, 2], [(1, 1.0)]))
    at = ([0], [1], [2, 3])
    veus = tuple(tuple(Placed(n, 0, 0, 1, made.levels[n]) for n in mine) for mine in at)
    program = synchronise(made, Placement("test", veus))
    assert waits(program) == [[()], [(Wait(0, 1),)], [(Wait(1, 1),), ()]]


def test_barriers_order_all_tasks_of_neighbouring_waves():
    """Two branches of two operators, one on each vEU, wait for each other only with barriers."""
    made = graph(*[([], [(1, 1.0)])] * 2, ([0], [(1, 1.0)]), ([1], [(1, 1.0)]))
    free = synchronise(made, wavefront(made, 2, costs()))
    fenced = synchronise(made, wavefront(made, 2, costs(), barrier=True))
    assert waits(free) == [[(), ()], [(), ()]]
    assert waits(fenced) == [[(), (Wait(1, 1),)], [(), (Wait(0, 1),)]]


def test_only_chosen_candidates_become_kernels_each_once():
    made = graph(([], [(4, 1.0), (1, 9.0)]), ([0], [(4, 1.0), (1, 9.0)]))
    program = synchronise(made, sequential(made, 4, costs()))
    assert [k.name for k in program.kernels] == ["body4x1.0"]
    assert [op.kernel for op in program.operators] == [0, 0]


def test_empty_ranges_and_idle_veus_have_no_tasks():
    made = graph(([], [(1, 1.0)]))
    placement = Placement("test", ((Placed(0, 0, 0, 0, 0), Placed(0, 0, 0, 1, 0)), ()))
    assert [len(tasks) for tasks in synchronise(made, placement).veus] == [1, 0]


def test_two_candidates_for_one_operator_are_refused():
    made = graph(([], [(2, 1.0), (2, 2.0)]))
    placement = Placement("test", ((Placed(0, 0, 0, 1, 0),), (Placed(0, 1, 1, 2, 0),)))
    with pytest.raises(PlanError) as error:
        synchronise(made, placement)
    assert str(error.value) == (
        "operator 'op0' is placed with candidates 0 and 1; "
        "give all of its ranges the same candidate"
    )


def test_an_order_against_the_graph_is_refused():
    order = tuple(Placed(number, 0, 0, 2, 0) for number in (1, 0, 2))
    with pytest.raises(PlanError) as error:
        synchronise(CHAIN, Placement("test", (order,)))
    assert str(error.value) == (
        "operator 'op1' in wave 0 is placed before operators that it needs; "
        "order the ranges of every vEU by wave and the waves by the graph"
    )


@given(graphs(), st.integers(1, 16), st.sampled_from(sorted(POLICIES)))
def test_at_most_one_wait_per_other_veu_in_order(made, num_veus, policy):
    program = synchronise(made, POLICIES[policy](made, num_veus, costs()))
    for veu, _, task in program.tasks():
        names = [wait.veu for wait in task.waits]
        assert names == sorted(set(names) - {veu})


@given(graphs(), st.integers(1, 8))
def test_with_barriers_every_task_comes_after_all_earlier_waves(made, num_veus):
    placement = wavefront(made, num_veus, costs(), barrier=True)
    program = synchronise(made, placement)
    clocks = vector_clocks(program)
    for veu, position, task in program.tasks():
        earlier = [sum(t.wave < task.wave for t in tasks) for tasks in program.veus]
        assert (clocks.of(veu, position) >= earlier).all()


@given(graphs(), st.integers(1, 8), st.integers(0, 2**32 - 1), st.sampled_from([None, GATHERING]))
def test_any_legal_placement_becomes_a_safe_program(made, num_veus, seed, known):
    program = synchronise(made, random_placement(made, num_veus, seed), known)
    placed = plan_memory(program)
    verify(placed)
    assert interpret_symbolic(placed, linear_extension(placed)).keys() <= {
        (veu, position, argument)
        for veu, position, task in placed.tasks()
        if not task.gathers
        for argument in range(len(placed.operators[task.operator].arguments))
    }


@given(graphs(), st.integers(1, 8), st.booleans())
def test_gathered_waits_order_what_single_ones_do(made, num_veus, barrier):
    placement = wavefront(made, num_veus, costs(), barrier)
    plain, gathered = (synchronise(made, placement, known) for known in (None, GATHERING))
    before = [clocks_of_tasks(program) for program in (plain, gathered)]
    assert before[0].keys() == before[1].keys()
    for task, counts in before[0].items():
        assert all(map(ge, before[1][task], counts))


def clocks_of_tasks(program):
    """For each rTask that has tiles, which such rTasks of each vEU happen before it."""
    clocks = vector_clocks(program)
    real = [np.cumsum([0, *(not task.gathers for task in tasks)]) for tasks in program.veus]
    return {
        (task.operator, task.start): [
            int(done[count]) for done, count in zip(real, clocks.of(veu, position), strict=True)
        ]
        for veu, position, task in program.tasks()
        if not task.gathers
    }


def test_many_that_wait_for_many_wait_for_one_of_them():
    made = graph(([], [(4, 1.0)]), ([0], [(4, 1.0)]), ([0], [(4, 1.0)]))
    placement = replace(sequential(made, 4, costs()), barrier=False)
    program = synchronise(made, placement, GATHERING)
    gather = Wait(3, 2)
    assert program.veus[3][1].gathers
    assert waits(program)[3] == [(), (Wait(0, 1), Wait(1, 1), Wait(2, 1)), (), ()]
    assert waits(program)[:3] == [[(), (gather,), ()]] * 3


def test_waits_are_gathered_only_where_they_take_longer_than_a_hand_over():
    made = graph(([], [(4, 1.0)]), ([0], [(4, 1.0)]))
    placement = sequential(made, 4, costs())
    # Three of other vEUs and a fourth, its own: four for each of four, or four and four.
    for point_to_point, gathered in ((7.9e-6, True), (8.1e-6, False)):
        known = replace(costs(), wait=1e-6, point_to_point=point_to_point)
        program = synchronise(made, placement, known)
        assert any(task.gathers for _, _, task in program.tasks()) == gathered


@settings(max_examples=40)
@given(
    graphs(12, empty_buffers=False),
    st.integers(2, 4),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.sampled_from([None, GATHERING]),
)
def test_no_wait_can_be_left_out(made, num_veus, seed, by_policy, known):
    """Without any one of its waits a program is unsafe."""
    placement = (
        wavefront(made, num_veus, costs()) if by_policy else random_placement(made, num_veus, seed)
    )
    program = plan_memory(synchronise(made, placement, known))
    verify(program)
    for veu, position, task in program.tasks():
        for wait in task.waits:
            with pytest.raises(PlanError):
                verify(without(program, veu, position, wait))


def test_tasks_of_many_veus_that_wait_for_the_same_share_it():
    """What looks at waits can so look once for all of them."""
    made = graph(([], [(64, 1.0)]), ([0], [(64, 1.0)]))
    halves = [
        [Placed(0, 0, veu, veu + 1, 0)] if veu < 64 else [Placed(1, 0, veu - 64, veu - 63, 1)]
        for veu in range(128)
    ]
    program = synchronise(made, Placement("test", tuple(map(tuple, halves))))
    found = [tasks[0].waits for tasks in program.veus[64:]]
    assert found[0] == tuple(Wait(veu, 1) for veu in range(64))
    assert all(each is found[0] for each in found)
