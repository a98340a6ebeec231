from __future__ import annotations

from itertools import groupby

import pytest
from graphs import US, costs

from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.schedule import estf, locality, simulate, synchronise
from tvm_rammer.schedule.list_schedule import ListSchedule

KIB = 1024


def network(*operators, weight_bytes=128 * KIB):
    """Operators as (predecessors, weight or None, microseconds); buffer n is the result of n."""
    weights = sorted({weight for _, weight, _ in operators if weight is not None})
    buffers = [Buffer(f"result{n}", (64,), "float32", "arena") for n in range(len(operators))]
    buffers += [Buffer(name, (weight_bytes // 4,), "float32", "constant") for name in weights]
    made = []
    for number, (before, weight, time) in enumerate(operators):
        constants = [] if weight is None else [len(operators) + weights.index(weight)]
        reads = [*before, *constants]
        kernel = RKernel(f"body{time}", 4, (*["read"] * len(reads), "write"), time / 4 * US)
        made.append(Operator(f"op{number}", (kernel,), (*reads, number)))
    return OperatorGraph("test", tuple(buffers), tuple(made))


def recurrent(layers, steps):
    """Each cell: an input product and a state product, then their sum."""
    operators, state = [], {}
    for layer in range(layers):
        for step in range(steps):
            inputs = [state[layer - 1, step]] if layer else []
            before = [state[layer, step - 1]] if step else []
            product = len(operators)
            operators.append((inputs, f"w{layer}", 4.0))
            operators.append((before, f"u{layer}", 4.0))
            operators.append(([product, product + 1], None, 0.2))
            state[layer, step] = product + 2
    return network(*operators)


def weights_in_order(made, veu):
    """The weight of each operator that a vEU runs, None left out."""
    found = []
    for placed in veu:
        arguments = made.operators[placed.operator].arguments
        found += [b for b in arguments if made.buffers[b].space == "constant"]
    return found


def loads(made, placement, fit=4):
    """Weights that have to be loaded if the last ``fit`` stay in each vEU's cache."""
    count = 0
    for veu in placement.veus:
        cache = []
        for weight in weights_in_order(made, veu):
            count += weight not in cache
            cache = [weight, *(w for w in cache if w != weight)][:fit]
    return count


def test_a_weight_serves_all_ready_steps_before_the_next_weight():
    made = network(*[([], f"w{n % 3}", 1.0) for n in range(12)])
    (only,) = locality(made, 1, costs()).veus
    assert [len(list(same)) for _, same in groupby(weights_in_order(made, only))] == [4, 4, 4]


def test_a_weight_stays_with_its_veu():
    made = network(*[([], f"w{n % 4}", 4.0) for n in range(32)])
    placement = locality(made, 4, costs())
    assert sorted(len(set(weights_in_order(made, veu))) for veu in placement.veus) == [1, 1, 1, 1]


def test_a_chain_stays_on_one_veu():
    chains = [*[([], None, 4.0)] * 2, *(([n], None, 4.0) for n in range(20))]
    placement = locality(network(*chains), 2, costs())
    # The last ones share the vEUs, so that both end at the same time.
    kept = [[p.operator % 2 for p in veu if p.operator < 16] for veu in placement.veus]
    assert sorted(kept) == [[0] * 8, [1] * 8]


def test_an_idle_veu_takes_over_from_one_that_is_far_behind():
    """All operators read one weight; the makespan counts for more than its home."""
    made = network(*[([], "w", 4.0)] * 16)
    timeline = simulate(synchronise(made, locality(made, 2, costs())), costs())
    assert timeline.makespan <= (32 + 4 + 1) * US


def test_urgent_is_what_the_makespan_depends_on():
    """A chain of six takes longer than all work on eight vEUs; two others have time."""
    chain = [([], "v", 4.0), *(([n], "v", 4.0) for n in range(2, 7))]
    made = network(([], "w", 4.0), ([], "w", 4.0), *chain)
    schedule = ListSchedule(made, 8, costs())
    schedule.start()
    assert [schedule.is_urgent(n, 0.0) for n in range(3)] == [False, False, True]


def test_a_cache_that_is_too_small_is_not_counted_on():
    """Weights larger than the second-level cache: the longest path decides alone."""
    made = network(*[([], f"w{n % 3}", 1.0) for n in range(12)], weight_bytes=1 << 20)
    (only,) = locality(made, 1, costs()).veus
    assert [p.operator for p in only] == list(range(12))


@pytest.mark.parametrize("num_veus", [1, 2])
def test_recurrent_networks_load_fewer_weights(num_veus):
    """Than by earliest start, and take hardly longer (not counting what the cache saves)."""
    made = recurrent(8, 16)
    near, soon = (policy(made, num_veus, costs()) for policy in (locality, estf))
    assert loads(made, near) <= 0.7 * loads(made, soon)
    times = [simulate(synchronise(made, p), costs()).makespan for p in (near, soon)]
    assert times[0] <= 1.1 * times[1]
