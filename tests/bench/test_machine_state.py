"""Two measurements of the machine are of one state where its cores stayed where they were."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from bench import machine_state, own_cores
from bench.machine_state import MachineState, measure_state
from bench.own_cores import NearCores, OwnCores, Patience

from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cpu.host import configure_pool
from tvm_rammer.machine import VDevice

NEAR = MachineState(signal=80e-9, transfer_byte=60e-12, together=0.98)


@pytest.mark.parametrize(
    ("after", "same"),
    [
        (MachineState(95e-9, 50e-12, 0.9), True),
        (MachineState(400e-9, 60e-12, 0.98), False),
        (MachineState(80e-9, 240e-12, 0.98), False),
        (MachineState(80e-9, 60e-12, 0.52), False),
    ],
)
def test_states_are_alike_where_signals_data_and_cores_are(after, same):
    assert NEAR.like(after) is same
    assert after.like(NEAR) is same


def test_this_machine_has_a_state():
    _, state = measure_state(vdevice_for(), OwnCores())
    # Other processes may keep the cores too busy: then nothing is known, and it says so.
    assert 0 <= state.together <= 1 + 1e-9
    assert (state.signal > 0) == (state.together > 0)


def test_company_makes_no_core_faster(monkeypatch):
    """The core that was asked alone was disturbed meanwhile: what the others took tells more."""
    cores = OwnCores()
    monkeypatch.setattr(own_cores, "on_one_core", lambda call: 3.0)
    monkeypatch.setattr(own_cores, "on_every_core", lambda call: [1.0, 2.0])
    assert cores.together() == 0.75


def test_cores_that_others_keep_busy_are_not_our_own(monkeypatch):
    monkeypatch.setattr(machine_state, "calibrated", lambda vdevice, refresh: vdevice)
    _, state = measure_state(VDevice("busy", num_veus=2), OwnCores())
    assert not state.own_cores
    assert not state.like(NEAR)


@pytest.fixture
def cores(monkeypatch):
    """Cores whose answers are given, and a clock that goes on by itself."""
    monkeypatch.setattr(own_cores.time, "sleep", lambda seconds: None)
    clock = count()
    monkeypatch.setattr(own_cores.time, "monotonic", lambda: next(clock))
    made = OwnCores()

    def answering(*answers):
        left = [*answers]
        monkeypatch.setattr(made, "together", lambda: left.pop(0))
        return made

    return answering


def test_waiting_ends_when_the_cores_are_our_own(cores):
    assert cores(0.5, 0.6, 0.95).wait(100.0) > 0


def test_waiting_ends_when_the_time_is_up(cores):
    assert cores(*[0.5] * 10).wait(5.0) < 10


def test_cores_are_near_while_they_signal_as_fast_as_when_they_were_calibrated(monkeypatch):
    known = replace(vdevice_for(), point_to_point_seconds=80e-9, calibrated=True)
    monkeypatch.setattr(own_cores, "calibrated", lambda vdevice: known)
    cores = NearCores()
    monkeypatch.setattr(cores, "together", lambda: 0.9)
    signals = [119e-9, 121e-9]
    monkeypatch.setattr(cores, "signal", lambda: signals.pop(0))
    assert cores.are_ours()
    assert not cores.are_ours()


def test_cores_signal_each_other_after_a_plan_for_one_of_them(monkeypatch):
    """The plan leaves a pool of one worker; two that wait for each other need two."""
    monkeypatch.setattr(own_cores, "calibrated", lambda vdevice: vdevice)
    cores = NearCores()
    configure_pool(1)
    assert 0 <= cores.signal() < 1e-3


def test_without_a_worker_for_each_core_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(own_cores, "calibrated", lambda vdevice: vdevice)
    monkeypatch.setattr(own_cores, "configure_pool", lambda workers: workers - 1)
    assert NearCores().signal() == 0.0


def test_patience_is_used_up_and_without_any_nothing_is_asked():
    asked = []

    class Slow:
        def wait(self, seconds):
            asked.append(seconds)
            return min(seconds, 2.0)

    assert Patience(0.0, Slow).wait() == 0.0
    patience = Patience(3.0, Slow)
    assert [patience.wait() for _ in range(3)] == [2.0, 1.0, 0.0]
    assert asked == [3.0, 1.0]
