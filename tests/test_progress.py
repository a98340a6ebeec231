"""A build tells its steps to whoever watches."""

from __future__ import annotations

import threading

import tvm_rammer
from tvm_rammer.progress import tell, tell_each, watching
from tvm_rammer.testing import models


def test_steps_reach_the_watcher_while_it_watches():
    steps: list[str] = []
    tell("too early")
    with watching(steps.append):
        tell("reading")
        assert list(tell_each("making", ["a", "b"])) == ["a", "b"]
    tell("too late")
    assert steps == ["reading", "making 1/2", "making 2/2"]


def test_items_that_another_thread_takes_are_told_to_the_callers_watcher():
    steps: list[str] = []
    with watching(steps.append):
        items = tell_each("measuring", [1, 2])
    thread = threading.Thread(target=lambda: list(items))
    thread.start()
    thread.join()
    assert steps == ["measuring 1/2", "measuring 2/2"]


def test_a_build_tells_its_steps_in_order(monkeypatch, tmp_path):
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path))
    steps: list[str] = []
    with watching(steps.append):
        tvm_rammer.build(models.lstm(2, 2, 16))
    told = list(dict.fromkeys(step.rstrip("0123456789/ ") for step in steps))
    assert told[:3] == ["reading the model", "preparing the operators", "choosing kernels"]
    assert told[-1] == "linking"
    assert "planning" in told and any(step.startswith("compiling ") for step in told)
