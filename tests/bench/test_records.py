from __future__ import annotations

from pathlib import Path

import pytest
from bench.records import Record, ResultFile, Setting, load_results, ratio
from timed_records import records, timed

from tvm_rammer.errors import InputError
from tvm_rammer.testing.timing_results import Outcome, Ratio


def test_a_file_survives_saving(tmp_path: Path) -> None:
    failed = Record(Outcome("openvino", "failed", "set-up: no memory"), "one")
    models = {"mlp": records(timed("auto", 1.5, facts={"workers": 2}), failed), "bert_base": {}}
    results = ResultFile(Setting(True, 2, False), {"cpu": "a CPU"}, models)
    path = tmp_path / "r.json"
    results.save(path)
    assert load_results(path) == results
    assert len(path.read_text().splitlines()) < 12


def test_contenders_of_one_session_are_paired() -> None:
    found = ratio(records(timed("auto", 1.0), timed("openvino", 2.0)), "auto", "openvino")
    assert found == Ratio(0.5, 0.5, 0.5)


def test_a_contender_without_a_time_has_no_ratio() -> None:
    failed = Record(Outcome("openvino", "failed", "died"), "one")
    assert ratio(records(timed("auto", 1.0), failed), "auto", "openvino") is None
    assert ratio(records(timed("auto", 1.0)), "auto", "openvino") is None


def test_contenders_of_two_sessions_have_the_ratio_of_their_medians() -> None:
    found = records(timed("auto", 1.0, "one"), timed("openvino", 4.0, "two"))
    assert ratio(found, "auto", "openvino") == Ratio(0.25, 0.25, 0.25)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        load_results(tmp_path / "r.json")
    assert str(error.value) == f"{tmp_path / 'r.json'} cannot be read: No such file or directory"
