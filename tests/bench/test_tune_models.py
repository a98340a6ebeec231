"""tune_models.py: part by part and model by model, saved after each, and resumed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tune_models
from bench.findings import Findings
from bench.tuning_study import PARTS, Network, TuningBudget
from click.testing import CliRunner, Result
from test_pages import MACHINE
from test_tuning_tables import study

from tvm_rammer.errors import TuningError


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is done of which model, in this process and in no time."""
    if find_spec("matplotlib") is None:
        plots = ModuleType("bench.plots")
        plots.plot_tuning = lambda gains, path: path.write_text("<svg/>")
        monkeypatch.setitem(sys.modules, "bench.plots", plots)
    calls: list[tuple[str, str]] = []
    whole = study()

    def part(name: str) -> Callable[[Network, TuningBudget], Any]:
        def made(network: Network, budget: TuningBudget) -> Any:
            calls.append((network.name, name))
            if network.name == "mlp" and name == "tuned":
                raise TuningError("no luck")
            return getattr(whole, name)

        return made

    def find(self: Any, script: str, model: str, function: Any, *arguments: Any) -> None:
        try:
            self.found[model] = function(model, *arguments)
        except TuningError as error:
            self.failed[model] = str(error)
        self.machine = MACHINE

    monkeypatch.setattr(Findings, "find", find)
    for name in PARTS:
        monkeypatch.setitem(PARTS, name, part(name))
    return calls


def run(folder: Path, *arguments: str) -> Result:
    options = ["--quick", "--trials", "40", "--results", str(folder)]
    return CliRunner().invoke(tune_models.main, [*arguments, *options])


def test_all_models_have_a_part_before_the_next_begins(done, tmp_path):
    result = run(tmp_path, "squeezenet", "lstm_8x8x256")
    assert result.exit_code == 0, result.output
    models = ("squeezenet", "lstm_8x8x256")
    assert done == [(model, part) for part in PARTS for model in models]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tuning.json",
        "tuning.md",
        "tuning.svg",
    ]
    assert "| squeezenet | 40 |" in (tmp_path / "tuning.md").read_text()
    assert "Fronts gain 1.100x" in result.output


def test_it_goes_on_where_it_was(done, tmp_path):
    run(tmp_path, "squeezenet", "--parts", "fronts")
    assert "squeezenet" not in (tmp_path / "tuning.md").read_text().split("## Fronts")[0]
    run(tmp_path, "squeezenet")
    assert done == [("squeezenet", part) for part in ("fronts", "tuned", "wrong", "spaces")]
    run(tmp_path, "squeezenet")
    assert len(done) == 4


def test_a_model_that_fails_is_left(done, tmp_path):
    """It says so, the others go on, and the next run tries again."""
    for count in (1, 2):
        result = run(tmp_path, "mlp", "squeezenet")
        assert result.exit_code == 1
        assert "mlp failed: no luck" in result.output
        assert done.count(("mlp", "tuned")) == count
    assert ("mlp", "wrong") not in done
    assert done.count(("squeezenet", "wrong")) == 1
    assert json.loads((tmp_path / "tuning.json").read_text())["failed"] == {"mlp": "no luck"}


def test_a_plot_that_cannot_be_drawn_is_known_before_anything_is_measured(
    done, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "bench.plots", raising=False)
    result = run(tmp_path, "squeezenet")
    assert result.output == (
        "Error: --results draws a plot, and matplotlib is not installed: "
        'pip install ".[bench]", or give --json instead\n'
    )
    assert not done


def test_a_part_that_is_none(done, tmp_path):
    result = run(tmp_path, "squeezenet", "--parts", "tuned,all")
    assert result.output == (
        "Error: --parts: there is no part 'all'; known: tuned, wrong, fronts, spaces\n"
    )


def test_other_trials_are_another_file(done, tmp_path):
    run(tmp_path, "squeezenet")
    result = CliRunner().invoke(
        tune_models.main, ["squeezenet", "--trials", "50", "--results", str(tmp_path)]
    )
    assert "was measured with" in result.output and "give another file" in result.output
