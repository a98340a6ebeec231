from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from tvm_rammer.schedule.decisions import Contender, Decision, load_decision, store_decision
from tvm_rammer.vdevice.cache import load_json, store_json

DECISION = Decision(
    "estf",
    "measured",
    "estf took 0.80 of the time of sequential",
    (Contender("estf", 1e-3, 1.1e-3, (0.8, 0.7, 0.9)), Contender("sequential", 1.2e-3)),
    (("ios", "too many operators"),),
    1.5,
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path))


def test_what_is_stored_comes_back():
    store_decision("a", DECISION)
    assert load_decision("a") == (DECISION, "")
    assert load_decision("b") == (None, "")


def test_plain_data_and_back():
    assert Decision.from_dict(json.loads(json.dumps(asdict(DECISION)))) == DECISION


def test_the_last_of_two_decisions_counts():
    store_decision("a", DECISION)
    store_decision("a", Decision("estf", "measured", "again", DECISION.contenders))
    found, _ = load_decision("a")
    assert found is not None and found.reason == "again"


def test_another_version_is_ignored_with_a_note():
    store_decision("a", DECISION)
    stored = load_json("decisions.json")
    stored["a"]["version"] = "0.0.1/1"
    store_json("decisions.json", stored)
    assert load_decision("a") == (
        None,
        "a stored decision of version 0.0.1/1 was ignored (this is 0.1.0/1)",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"chosen": "none of them"},
        {"how": "guessed"},
        {"contenders": [{"name": "estf", "predicted": float("nan"), "measured": None}]},
        {"contenders": [{"name": "estf", "predicted": -1.0, "measured": None, "ratio": None}]},
        {"contenders": [{"name": "estf", "predicted": "1", "measured": None, "ratio": None}]},
        {"contenders": 3},
        {"left_out": [1]},
        {"unknown": 1},
    ],
)
def test_a_damaged_decision_is_ignored_with_a_note(change):
    store_decision("a", DECISION)
    stored = load_json("decisions.json")
    stored["a"]["decision"] |= change
    store_json("decisions.json", stored)
    assert load_decision("a") == (None, "a stored decision that cannot be read was ignored")


@pytest.mark.parametrize("content", [[], {"a": 1}, {"a": {"decision": 1}}, "text"])
def test_a_file_of_another_form_holds_no_decision(content):
    store_json("decisions.json", content)
    assert load_decision("a")[0] is None
    store_decision("a", DECISION)
    assert load_decision("a") == (DECISION, "")
