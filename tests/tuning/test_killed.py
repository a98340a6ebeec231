"""Sessions that are killed, and two at a time."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from test_tune import model, tasks, tried

import tvm_rammer
from tvm_rammer.tuning import model as tuning_model
from tvm_rammer.tuning.database import RECORDS, Database
from tvm_rammer.tuning.journal import read_log

_SESSION = """
import sys
sys.path.insert(0, sys.argv[1])
from test_tune import model
import tvm_rammer
from tvm_rammer.errors import TuningError
from tvm_rammer.tuning import model as tuning_model
tuning_model.least_seconds = lambda *args: 0.0
print("ready", flush=True)
try:
    tvm_rammer.tune(
        model(),
        trials=int(sys.argv[3]),
        work_dir=sys.argv[2],
        watch=lambda told: print(told.trials, flush=True),
    )
except TuningError as error:
    sys.exit(str(error))
"""


def session(folder: Path, trials: int) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", _SESSION, str(Path(__file__).parent), str(folder), str(trials)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def killed(folder: Path, trials: int, seconds: float) -> int:
    """Start a session, kill it so long after its first words, and say how many trials it told."""
    child = session(folder, trials)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    told = [int(line) for line in child.communicate()[0].split()]
    return max(told, default=0)


def check_resumed(folder: Path, kills: int, longest: float, trials: int, seed: int) -> None:
    chance = random.Random(seed)
    reported = 0
    for _ in range(kills):
        reported = max(reported, killed(folder, trials, chance.uniform(0, longest)))
        if (folder / RECORDS).exists():
            assert tried(Database(folder)) >= reported
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning_model, "least_seconds", lambda *args: 0.0)
        database = tvm_rammer.tune(model(), trials=trials, work_dir=folder)
    assert tried(database) == trials
    assert not database.skipped
    lines = [json.loads(line) for line in (folder / RECORDS).read_text().splitlines()]
    times = Counter((workload, str(trace)) for workload, (trace, *_) in lines)
    assert len(lines) == trials
    assert set(times.values()) == {1}
    assert not [path for path in folder.iterdir() if path.name.startswith(".rammer-")]


def test_killed_and_resumed(tmp_path):
    """Nothing that was reported is lost, nothing is measured twice, and the count is right."""
    check_resumed(tmp_path, kills=2, longest=8.0, trials=12, seed=1)


@pytest.mark.slow
def test_killed_at_twenty_moments(tmp_path):
    choices = sum(len(task.choices) for task in tasks())
    check_resumed(tmp_path, kills=20, longest=12.0, trials=choices * 3 // 4, seed=2)


def test_two_at_a_time(tmp_path):
    """One of them is told that the other is there; its records are whole."""
    children = [session(tmp_path, 4) for _ in range(2)]
    said = [child.communicate(timeout=300)[1] for child in children]
    codes = sorted(child.returncode for child in children)
    assert codes == [0, 1]
    assert next(text for text in said if "another" in text).splitlines()[-1] == (
        f"{tmp_path}: another process is tuning into this folder; wait for it, or choose another"
    )
    assert tried(Database(tmp_path)) == 4
    assert {line["trials"] for line in read_log(tmp_path)} == {1, 2, 4}
