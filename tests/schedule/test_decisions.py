from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tvm_rammer.schedule.decisions import Contender, Decision, load_decision, store_decision

DECISION = Decision(
    "estf",
    "measured",
    "estf took 0.80 of the time of sequential",
    (Contender("estf", 1e-3, 1.1e-3, (0.8, 0.7, 0.9)), Contender("sequential", 1.2e-3)),
    (("ios", "too many operators"),),
    1.5,
)


CONTENDER = asdict(DECISION.contenders[0])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path))
    return tmp_path / "decisions"


def stored_file(folder: Path) -> Path:
    """That of the decision ``a``."""
    store_decision("a", DECISION)
    (path,) = folder.iterdir()
    return path


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


def test_another_version_is_ignored_with_a_note_and_kept(folder):
    file = stored_file(folder)
    stored = json.loads(file.read_text())
    stored["entry"] = {"version": "0.0.1/1", "decision": ["of", "another", "form"]}
    file.write_text(json.dumps(stored))
    assert load_decision("a") == (
        None,
        "a stored decision of version 0.0.1/1 was ignored (this is 0.1.0/3)",
    )
    store_decision("b", DECISION)
    assert json.loads(file.read_text()) == stored


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"chosen": "none of them"}, "'none of them' is chosen, but it is no contender"),
        ({"how": "guessed"}, "how is \"guessed\"; it must be one of 'measured', 'stored', 'sim"),
        ({"contenders": [{"name": "estf"}]}, "contenders[0] lacks the key 'predicted'; add it"),
        ({"contenders": [CONTENDER | {"predicted": -1.0}]}, "-1.0 is no time"),
        (
            {"contenders": [CONTENDER | {"predicted": "1"}]},
            'contenders[0].predicted is "1"; it must be a number',
        ),
        ({"contenders": [CONTENDER | {"ratio": [1.0]}]}, "ratio is [1.0]; it must be a list of 3"),
        ({"contenders": 3}, "contenders is 3; it must be a list"),
        ({"left_out": [1]}, "left_out[0] is 1; it must be a list of 2"),
        ({"unknown": 1}, "it has the unknown key 'unknown'; the keys are chosen, how, "),
        ({"seconds": 10**400}, "seconds is 1000000000000000000"),
        ({"reason": []}, "reason is []; it must be a string"),
    ],
)
def test_a_damaged_decision_is_ignored_with_a_warning(folder, change, problem):
    file = stored_file(folder)
    stored = json.loads(file.read_text())
    stored["entry"]["decision"] |= change
    file.write_text(json.dumps(stored))
    with pytest.warns(UserWarning) as caught:
        assert load_decision("a") == (None, "")
    text = str(caught[0].message)
    assert text.startswith(f"{file} cannot be used and is ignored (")
    assert text.endswith("); remove it")
    assert problem in text


@pytest.mark.parametrize(
    "content", ["[]", '{"a": 1}', '{"key": "a", "entry": 1}', '"text"', "{", ""]
)
def test_a_file_of_another_form_holds_no_decision(folder, content):
    stored_file(folder).write_text(content)
    with pytest.warns(UserWarning):
        assert load_decision("a")[0] is None
    store_decision("a", DECISION)
    assert load_decision("a") == (DECISION, "")
