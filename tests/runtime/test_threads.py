"""Instances of one library run in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from small_models import Sorting, floats, sorting
from tvm import relax

import tvm_rammer
from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.runtime.graph_module import GraphModule
from tvm_rammer.runtime.library import Library
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing import models
from tvm_rammer.testing.reference import random_inputs

CORES = host_cpu().cores
RUNS = 300

LSTM = models.lstm(2, 3, 16)


@pytest.fixture(scope="module")
def lstm() -> Library:
    return tvm_rammer.build(LSTM)


def in_threads(*work: Callable[[], Any]) -> list[Any]:
    """The results of some functions that start together, each in a thread of its own."""
    results: dict[int, Any] = {}
    start = threading.Barrier(len(work))

    def body(number: int) -> None:
        start.wait()
        results[number] = work[number]()

    threads = [threading.Thread(target=body, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == len(work), "a thread failed"
    return [results[number] for number in range(len(work))]


def worst_error(module: GraphModule, inputs: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest error of any output in many runs."""
    worst = 0.0
    for _ in range(RUNS):
        outputs = module(*inputs)
        errors = (abs(got.numpy() - want).max() for got, want in zip(outputs, wanted, strict=True))
        worst = max(worst, *errors)
    return worst


def test_two_instances_run_at_once(lstm):
    def work(seed: int) -> Callable[[], float]:
        inputs = random_inputs(LSTM, seed)
        wanted = run_onnxruntime(LSTM, inputs)
        return lambda: worst_error(lstm.create(), list(inputs.values()), wanted)

    assert max(in_threads(work(0), work(1))) < 1e-5


def test_two_instances_run_at_once_under_the_vm():
    library = tvm_rammer.build(Sorting)

    def work(seed: int) -> Callable[[], float]:
        x, y = floats(4, 8, seed=seed), floats(600, 8, seed=seed + 10)
        return lambda: worst_error(library.create(), [x, y], sorting(x, y))

    assert max(in_threads(work(0), work(1))) < 1e-5


def test_two_virtual_machines_of_one_executable_run_at_once():
    executable = tvm_rammer.build(LSTM).executable

    def work(seed: int) -> Callable[[], float]:
        inputs = random_inputs(LSTM, seed)
        (wanted,) = run_onnxruntime(LSTM, inputs)

        def run() -> float:
            machine = relax.VirtualMachine(executable, tvm.cpu())
            values = [tvm.runtime.tensor(value) for value in inputs.values()]
            errors = (abs(machine["main"](*values).numpy() - wanted).max() for _ in range(RUNS))
            return max(errors)

        return run

    assert max(in_threads(work(0), work(1))) < 1e-5


def test_an_instance_moves_from_thread_to_thread(lstm):
    module = lstm.create()
    inputs = random_inputs(LSTM)
    (wanted,) = run_onnxruntime(LSTM, inputs)

    def work() -> float:
        (got,) = module(*inputs.values())
        return float(abs(got.numpy() - wanted).max())

    errors = [work(), *(in_threads(work)[0] for _ in range(4)), work()]
    assert max(errors) < 1e-5


def test_every_thread_has_its_workers(lstm):
    module = lstm.create()

    def work() -> int:
        module.run()
        return module.num_workers

    assert in_threads(work) == [min(module.num_veus, CORES)]
