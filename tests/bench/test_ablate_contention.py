"""What heeding contention gains is the difference between two plans."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tvm_rammer.schedule import CostModel
from tvm_rammer.testing.random_graphs import random_graph

SCRIPT = Path(__file__).parents[2] / "python" / "ablate_contention.py"
COSTS = CostModel(point_to_point=1e-7, barrier=3e-7, launch=1e-6)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("ablate_contention", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["ablate_contention"] = module
    spec.loader.exec_module(module)
    return module


def test_where_nobody_draws_much_there_is_nothing_to_heed(script):
    plenty = replace(COSTS, bandwidth=1e18)
    found = script.ablation("any", script.HERE, 4, [random_graph(0, "mixed", 20)], plenty)
    assert found.heedless == found.heeding
    assert found.gain == 1


def test_where_bandwidth_is_scarce_the_policy_is_no_longer_than_either(script):
    scarce = replace(COSTS, bandwidth=1e9)
    graphs = [random_graph(seed, "wide", 30) for seed in range(3)]
    for graph in graphs:
        found = script.ablation("any", script.HERE, 4, [graph], scarce)
        assert found.estf <= min(found.heedless, found.heeding)
    both = script.ablation("any", script.HERE, 4, graphs, scarce)
    assert both.heedless != both.heeding


def test_machines_with_fewer_threads_are_left_out(script):
    assert script._costs("ryzen-5950x", 64) is None
    assert script._costs("ryzen-5950x", 16) is not None


def test_a_page_has_what_the_file_has(script, tmp_path):
    found = [script.Ablation("net", script.HERE, 16, 2e-6, 1e-6, 1e-6)]
    path = tmp_path / "contention.json"
    script._write(path, found)
    assert script._read(path) == found
    page = path.with_suffix(".md").read_text()
    assert "gains up to 100.0% and loses up to 0.0%" in page
    assert "| net | here | 16 | 2.0 | 1.0 | 1.0 | 2.000x |" in page
