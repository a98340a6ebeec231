"""What processes do after a fork: run a library in their first thread, in new ones, in a child."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from new_thread import in_new_thread
from tvm import relax

#: Seconds after which a process that hangs is killed.
LIMIT = 30
RUNS = 20

rng = np.random.default_rng(0)
X, Y = (rng.standard_normal((4, 8)).astype("float32") for _ in range(2))


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


WANTED = (_softmax(X) @ X.T) @ (_softmax(Y) @ Y.T)


def workers() -> int:
    """Workers of the calling thread."""
    return int(tvm.get_global_func("runtime.NumThreads")())


def make_pool() -> None:
    """Give the calling thread a pool, as other code does."""
    cpus = sorted(os.sched_getaffinity(0))
    tvm.get_global_func("runtime.config_threadpool")(-3, len(cpus), list(map(str, cpus)))
    assert workers() == len(cpus)


def run_graph(module: Any) -> int:
    """Run an instance; the workers that it had."""
    for _ in range(RUNS):
        (got,) = module(X, Y)
        np.testing.assert_allclose(got.numpy(), WANTED, 1e-4, 1e-5)
    return int(module.num_workers)


def machine(path: str) -> relax.VirtualMachine:
    """A library under TVM's own loader."""
    return relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())


def run_machine(machine: relax.VirtualMachine) -> int:
    """Run a library under the VM; the workers that it had."""
    for _ in range(RUNS):
        got = machine["main"](tvm.runtime.tensor(X), tvm.runtime.tensor(Y))
        np.testing.assert_allclose(got.numpy(), WANTED, 1e-4, 1e-5)
    return workers()


def here_and_in_a_new_thread(work: Callable[[], int]) -> str:
    """The workers of both."""
    return f"{work()} {in_new_thread(work)}"


def in_children(count: int, work: Callable[[], str]) -> list[str]:
    """What children of fork that run at once say; one that hangs or fails says how it ended."""
    found = []
    for _ in range(count):
        reader, writer = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT)
            try:
                os.write(writer, work().encode())
                os._exit(0)
            finally:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        os.close(writer)
        found.append((child, reader))
    said = []
    for child, reader in found:
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.append(text if status == 0 else f"ended with {status}")
    return said


def load_and_run(path: str) -> int:
    """For a process of multiprocessing."""
    import tvm_rammer

    signal.alarm(LIMIT)
    return run_graph(tvm_rammer.load(path).create())
