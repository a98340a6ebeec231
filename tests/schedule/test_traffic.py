"""Durations of rTasks: nearness of weights, memory, and vEUs that share a bandwidth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import US, costs

from tvm_rammer.machine.topology import PairCosts, Topology
from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.rprogram.program import CELLS
from tvm_rammer.schedule import Placed, Placement, bounds, simulate, synchronise

#: Bytes of every weight.
WEIGHT = 1024


def independent(weights: list[int], microseconds: float = 2.0) -> OperatorGraph:
    """Operators that read nothing but the weights of these numbers."""
    kernel = RKernel("body", 1, ("read", "write"), microseconds * US)
    buffers = [
        Buffer(f"weight{k}", (WEIGHT // 4,), "float32", "constant", 0, k * WEIGHT)
        for k in range(max(weights) + 1)
    ]
    operators = []
    for number, weight in enumerate(weights):
        operators.append(Operator(f"op{number}", (kernel,), (weight, len(buffers))))
        buffers.append(Buffer(f"result{number}", (1,), "float32", "output", number))
    constant_bytes = WEIGHT * (max(weights) + 1)
    return OperatorGraph("test", tuple(buffers), tuple(operators), constant_bytes)


def times(weights: list[int], veus: list[list[int]], given) -> list[list[float]]:
    """Microseconds of the operators that each vEU runs."""
    placed = tuple(tuple(Placed(n, 0, 0, 1, 0) for n in mine) for mine in veus)
    program = synchronise(independent(weights), Placement("test", placed))
    found: list[list[float]] = [[] for _ in veus]
    for span in simulate(program, given).spans:
        found[span.veu].append(round(span.duration / US, 6))
    assert simulate(program, given).makespan >= bounds(program, given).makespan
    return found


def test_a_weight_that_the_veu_has_read_is_near():
    """A kilobyte saves half a microsecond; the weight between the two fits into the cache too."""
    given = replace(costs(), far_byte=0.5 * US / WEIGHT, l2_bytes=4 * WEIGHT)
    assert times([0, 1, 0], [[0, 1, 2]], given) == [[2.0, 2.0, 1.5]]


def test_another_veu_has_it_in_a_cache_of_its_own():
    given = replace(costs(), far_byte=0.5 * US / WEIGHT)
    assert times([0, 0], [[0], [1]], given) == [[2.0], [2.0]]


def halves(ranges: list[tuple[int, int]]) -> list[float]:
    """Microseconds of these tiles of one operator after the other, all with the same weight.

    The first tile reads one half of it, the second the other one.
    """
    half = (1 << CELLS // 2) - 1
    footprints = ((half, half << CELLS // 2), ((1 << CELLS) - 1,) * 2)
    kernel = RKernel("body", 2, ("read", "write"), 2 * US, footprints=footprints)
    buffers = [Buffer("weight", (WEIGHT // 4,), "float32", "constant", 0)]
    operators, tasks = [], []
    for number, (start, stop) in enumerate(ranges):
        operators.append(Operator(f"op{number}", (kernel,), (0, len(buffers))))
        buffers.append(Buffer(f"result{number}", (1,), "float32", "output", number))
        tasks.append(Placed(number, 0, start, stop, 0))
    rest = [
        Placed(placed.operator, 0, *other, 0)
        for placed in tasks
        for other in ((0, placed.start), (placed.stop, 2))
        if other[0] < other[1]
    ]
    graph = OperatorGraph("test", tuple(buffers), tuple(operators), WEIGHT)
    program = synchronise(graph, Placement("test", (tuple(tasks), tuple(rest))))
    given = replace(costs(), far_byte=1 * US / WEIGHT, l2_bytes=4 * WEIGHT)
    spans = simulate(program, given).spans
    return [round(span.duration / US, 6) for span in spans if span.veu == 0]


def test_another_part_of_a_weight_is_far():
    """Of four microseconds one is saved where all is near, and half of one where a half is."""
    assert halves([(0, 1), (0, 1)]) == [2.0, 1.5]
    assert halves([(0, 1), (1, 2)]) == [2.0, 2.0]
    assert halves([(0, 1), (0, 2), (1, 2)]) == [2.0, 3.5, 1.5]


def test_a_near_weight_is_not_drawn_from_the_shared_cache():
    """Both vEUs read 1028 bytes in 2 us at first, more than there is, and then four each."""
    bandwidth = 1028 / (2 * US) * 1.25
    given = replace(costs(), bandwidth=bandwidth, l2_bytes=4 * WEIGHT, far_byte=0.0)
    assert times([0, 1, 0, 1], [[0, 2], [1, 3]], given) == [[2.0, 2.0], [3.2, 2.0]]


def test_a_weight_that_made_room_for_another_is_far():
    given = replace(costs(), far_byte=0.5 * US / WEIGHT, l2_bytes=2 * WEIGHT)
    assert times([0, 1, 0], [[0, 1, 2]], given) == [[2.0, 2.0, 2.0]]


def test_nearness_saves_at_most_half():
    given = replace(costs(), far_byte=100 * US / WEIGHT)
    assert times([0, 0], [[0, 1]], given) == [[2.0, 1.0]]


def test_weights_beyond_the_last_level_cache_come_from_memory():
    """Half of two kilobytes are missing; memory takes eight microseconds for a kilobyte."""
    given = replace(costs(), l3_bytes=WEIGHT, memory_bandwidth=WEIGHT / (8 * US))
    assert times([0, 1], [[0, 1]], given) == [[4.0, 4.0]]


def test_a_weight_that_the_last_level_cache_lost_comes_from_memory_again():
    """Nothing is lost between runs, two of three weights fit, and memory takes 8 us for one."""
    given = replace(
        costs(),
        l2_bytes=WEIGHT,
        l3_bytes=2 * WEIGHT,
        missing=((3 * WEIGHT, 0.0),),
        memory_bandwidth=WEIGHT / (8 * US),
    )
    near = times([0, 1, 0, 2, 0, 1], [[0, 1, 2, 3, 4, 5]], given)
    assert near == [[2.0, 2.0, 2.0, 2.0, 2.0, 8.0]]
    assert times([0, 1, 2, 0], [[0, 1, 2, 3]], given) == [[2.0, 2.0, 2.0, 8.0]]


def test_complexes_lose_weights_each_for_itself():
    """What vEU 1 reads takes no room where vEU 0 reads the first weight again."""
    far = PairCosts(0.0, 0.0, 0.0)
    given = replace(
        costs(),
        l2_bytes=WEIGHT,
        l3_bytes=2 * WEIGHT,
        missing=((4 * WEIGHT, 0.0),),
        memory_bandwidth=WEIGHT / (8 * US),
        topology=Topology((0, 1), (0, 1), (0, 0), socket=far),
    )
    assert times([0, 1, 2, 3, 0], [[0, 1, 4], [2, 3]], given) == [[2.0] * 3, [2.0] * 2]
    shared = replace(given, topology=None)
    assert times([0, 1, 2, 3, 0], [[0, 1, 4], [2, 3]], shared) == [[2.0, 2.0, 8.0], [2.0] * 2]


def test_what_a_veu_has_in_its_own_cache_is_not_lost():
    """The first weight stays near vEU 0 while vEU 1 sweeps the shared cache."""
    given = replace(
        costs(),
        far_byte=0.0,
        l2_bytes=2 * WEIGHT,
        l3_bytes=2 * WEIGHT,
        missing=((4 * WEIGHT, 0.0),),
        memory_bandwidth=WEIGHT / (8 * US),
    )
    assert times([0, 1, 2, 3, 0], [[0, 4], [1, 2, 3]], given) == [[2.0] * 2, [2.0] * 3]


def test_who_starts_beside_another_waits_for_the_shared_memory():
    given = replace(costs(), l3_bytes=WEIGHT, memory_bandwidth=WEIGHT / (8 * US))
    assert times([0, 1], [[0], [1]], given) == [[4.0], [8.0]]


def test_the_last_level_cache_is_shared_too():
    """Alone an operator draws 1028 bytes in 2 us; two draw more than there is."""
    given = replace(costs(), bandwidth=1028 / (2 * US) * 1.25)
    assert times([0, 1], [[0], [1]], given) == [[2.0], [3.2]]


def test_bytes_from_memory_are_a_bound():
    graph = independent([0, 1, 2])
    veus = tuple((Placed(n, 0, 0, 1, 0),) for n in range(3))
    program = synchronise(graph, Placement("test", veus))
    given = replace(costs(), l3_bytes=WEIGHT, memory_bandwidth=WEIGHT / US)
    assert bounds(program, given).traffic == pytest.approx(2 * US)


def test_a_cache_that_others_share_loses_what_would_fit():
    """A quarter of four kilobytes is missing, and all of eight; in between, a line is drawn."""
    given = replace(costs(), missing=((WEIGHT, 0.0), (4 * WEIGHT, 0.25), (8 * WEIGHT, 1.0)))
    shares = [given.missing_share(count * WEIGHT) for count in (0, 1, 4, 6, 8, 20)]
    assert shares == [0.0, 0.0, 0.25, 0.625, 1.0, 1.0]


def test_one_veu_draws_less_from_memory_than_all():
    given = replace(
        costs(),
        missing=((WEIGHT, 1.0),),
        memory_bandwidth=WEIGHT / (8 * US),
        core_memory_bandwidth=WEIGHT / (12 * US),
    )
    assert times([0], [[0]], given) == [[12.0]]
    assert times([0, 1], [[0], [1]], given) == [[12.0], [16.0]]
