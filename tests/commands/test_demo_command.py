"""``tvm-rammer demo``: its table, its page, and contenders that compute otherwise."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import tvm_rammer
from tvm_rammer.commands import demo_race
from tvm_rammer.commands.demo_race import DemoModel, Race
from tvm_rammer.testing.fair_timing import Settings
from tvm_rammer.testing.models import lstm
from tvm_rammer.testing.timing_results import Outcome

MODEL = DemoModel("tiny", "a small LSTM", lambda: lstm(2, 2, 16), Settings(blocks=2, runs=3))


def outcome(name: str, milliseconds: float, **changes) -> Outcome:
    blocks = ((round(milliseconds * 1e6),) * 3,) * 2
    return replace(Outcome(name, "ok", blocks_ns=blocks, set_up_s=1.0, error=1e-6), **changes)


@pytest.fixture
def raced(library, monkeypatch):
    """Replace the measurement by an outcome for each contender, with some of them changed."""

    def raced(**changes) -> None:
        description = tvm_rammer.load(library).description
        outcomes = (
            outcome("stock TVM", 1000, error=0.0),
            outcome("per-op", 30),
            outcome("sequential", 20),
            replace(outcome("co-scheduled", 15), **changes),
        )
        plans = {"sequential": description, "co-scheduled": description}
        monkeypatch.setattr(demo_race, "demo_models", lambda: (MODEL,))
        monkeypatch.setattr(demo_race, "race", lambda *_: Race(MODEL, outcomes, plans))

    return raced


def test_the_table_compares_with_sequential_and_names_the_reference(call, raced):
    raced()
    result = call("demo")
    assert result.exit_code == 0
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "stock TVM 1 s 50.00x 50.00 to 50.00 6 reference 1.0 s" in rows
    assert "sequential 20 ms 1.00x 1.00 to 1.00 6 1e-06 1.0 s" in rows
    assert "co-scheduled 15 ms 0.75x 0.75 to 0.75 6 1e-06 1.0 s" in rows


def test_the_page_is_written_and_named(call, raced, tmp_path):
    raced()
    result = call("demo", "-o", "page.html")
    assert str(tmp_path / "page.html") in result.stdout
    assert "tiny, a small LSTM" in (tmp_path / "page.html").read_text()


def test_json(call, raced):
    raced()
    document = json.loads(call("demo", "--json").stdout)
    (model,) = document["models"]
    assert document["agreed"] is True
    assert model["reference"] == "stock TVM"
    last = model["contenders"][-1]
    assert (last["median_ms"], last["time_over_sequential"]["value"]) == (15.0, 0.75)


def test_a_contender_that_computes_otherwise_is_a_failure(call, raced):
    raced(status="disagrees", note="relative error 0.5", blocks_ns=(), error=0.5)
    result = call("demo")
    assert result.exit_code == 1
    assert "co-scheduled disagrees: relative error 0.5" in result.stdout


def test_no_outputs_at_all_leave_the_json_valid(call, raced):
    raced(status="failed", note="set-up: x", blocks_ns=(), error=float("inf"))
    document = json.loads(call("demo", "--json").stdout)
    assert document["agreed"] is False
    assert document["models"][0]["contenders"][-1]["median_ms"] is None


def test_unsteady_times_are_said(call, raced):
    raced(blocks_ns=((10_000_000,), (90_000_000,)))
    assert "the times vary a lot: other programs use the cores" in call("demo").stdout


def test_a_page_that_cannot_be_written_is_said_before_the_work(refused):
    line = refused("demo", "-o", "no/page.html")
    assert line == "error: no/page.html: there is no folder no; make it first"


@pytest.mark.slow
def test_contenders_agree_on_a_small_lstm(call, monkeypatch):
    monkeypatch.setattr(demo_race, "demo_models", lambda: (MODEL,))
    document = json.loads(call("demo", "--json").stdout)
    (model,) = document["models"]
    assert document["agreed"] is True
    assert [c["status"] for c in model["contenders"]] == ["ok"] * len(model["contenders"])
    assert all(c["relative_error"] < 1e-5 for c in model["contenders"])
