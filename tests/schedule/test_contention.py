"""Sums of what running rTasks draw from what they share."""

from __future__ import annotations

from itertools import permutations

from tvm_rammer.machine.topology import PairCosts, Topology
from tvm_rammer.schedule.traffic import Contention

#: Two sockets, each of two complexes of one core.
FAR = PairCosts(1e-7, 1e-7, 1e-10)
SOCKETS = Topology((0, 1, 2, 3), (0, 1, 2, 3), (0, 0, 1, 1), socket=FAR, machine=FAR)


def test_what_has_ended_draws_nothing():
    rates = Contention(3, None)
    rates.add(0, 1.0, 5e9, 1e9)
    rates.add(1, 2.0, 3e9, 0.0)
    assert rates.beside(2, 0.5) == (8e9, 1e9)
    assert rates.beside(2, 1.0) == (3e9, 0.0)
    assert rates.beside(2, 2.0) == (0.0, 0.0)


def test_a_cache_is_shared_by_a_complex_and_memory_by_a_socket():
    rates = Contention(4, SOCKETS)
    for veu, (cache, memory) in enumerate([(1e9, 10e9), (2e9, 20e9), (4e9, 40e9)]):
        rates.add(veu, 1.0, cache, memory)
    assert [rates.beside(veu, 0.0) for veu in range(4)] == [
        (1e9, 30e9),
        (2e9, 30e9),
        (4e9, 40e9),
        (0.0, 40e9),
    ]


def test_veus_beyond_the_hardware_threads_lie_with_the_first_ones():
    rates = Contention(6, SOCKETS)
    rates.add(4, 1.0, 1e9, 1e9)
    assert rates.beside(0, 0.0) == (1e9, 1e9)
    assert rates.beside(1, 0.0) == (0.0, 1e9)


def test_the_order_of_starts_and_ends_leaves_no_trace():
    """Sums of floats would: 0.1 + 0.2 + 0.3 is another number than 0.3 + 0.2 + 0.1."""
    found = set()
    for order in permutations([0.1e12, 0.2e12, 0.3e12]):
        rates = Contention(4, None)
        for veu, rate in enumerate(order):
            rates.add(veu, 1.0 + rate, rate, rate)
        found.add(rates.beside(3, 0.0))
        assert rates.beside(3, 1e12) == (0.0, 0.0)
    assert len(found) == 1


def test_rates_beyond_all_numbers_are_high_ones_and_end():
    rates = Contention(3, None)
    for veu, rate in enumerate((1e303, float("inf"))):
        rates.add(veu, 1.0 + veu, rate, 0.0)
    assert rates.beside(2, 0.0)[0] > 1e290
    assert rates.beside(2, 2.0) == (0.0, 0.0)
