"""What tune_models.py finds out about operators by their records."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.tuning_study import UNCHANGED, tuned_operators
from test_race_network import kept_by, tasks, winner, write_winners

from tvm_rammer.tuning.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return write_winners(tmp_path)


def test_tuned_operators_run_once_more(database):
    """In a race that had no part in choosing them; what is left out keeps what was recorded."""
    kept_by(database, 1.1, 0.9)
    first, second = tuned_operators(tasks(), Database(database.folder)).values()
    one = tasks()[0]
    assert first.choice == one.task.choice(winner(one)).text
    low, high = first.ratio[1:]
    assert 0 < low <= first.ratio[0] <= high
    assert first.ratio != (0.5, 0.5, 0.5)
    assert (second.choice, second.ratio, second.seconds) == ("untuned", UNCHANGED, 1e-6)
