from __future__ import annotations

from itertools import product

from graphs import costs, graphs, kernel
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.schedule.interplay import area, fastest_time, interplay, trades

FAST = kernel(8, 1.0, name="fast")
EFFICIENT = kernel(2, 3.0, name="efficient")


def estimate(kernels, num_veus):
    longest = max(fastest_time(k, num_veus, costs()) for k in kernels)
    return max(sum(map(area, kernels)) / num_veus, longest)


def test_an_operator_that_owns_the_device_is_fast():
    assert interplay([(FAST, EFFICIENT)], 8, costs()) == (0,)


def test_operators_that_share_the_device_are_efficient():
    assert interplay([(FAST, EFFICIENT)] * 8, 8, costs()) == (1,) * 8


def test_only_as_many_trades_as_the_estimate_gains_from():
    """The long operator bounds the wave: its neighbours gain nothing from being efficient."""
    long = kernel(1, 20.0, name="long")
    chosen = interplay([(long,), (FAST, EFFICIENT), (FAST, EFFICIENT)], 8, costs())
    assert chosen == (0, 0, 0)


def test_an_efficient_kernel_that_is_too_long_is_not_taken():
    slow = kernel(1, 7.9, name="slow")
    assert interplay([(FAST, slow)] * 2, 8, costs()) == (0, 0)


def test_the_fast_candidate_is_the_one_that_ends_soonest_here():
    """On one vEU the candidate with less work is fast, whatever comes first."""
    fast, steps = trades((FAST, EFFICIENT), 1, costs())
    assert (fast, steps) == (1, ())


def test_gains_of_an_operator_fall():
    candidates = (kernel(16, 1.0), kernel(6, 2.0), kernel(3, 3.5), kernel(1, 9.0))
    gains = [trade.gain for trade in trades(candidates, 16, costs())[1]]
    assert len(gains) > 1
    assert gains == sorted(gains, reverse=True)


def test_an_empty_wave_has_an_empty_choice():
    assert interplay([], 4, costs()) == ()


@given(graphs(max_operators=6), st.integers(1, 16))
def test_never_worse_than_all_fast_and_near_the_best_choice(made, num_veus):
    """Greedy along the hull overshoots by at most one trade; twice the best is far from it."""
    wave = [op.candidates for op in made.operators]
    chosen = interplay(wave, num_veus, costs())
    reached = estimate([c[n] for c, n in zip(wave, chosen, strict=True)], num_veus)
    fast = [c[trades(c, num_veus, costs())[0]] for c in wave]
    best = min(estimate(kernels, num_veus) for kernels in product(*wave))
    assert reached <= estimate(fast, num_veus)
    assert reached <= 2 * best * (1 + 1e-9)
