"""How far vEUs are from each other, and what that costs."""

from __future__ import annotations

import pytest

from tvm_rammer.errors import InputError
from tvm_rammer.machine.topology import Latencies, PairCosts, Topology, topology_of

NEAR, FAR = PairCosts(1.0, 2.0, 4.0), PairCosts(10.0, 20.0, 40.0)

#: Two sockets of two complexes of two cores; then the second thread of every core.
CORES = [*range(8), *range(8)]
COMPLEXES = [core // 2 for core in CORES]
SOCKETS = [core // 4 for core in CORES]
WHOLE = topology_of(CORES, COMPLEXES, SOCKETS, NEAR, Latencies(10.0, 5.0, 20.0, 40.0))


@pytest.mark.parametrize(
    ("pair", "distance"),
    [
        ((0, 1), "complex"),
        ((0, 2), "socket"),
        ((0, 4), "machine"),
        ((0, 8), "core"),
        ((8, 9), "complex"),
        ((11, 4), "machine"),
        ((16, 18), "socket"),  # the first threads again
    ],
)
def test_distances(pair, distance):
    assert WHOLE is not None
    assert WHOLE.distance(*pair) == WHOLE.distance(*reversed(pair)) == distance


def test_costs_follow_from_latencies():
    """What begins takes as much longer, bytes so many times longer; a core shares its caches."""
    assert WHOLE is not None
    assert WHOLE.far() == {
        "core": PairCosts(0.0, 0.0, 0.0),
        "socket": PairCosts(11.0, 12.0, 8.0),
        "machine": PairCosts(31.0, 32.0, 16.0),
    }


def test_the_first_pair_of_every_distance():
    assert WHOLE is not None
    assert WHOLE.pairs() == {"core": (0, 8), "complex": (0, 1), "socket": (0, 2), "machine": (0, 4)}


def test_nothing_is_far_in_one_complex():
    assert topology_of([0, 1, 2], [0, 0, 0], [0, 0, 0], NEAR) is None
    threads = topology_of([0, 0], [0, 0], [0, 0], NEAR)
    assert threads is not None
    assert list(threads.far()) == ["core", "socket", "machine"]
    assert threads.pairs() == {"core": (0, 1)}


def test_complexes_and_sockets_fill_up_in_turn():
    assert WHOLE is not None
    assert [WHOLE.count_complexes(n) for n in (1, 2, 3, 8, 16, 99)] == [1, 1, 2, 4, 4, 4]
    assert [WHOLE.count_sockets(n) for n in (1, 4, 5, 99)] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (
            ((), (), ()),
            "a topology has 0 cores, 0 complexes and 0 sockets; give one of each for every "
            "hardware thread, and at least one thread",
        ),
        (
            ((0, 1), (0,), (0, 0)),
            "a topology has 2 cores, 1 complexes and 2 sockets; give one of each for every "
            "hardware thread, and at least one thread",
        ),
        (
            ((0, 0), (0, 1), (0, 0)),
            "core 0 lies in complex 0 and in complex 1; give every core one complex",
        ),
        (
            ((0, 1), (3, 3), (0, 1)),
            "complex 3 lies in socket 0 and in socket 1; give every complex one socket",
        ),
        (
            ((0, 1), (0, 1), (0, 0)),
            "a topology has no costs of the distance 'socket'; give them",
        ),
    ],
)
def test_a_topology_that_contradicts_itself(lists, message):
    with pytest.raises(InputError) as caught:
        Topology(*lists, machine=FAR)
    assert str(caught.value) == message
