"""Plans on machines of several core complexes and sockets."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import pairwise

import pytest
from graphs import US, costs, device, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_rammer.errors import InputError
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.described_machine import described_machine
from tvm_rammer.machine.topology import PairCosts, Topology
from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.schedule import (
    POLICIES,
    CostModel,
    Placed,
    Placement,
    bounds,
    losses,
    plan,
    simulate,
    synchronise,
)
from tvm_rammer.typed_json import read_as

SIZE = 1024
FAR = PairCosts(point_to_point=1 * US, transfer=3 * US, transfer_byte=2 * US / SIZE)
FARTHER = PairCosts(point_to_point=5 * US, transfer=7 * US, transfer_byte=4 * US / SIZE)
#: vEUs 0 and 1 share a complex, 2 the socket; 3 is elsewhere; 4 is the second thread of vEU 0.
PLACES = Topology(
    (0, 1, 2, 3, 0), (0, 0, 1, 2, 0), (0, 0, 0, 1, 0), PairCosts(0.0, 0.0, 0.0), FAR, FARTHER
)
COSTS = replace(costs(), transfer=1 * US, transfer_byte=1 * US / SIZE, topology=PLACES)


def handed_over(veu: int, given_costs: CostModel = COSTS) -> tuple[float, float]:
    """Microseconds that a reader on ``veu`` waits for vEU 0, and runs; 2 us of its own."""
    made = graph(([], [(1, 2.0)]), ([0], [(1, 2.0)]), nbytes=SIZE)
    veus: list[tuple[Placed, ...]] = [()] * 5
    veus[0] = (Placed(0, 0, 0, 1, 0),)
    veus[veu] = (*veus[veu], Placed(1, 0, 0, 1, 0))
    program = synchronise(made, Placement("test", tuple(veus)))
    writer, reader = sorted(simulate(program, given_costs).spans, key=lambda span: span.start)
    return round((reader.start - writer.stop) / US, 6), round(reader.duration / US, 6)


@pytest.mark.parametrize(
    ("veu", "wait", "runs"),
    [
        (0, 0.0, 2.0),
        (1, 0.1, 2 + 1 + 1),
        (2, 1.0, 2 + 3 + 2),
        (3, 5.0, 2 + 7 + 4),
        (4, 0.0, 2.0),
    ],
)
def test_signals_and_data_take_what_their_distance_takes(veu, wait, runs):
    assert handed_over(veu) == (wait, runs)


@pytest.mark.parametrize(("veu", "runs"), [(1, 2 + 1 + 1), (2, 2 + 3 + 2 * 2)])
def test_what_has_left_the_writers_own_cache_is_far_only_from_other_complexes(veu, runs):
    """Of two results, the second one is still there."""
    made = graph(([], [(1, 2.0)]), ([0], [(1, 2.0)]), ([0, 1], [(1, 2.0)]), nbytes=SIZE)
    veus: list[tuple[Placed, ...]] = [()] * 5
    veus[0] = (Placed(0, 0, 0, 1, 0), Placed(1, 0, 0, 1, 0))
    veus[veu] = (Placed(2, 0, 0, 1, 0),)
    program = synchronise(made, Placement("test", tuple(veus)))
    (reader,) = (s for s in simulate(program, replace(COSTS, l2_bytes=1)).spans if s.operator == 2)
    assert round(reader.duration / US, 6) == runs


def beside(veu: int, made: OperatorGraph, given_costs: CostModel) -> float:
    """Microseconds of the longer of two operators, on vEU 0 and on ``veu`` at the same time."""
    veus: list[tuple[Placed, ...]] = [()] * 5
    veus[0], veus[veu] = (Placed(0, 0, 0, 1, 0),), (Placed(1, 0, 0, 1, 0),)
    program = synchronise(made, Placement("test", tuple(veus)))
    return max(span.duration for span in simulate(program, given_costs).spans) / US


@pytest.mark.parametrize(("veu", "seconds"), [(1, 8.0), (2, 4.0), (3, 4.0), (4, 8.0)])
def test_every_complex_has_a_last_level_cache_of_its_own(veu, seconds):
    """Each of the two asks for all of its bandwidth."""
    made = graph(([], [(1, 4.0)]), ([], [(1, 4.0)]), nbytes=SIZE)
    scarce = replace(COSTS, bandwidth=2 * SIZE / (4 * US))
    assert beside(veu, made, scarce) == pytest.approx(seconds)


@pytest.mark.parametrize(("veu", "seconds"), [(1, 4.0), (2, 4.0), (3, 2.0)])
def test_every_socket_has_a_memory_of_its_own(veu, seconds):
    """Each of the two waits for a weight that no cache keeps."""
    kernel = RKernel("body", 1, ("read", "read", "write"), 1 * US)
    buffers = (
        Buffer("input", (4,), "float32", "input"),
        Buffer("weight", (SIZE,), "float32", "constant"),
        Buffer("another", (SIZE,), "float32", "constant"),
        Buffer("result", (4,), "float32", "output", 0),
        Buffer("second", (4,), "float32", "output", 1),
    )
    operators = (Operator("a", (kernel,), (0, 1, 3)), Operator("b", (kernel,), (0, 2, 4)))
    made = OperatorGraph("test", buffers, operators, constant_bytes=8 * SIZE)
    rate = 4 * SIZE / (2 * US)
    slow = replace(
        COSTS, missing=((0, 1.0), (1 << 30, 1.0)), memory_bandwidth=rate, core_memory_bandwidth=rate
    )
    assert beside(veu, made, slow) == pytest.approx(seconds)


def test_weights_are_spread_over_all_caches_and_memories():
    """24 MiB in three caches of 8 MiB, or from two memories at once."""
    assert COSTS.missing_share(24 << 20, COSTS.complexes(5)) == 0.0
    assert COSTS.missing_share(24 << 20) == pytest.approx(2 / 3)
    kernel = RKernel("body", 5, ("read", "read", "write"), 1 * US)
    buffers = (
        Buffer("input", (4,), "float32", "input"),
        Buffer("weight", (SIZE,), "float32", "constant"),
        Buffer("result", (4,), "float32", "output", 0),
    )
    operators = (Operator("a", (kernel,), (0, 1, 2)),)
    made = OperatorGraph("test", buffers, operators, constant_bytes=4 * SIZE)
    program = plan(made, device(5), "sequential", COSTS)
    lost = replace(COSTS, missing=((0, 1.0), (1 << 30, 1.0)))
    one = bounds(program, replace(lost, topology=None)).traffic
    assert bounds(program, lost).traffic == pytest.approx(one / 2)


def test_losses_know_what_is_far():
    made = graph(([], [(2, 2.0)]), ([0], [(2, 2.0)]), nbytes=SIZE)
    placed = [(Placed(0, 0, 0, 2, 0),), (), (Placed(1, 0, 0, 2, 0),), (), ()]
    program = synchronise(made, Placement("test", tuple(placed)))
    found = {loss.cost: loss.seconds / US for loss in losses(program, COSTS)}
    assert found["transfers"] == pytest.approx(5)
    assert found["waits"] == pytest.approx(1)


#: Nothing but distance depends on when tasks run: what is beside them does not stretch them, and
#: caches keep what was written.
PATIENT = replace(
    costs(), bandwidth=1e30, memory_bandwidth=1e30, core_memory_bandwidth=1e30, l2_bytes=1 << 60
)


@settings(max_examples=50)
@given(
    graphs(20),
    st.sampled_from(sorted(POLICIES)),
    st.integers(2, 8),
    st.tuples(*[st.floats(1.0, 10.0)] * 6),
)
def test_more_distance_never_shortens_a_plan(made, policy, num_veus, factors):
    near = replace(PATIENT, transfer=0.1 * US, transfer_byte=1e-10)
    far = [PairCosts(near.point_to_point, near.transfer, near.transfer_byte)]
    for longer in (factors[:3], factors[3:]):
        before = far[-1]
        far.append(
            PairCosts(*(cost * f for cost, f in zip(vars(before).values(), longer, strict=True)))
        )
    places = ((0, 1, 2, 3, 4, 5, 6, 7), (0, 0, 1, 1, 2, 2, 3, 3), (0, 0, 0, 0, 1, 1, 1, 1))
    program = synchronise(made, POLICIES[policy](made, num_veus, near))
    seconds = [
        simulate(program, replace(near, topology=topology)).makespan
        for topology in (
            None,
            Topology(*places, None, far[0], far[0]),
            Topology(*places, None, far[0], far[1]),
            Topology(*places, None, far[1], far[1]),
            Topology(*places, None, far[1], far[2]),
        )
    ]
    assert seconds[0] == pytest.approx(seconds[1])
    assert all(after >= before * (1 - 1e-12) for before, after in pairwise(seconds))


@settings(max_examples=30)
@given(graphs(20), st.sampled_from(sorted(POLICIES)), st.integers(1, 8))
def test_one_complex_of_a_machine_is_as_good_as_a_machine_of_one(made, policy, num_veus):
    """As long as no vEU lies beyond the first complex."""
    known = VDevice("here", l2_bytes=1 << 19, l3_bytes=32 << 20)
    epyc = described_machine("epyc-7r13-2s").applied_to(known)
    alone = CostModel.of(replace(epyc, topology=None))
    assert plan(made, epyc.with_veus(num_veus), policy) == plan(
        made, epyc.with_veus(num_veus), policy, alone
    )
    program = plan(made, epyc.with_veus(num_veus), policy)
    assert simulate(program, CostModel.of(epyc)) == simulate(program, alone)


def test_costs_are_read_back_and_old_ones_are_of_one_complex():
    text = json.loads(json.dumps(asdict(COSTS)))
    assert read_as(CostModel, text) == COSTS
    del text["topology"]
    assert read_as(CostModel, text) == replace(COSTS, topology=None)


def test_costs_of_a_distance_that_are_no_numbers():
    broken = replace(PLACES, socket=replace(FAR, transfer=float("inf")))
    with pytest.raises(InputError) as caught:
        replace(COSTS, topology=broken)
    assert str(caught.value) == (
        "the cost topology.socket.transfer is inf; give a finite number from 0"
    )
