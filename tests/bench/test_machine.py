from __future__ import annotations

import sys

import pytest
from bench.machine import commands, machine


def test_the_commands_of_a_run_that_goes_on_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "--models", "a b"])
    first = machine("bench.py")
    monkeypatch.setattr(sys, "argv", ["x", "--quick"])
    second = machine("bench.py", machine("bench.py", first))
    day = second["date"][:10]
    assert commands(second) == [
        f"python bench.py --models 'a b'  # {first['date'][:10]}",
        f"python bench.py --quick  # {day}",
    ]
    assert commands({}) == []


def test_a_command_does_not_tell_where_files_lie_here(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["x", "--json", "/home/me/found.json", "--resume", "docs/results/peers.json"]
    monkeypatch.setattr(sys, "argv", given)
    (told,) = machine("bench.py")["commands"]
    assert told == "python bench.py --json found.json --resume docs/results/peers.json"
