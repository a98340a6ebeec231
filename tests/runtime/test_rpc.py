"""A client uploads a library over TVM's RPC and drives it where this package is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tvm
from close import assert_outputs_close
from small_graphs import tensors
from small_models import BLOCKED, environment
from tvm import relax, rpc

import tvm_rammer
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing import models
from tvm_rammer.testing.reference import random_inputs

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to link")

LSTM = models.lstm(2, 2, 16)
INPUTS = random_inputs(LSTM)
WANTED = run_onnxruntime(LSTM, INPUTS)

# What tvm.rpc.Server runs in its process; itself it needs cloudpickle to start that.
SERVER = f"""
{BLOCKED}
from tvm.rpc.server import PopenRPCServerState

if __name__ == "__main__":
    server = PopenRPCServerState("127.0.0.1", 9091, 9199)
    print(server.port, flush=True)
    server.thread.join()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tvm_rammer.build(LSTM).export_library(tmp_path_factory.mktemp("rpc") / "lstm.so")


@pytest.fixture
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    script = tmp_path_factory.mktemp("server") / "server.py"
    script.write_text(SERVER)
    server = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert server.stdout is not None
    yield int(server.stdout.readline())
    os.killpg(server.pid, 15)
    server.wait(10)


def drive(session: Any, library: Path) -> relax.VirtualMachine:
    """Upload, load and run; check the outputs."""
    session.upload(str(library))
    device = session.cpu(0)
    machine = relax.VirtualMachine(session.load_module(library.name), device)
    machine.set_input("main", *(tvm.runtime.tensor(value, device) for value in INPUTS.values()))
    for _ in range(3):
        machine.invoke_stateful("main")
    assert_outputs_close(tensors([machine.get_outputs("main")]), WANTED)
    return machine


def test_over_a_local_session(library):
    drive(rpc.LocalSession(), library)


def test_over_loopback(library, port):
    """A server serves one session at a time, in a process of its own."""
    session = rpc.connect("127.0.0.1", port, session_timeout=60)
    machine = drive(session, library)
    times = machine.time_evaluator("invoke_stateful", session.cpu(0), number=10)("main")
    assert 0 < times.mean < 1
    planned = session.load_module(library.name)["tvm_rammer_num_veus"]()
    assert session.get_function("runtime.NumThreads")() == planned
