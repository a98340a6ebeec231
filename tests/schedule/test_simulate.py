from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import US, costs, graph, graphs
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.schedule import (
    POLICIES,
    Placed,
    Placement,
    Span,
    Timeline,
    bounds,
    simulate,
    synchronise,
)
from tvm_rammer.schedule.traffic import Traffic, seconds_of_memory

#: Two branches of 2 us and 3 us (three tiles) that meet in an operator of 1 us.
FORK = graph(([], [(1, 2.0)]), ([], [(3, 1.0)]), ([0, 1], [(1, 1.0)]))


def on_two_veus():
    first = (Placed(0, 0, 0, 1, 0), Placed(2, 0, 0, 1, 1))
    return synchronise(FORK, Placement("test", (first, (Placed(1, 0, 0, 3, 0),))))


def test_tasks_start_after_the_launch_and_after_what_they_wait_for():
    """1 us launch, then 3 us on vEU 1, 0.1 us until vEU 0 sees it, then 1 us."""
    timeline = simulate(on_two_veus(), costs())
    spans = [
        (s.veu, s.position, s.operator, round(s.start / US, 6), round(s.stop / US, 6))
        for s in timeline.spans
    ]
    assert spans == [(0, 0, 0, 1, 3), (0, 1, 2, 4.1, 5.1), (1, 0, 1, 1, 4)]
    assert timeline.source == "simulated"


def test_a_row_costs_each_rtask_something_beside_its_tiles():
    """As above, each rTask 0.5 us longer, however many tiles it has."""
    timeline = simulate(on_two_veus(), replace(costs(), row=0.5 * US))
    assert [round(s.duration / US, 6) for s in timeline.spans] == [2.5, 1.5, 3.5]
    assert timeline.makespan == pytest.approx(6.1 * US)


def test_a_timeline_knows_its_length_and_use():
    timeline = simulate(on_two_veus(), costs())
    assert timeline.makespan == pytest.approx(5.1 * US)
    assert timeline.busy == pytest.approx(6 * US)
    assert timeline.utilisation == pytest.approx(6 / 10.2)


def test_veus_without_a_span_are_idle():
    spans = (Span(0, 0, 0, 0.0, 1.0),)
    assert Timeline(spans, "measured").utilisation == 1.0
    assert Timeline(spans, "measured", num_veus=4).utilisation == 0.25
    assert (Timeline((), "measured").makespan, Timeline((), "measured").utilisation) == (0, 0)


def test_bounds_are_the_longest_path_and_the_work():
    """Across two vEUs the three tiles take 2 us."""
    found = bounds(on_two_veus())
    assert found.critical_path == pytest.approx(3 * US)
    assert found.work == pytest.approx(3 * US)
    assert found.makespan == max(found.critical_path, found.work)


@given(graphs(), st.integers(1, 16), st.sampled_from(sorted(POLICIES)))
def test_no_simulation_beats_the_bounds(made, num_veus, policy):
    program = synchronise(made, POLICIES[policy](made, num_veus, costs()))
    timeline = simulate(program, costs())
    assert timeline.makespan >= bounds(program).makespan * (1 - 1e-9)
    assert len(timeline.spans) == program.num_tasks


@given(graphs(), st.sampled_from([1 << 20, 1 << 30]))
def test_one_veu_is_always_busy_after_the_launch(made, l3_bytes):
    """Nothing waits on one vEU: the makespan is the work, less what weights save by staying.

    More is at most what weights take that come from memory at every read.
    """
    given_costs = replace(costs(), l3_bytes=l3_bytes)
    program = synchronise(made, POLICIES["wavefront"](made, 1, given_costs))
    makespan = simulate(program, given_costs).makespan - 1 * US
    traffic = Traffic(program, given_costs)
    work = sum(traffic.alone)
    if program.constant_bytes > l3_bytes:
        read = sum(weight.nbytes for weight in traffic.demands.weights if weight)
        work += seconds_of_memory(read, given_costs)
    assert makespan <= work * (1 + 1e-9)
    assert makespan >= bounds(program, given_costs).work * (1 - 1e-9)
