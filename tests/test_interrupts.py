"""What a call does with Ctrl-C, and with signals that others have set up."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from tvm_rammer.interrupts import interrupts


def test_an_interrupt_is_noticed():
    with pytest.raises(KeyboardInterrupt), interrupts() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
    assert interrupted()


def test_who_handled_it_before_still_does(monkeypatch):
    told: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: told.append("before"))
    try:
        with suppress(KeyboardInterrupt), interrupts(lambda: told.append("again")):
            with suppress(KeyboardInterrupt), interrupts() as interrupted:
                signal.raise_signal(signal.SIGINT)
            assert interrupted()
            assert told == ["before"]
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert told == ["before", "again", "before"]


def test_a_job_that_was_started_to_ignore_interrupts_ignores_them():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts() as interrupted:
            signal.raise_signal(signal.SIGINT)
            assert not interrupted()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_is_not_pythons_stays(monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    monkeypatch.setattr(signal, "signal", lambda *_: pytest.fail("it was replaced"))
    with interrupts() as interrupted:
        assert not interrupted()
