"""The page of distances to optimal schedules, and going on from a file."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

SCRIPT = Path(__file__).parents[2] / "python" / "compare_optimal.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("compare_optimal", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["compare_optimal"] = module
    spec.loader.exec_module(module)
    return module


def run(script, path, graphs, *more):
    options = ["--graphs", str(graphs), "--operators", "4", "--veus", "2", "--budget", "300"]
    return CliRunner().invoke(script.main, [*options, "--json", str(path), *more])


def test_a_page_says_how_far_each_policy_is(script, tmp_path):
    path = tmp_path / "optimal.json"
    assert run(script, path, 2).exit_code == 0
    page = path.with_suffix(".md").read_text()
    assert "## 2 vEUs, 2 graphs" in page
    assert all(f"| {policy} |" in page for policy in ("sequential", "estf", script.BEST))


def test_what_is_in_the_file_is_not_done_again(script, tmp_path, monkeypatch):
    path = tmp_path / "optimal.json"
    run(script, path, 2)
    compared = []
    known = script.compare
    monkeypatch.setattr(script, "compare", lambda n, *rest: compared.append(n) or known(n, *rest))
    run(script, path, 3)
    assert compared == [2]
    assert set(json.loads(path.read_text())["found"]["2"]) == {"0", "1", "2"}


def test_a_file_of_another_setting_is_refused(script, tmp_path):
    path = tmp_path / "optimal.json"
    run(script, path, 1)
    refused = run(script, path, 1, "--seed", "1")
    assert refused.exit_code == 1
    assert "give another file" in refused.output


def test_the_best_is_no_farther_than_any_policy(script):
    gaps = script.compare(0, 4, 3, 2_000, 0)
    assert gaps.proved
    assert 0 <= gaps.by_policy[script.BEST] == min(gaps.by_policy.values())
