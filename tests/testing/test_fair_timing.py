from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tvm_rammer.errors import InputError
from tvm_rammer.testing.fair_timing import Settings, TimedContender, time_contenders
from tvm_rammer.testing.timing_process import ContenderProcess
from tvm_rammer.testing.timing_results import Outcome, paired_ratio, reference_of

QUICK = Settings(blocks=3, runs=4, warm_up_s=0.01, min_block_s=0.0, timeout_s=30.0)


def fake(function: str, name: str | None = None, **arguments: object) -> TimedContender:
    return TimedContender(name or function, f"fake_contenders:{function}", arguments)


def test_the_slower_contender_has_the_ratio_of_its_time() -> None:
    fast, slow = time_contenders(
        [fake("sleeps", "fast", seconds=0.01), fake("sleeps", "slow", seconds=0.05)], QUICK
    )
    assert [len(block) for block in fast.blocks_ns] == [4, 4, 4]
    assert (fast.status, slow.status) == ("ok", "ok")
    assert fast.affinity == tuple(sorted(os.sched_getaffinity(0)))
    assert fast.set_up_peak_mb > 1
    assert fast.peak_mb > 1
    assert fast.disturbance >= 0
    ratio = paired_ratio(slow, fast)
    assert ratio.low <= ratio.value <= ratio.high
    assert 1.2 < ratio.value < 10.0  # the machine may be busy


def test_whoever_fails_disagrees_or_is_missing_is_reported_and_the_others_are_timed() -> None:
    outcomes = time_contenders(
        [
            fake("raises", during="set-up"),
            fake("sleeps", "wrong", seconds=0.001, value=2.0),
            fake("sleeps", "right", seconds=0.001),
            fake("misses"),
            fake("lacks"),
            fake("dies"),
            fake("sleeps", "right too", seconds=0.001),
        ],
        QUICK,
    )
    assert [(o.status, o.note) for o in outcomes] == [
        ("failed", 'set-up: ValueError: no such kernel in "peer/kernels.py"'),
        ("disagrees", "relative error 1 against right (allowed: 0.001)"),
        ("ok", ""),
        ("missing", "No module named 'a_peer_that_nobody_has'"),
        ("missing", "there is no converter of GreaterOrEqual"),
        ("failed", "set-up: its process ended (SIGABRT): last words"),
        ("ok", ""),
    ]
    assert [len(o.blocks_ns) for o in outcomes] == [0, 0, 3, 0, 0, 0, 3]


def test_a_contender_that_does_not_answer_is_given_up() -> None:
    (outcome,) = time_contenders([fake("hangs")], replace(QUICK, timeout_s=1.0))
    assert (outcome.status, outcome.note) == ("failed", "set-up: no answer within 1 s")


def test_an_interpreter_that_is_not_there_is_a_missing_peer() -> None:
    contender = replace(fake("sleeps", seconds=0.0), python="/nowhere/python")
    (outcome,) = time_contenders([contender], QUICK)
    assert outcome.status == "missing"
    assert outcome.note == "cannot start /nowhere/python: No such file or directory"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU leaves nothing to pin")
def test_a_contender_on_other_cpus_than_everybody_is_reported() -> None:
    (outcome,) = time_contenders([fake("pins")], QUICK)
    cpus = sorted(os.sched_getaffinity(0))
    assert outcome.note == (
        f"warm-up: its threads may use the CPUs {cpus[:1]}, everybody else's {cpus}"
    )


def test_a_slow_contender_gets_fewer_runs_and_stops_at_its_budget() -> None:
    settings = replace(QUICK, max_block_s=0.05, budget_s=0.05)
    (outcome,) = time_contenders([fake("sleeps", seconds=0.03)], settings)
    assert [len(block) for block in outcome.blocks_ns] == [1]


def test_a_fast_contender_gets_more_runs() -> None:
    settings = replace(QUICK, min_block_s=10.0)
    (outcome,) = time_contenders([fake("sleeps", seconds=0.001)], settings)
    assert [len(block) for block in outcome.blocks_ns] == [40, 40, 40]


def test_no_round_begins_after_the_end_of_the_session_but_five_there_are() -> None:
    settings = replace(QUICK, blocks=8, session_s=0.0)
    (outcome,) = time_contenders([fake("sleeps", seconds=0.001)], settings)
    assert len(outcome.blocks_ns) == 5


def test_waiting_before_rounds_takes_nothing_of_the_session() -> None:
    waits: list[float] = []

    def wait() -> float:
        waits.append(60.0)
        return waits[-1]

    settings = replace(QUICK, blocks=8, session_s=1e-3)
    (outcome,) = time_contenders([fake("sleeps", seconds=0.001)], settings, wait=wait)
    assert len(waits) == len(outcome.blocks_ns) == 8


def test_what_a_contender_says_about_itself_is_kept() -> None:
    (outcome,) = time_contenders([fake("tells_facts", colour="red")], QUICK)
    assert (outcome.status, outcome.facts) == ("ok", {"colour": "red"})


def test_environment_variables_are_set_before_the_process_begins() -> None:
    contender = fake("tells_environment", variable="FAKE_VALUE")
    outcomes = time_contenders(
        [
            fake("sleeps", seconds=0.0, value=7.0),
            replace(contender, environment={"FAKE_VALUE": "7"}),
        ],
        QUICK,
    )
    assert [o.status for o in outcomes] == ["ok", "ok"]


def test_a_process_uses_no_time_while_others_have_their_turn(tmp_path: Path) -> None:
    process = ContenderProcess(sys.executable, {}, tmp_path / "log", 30.0)
    try:
        outputs = str(tmp_path / "outputs.npz")
        process.ask(
            {
                "do": "set_up",
                "function": "fake_contenders:spins",
                "arguments": {},
                "outputs": outputs,
            }
        )
        time.sleep(0.05)
        before = cpu_ticks(process.pid)
        time.sleep(0.2)
        assert cpu_ticks(process.pid) == before
    finally:
        process.end()


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_the_outputs_that_most_agree_with_are_the_reference() -> None:
    one, two = [np.ones(3)], [np.full(3, 2.0)]
    assert reference_of([two, one, one], 1e-3) == 1
    assert reference_of([two, one], 1e-3) == 0
    assert reference_of([[np.full(3, np.nan)], one], 1e-3) == 1


def test_an_outcome_survives_json() -> None:
    outcome = Outcome("a", "ok", "", ((1, 2), (3,)), 1.5, 20.0, 9.0, 1e-7, (0, 1), 0.5, {"b": [1]})
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert outcome.quartiles_ms() == (1.5e-6, 2e-6, 2.5e-6)


def test_the_ratio_of_contenders_without_a_common_round_is_refused() -> None:
    with pytest.raises(InputError) as error:
        paired_ratio(Outcome("a", "ok"), Outcome("b", "ok", "", ((1,),)))
    assert str(error.value) == "a and b have no round in common to compare"


def test_settings_without_runs_are_refused() -> None:
    with pytest.raises(InputError) as error:
        Settings(runs=0)
    assert str(error.value) == "10 blocks of 0 runs: both must be at least 1"
