"""Simulated against measured plans, each simulated with the kernels of before and after."""

from __future__ import annotations

import json
from dataclasses import replace

import check_simulator
import pytest
from check_simulator import Sample
from click.testing import CliRunner

SAMPLE = Sample("m", "r", "estf", simulated=1.1, drift=1.0, measured=1.0, fastest=0.9)


@pytest.fixture
def once(monkeypatch):
    """One attempt, which waits for nobody."""
    monkeypatch.setattr(check_simulator, "_ATTEMPTS", 1)
    monkeypatch.setattr(check_simulator, "_SESSIONS", 1)
    monkeypatch.setattr(check_simulator, "_PATIENCE_SECONDS", 0.0)


def test_every_plan_is_simulated_with_the_kernels_of_before_and_after(once, monkeypatch, tmp_path):
    """After the plans, kernels take three times as long as before: twice in the mean."""
    real, rounds = check_simulator.RegionCompiler.measured, []

    def measured(compiler, graphs, refresh=False):
        rounds.append(refresh)
        if len(rounds) == 1:
            first.update(real(compiler, graphs, refresh))
        # A millisecond a tile: waits are nothing beside it, however busy the machine is.
        seconds = 1e-3 if len(rounds) == 1 else 3e-3
        return {
            symbol: graph.with_costs(
                {
                    kernel.name: seconds
                    for operator in graph.graph.operators
                    for kernel in operator.candidates
                }
            )
            for symbol, graph in first.items()
        }

    first = {}
    monkeypatch.setattr(check_simulator.RegionCompiler, "measured", measured)
    path = tmp_path / "samples.json"
    options = ["--models", "squeezenet", "--policies", "sequential,estf", "--tiny"]
    result = CliRunner().invoke(check_simulator.main, [*options, "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert rounds == [True, True]
    samples = json.loads(path.read_text())
    assert [sample["policy"] for sample in samples] == ["sequential", "estf"]
    for sample in samples:
        assert 2.5 < sample["drift"] <= 3
        assert not sample["settled"]
        assert 0 < sample["fastest"] <= sample["measured"]
    assert "median error" in result.output


def test_a_machine_that_drifts_is_not_settled():
    assert SAMPLE.error == pytest.approx(0.1)
    for drift, same in ((1.0, True), (1.04, True), (0.96, True), (1.06, False), (0.94, False)):
        assert replace(SAMPLE, drift=drift).same_kernels == same
