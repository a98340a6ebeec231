"""The page of distances to optimal schedules, and going on from a file."""

from __future__ import annotations

import json

import compare_optimal
from click.testing import CliRunner


def run(path, graphs, *more):
    options = ["--graphs", str(graphs), "--operators", "4", "--veus", "2", "--budget", "300"]
    return CliRunner().invoke(compare_optimal.main, [*options, "--json", str(path), *more])


def test_a_page_says_how_far_each_policy_is(tmp_path):
    path = tmp_path / "optimal.json"
    assert run(path, 2).exit_code == 0
    page = path.with_suffix(".md").read_text()
    assert "## 2 vEUs, 2 graphs" in page
    assert all(f"| {policy} |" in page for policy in ("sequential", "estf", compare_optimal.BEST))


def test_what_is_in_the_file_is_not_done_again(tmp_path, monkeypatch):
    path = tmp_path / "optimal.json"
    run(path, 2)
    compared = []
    known = compare_optimal.compare
    monkeypatch.setattr(
        compare_optimal, "compare", lambda n, *rest: compared.append(n) or known(n, *rest)
    )
    run(path, 3)
    assert compared == [2]
    assert set(json.loads(path.read_text())["found"]["2"]) == {"0", "1", "2"}


def test_a_file_of_another_setting_is_refused(tmp_path):
    path = tmp_path / "optimal.json"
    run(path, 1)
    refused = run(path, 1, "--seed", "1")
    assert refused.exit_code == 1
    assert "give another file" in refused.output


def test_the_best_is_no_farther_than_any_policy():
    gaps = compare_optimal.compare(0, 4, 3, 2_000, 0)
    assert gaps.proved
    assert 0 <= gaps.by_policy[compare_optimal.BEST] == min(gaps.by_policy.values())
