"""What heeding contention gains is the difference between two plans."""

from __future__ import annotations

from dataclasses import replace

import ablate_contention
from fuzzing.random_graphs import random_graph

from tvm_rammer.schedule import CostModel

COSTS = CostModel(point_to_point=1e-7, barrier=3e-7, launch=1e-6)


def test_where_nobody_draws_much_there_is_nothing_to_heed():
    plenty = replace(COSTS, bandwidth=1e18)
    found = ablate_contention.ablation(
        "any", ablate_contention.HERE, 4, [random_graph(0, "mixed", 20)], plenty
    )
    assert found.heedless == found.heeding
    assert found.gain == 1


def test_where_bandwidth_is_scarce_the_policy_is_no_longer_than_either():
    scarce = replace(COSTS, bandwidth=1e9)
    graphs = [random_graph(seed, "wide", 30) for seed in range(3)]
    for graph in graphs:
        found = ablate_contention.ablation("any", ablate_contention.HERE, 4, [graph], scarce)
        assert found.estf <= min(found.heedless, found.heeding)
    both = ablate_contention.ablation("any", ablate_contention.HERE, 4, graphs, scarce)
    assert both.heedless != both.heeding


def test_machines_with_fewer_threads_are_left_out():
    assert ablate_contention._costs("ryzen-5950x", 64) is None
    assert ablate_contention._costs("ryzen-5950x", 16) is not None


def test_a_page_has_what_the_file_has(tmp_path):
    found = [ablate_contention.Ablation("net", ablate_contention.HERE, 16, 2e-6, 1e-6, 1e-6)]
    path = tmp_path / "contention.json"
    ablate_contention._write(path, found)
    assert ablate_contention._read(path) == found
    page = path.with_suffix(".md").read_text()
    assert "gains up to 100.0% and loses up to 0.0%" in page
    assert "| net | here | 16 | 2.0 | 1.0 | 1.0 | 2.000x |" in page
