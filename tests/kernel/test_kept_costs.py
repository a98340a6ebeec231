"""Measured costs are kept, and those of another folder can be taken over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_rammer.kernel.measured_costs import adopt_costs, load_costs, store_costs

KEYS = {"a": "key of a", "b": "key of b"}


def store(folder: Path, monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(folder))
    store_costs(KEYS, seconds)


def test_costs_of_another_folder_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path / "theirs", monkeypatch, a=1.0)
    store(tmp_path / "ours", monkeypatch, a=3.0, b=2.0)
    adopt_costs(tmp_path / "theirs")
    assert load_costs(KEYS) == {"a": 1.0, "b": 2.0}


def test_a_folder_without_costs_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path / "ours", monkeypatch, b=2.0)
    adopt_costs(tmp_path / "nowhere")
    assert load_costs(KEYS) == {"b": 2.0}
