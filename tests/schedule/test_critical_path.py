"""The critical path is a chain of predecessors back from the rTask that ends last."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from timelines import random_plan, simulated, two_branches

from tvm_rammer.rprogram import Wait
from tvm_rammer.schedule import Span, Timeline
from tvm_rammer.schedule.critical_path import critical_chain
from tvm_rammer.view import critical_path


def test_goes_through_the_slower_branch():
    program = two_branches()
    assert critical_chain(program, simulated(program)) == [(1, 0), (0, 1)]


def test_follows_the_times_and_not_the_model():
    spans = (Span(0, 0, 0, 0.0, 9.0), Span(1, 0, 1, 0.0, 2.0), Span(0, 1, 2, 9.0, 10.0))
    assert critical_path(two_branches(), Timeline(spans, "measured")) == {(0, 0), (0, 1)}


def test_of_nothing_is_empty():
    assert critical_path(two_branches(), Timeline((), "measured")) == set()


def test_ends_even_if_waits_form_a_cycle():
    program = two_branches()
    first = replace(program.veus[0][0], waits=(Wait(1, 2),))
    cyclic = replace(program, veus=((first, program.veus[0][1]), program.veus[1]))
    assert critical_path(cyclic, simulated(program)) <= {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("seed", range(20))
def test_of_random_plans_has_no_gap_longer_than_the_synchronisation(seed):
    """So its length is the makespan: nothing but the path must get shorter for an earlier end."""
    program = random_plan(np.random.default_rng(seed))
    timeline = simulated(program)
    spans = {(s.veu, s.position): s for s in timeline.spans}
    chain = [spans[place] for place in critical_chain(program, timeline)]
    assert chain[-1].stop == timeline.makespan
    assert chain[0].start <= 1e-6 * (1 + 1e-9)
    for before, after in pairwise(chain):
        assert -1e-12 <= after.start - before.stop <= 0.1e-6 * (1 + 1e-6)
