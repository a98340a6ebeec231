"""A vEU that waits for another one on its own CPU moves to a CPU that it may use."""

from __future__ import annotations

import ctypes
import os
import threading

import pytest
import tvm
from tvm import tirx
from tvm.ir import GlobalVar

from tvm_rammer.backend.cpu.codegen.llvm_text import wait_functions
from tvm_rammer.backend.cpu.host import host_cpu, host_target
from tvm_rammer.machine.target import architecture

CPUS = sorted(host_cpu().cpus)

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="there is no other CPU")


@pytest.fixture(scope="module")
def leave():
    """The compiled function, as a function of the CPU to leave."""
    cpu = tirx.Var("cpu", "int32")
    call = tirx.Evaluate(tirx.call_extern("void", "rammer_leave", cpu))
    text = wait_functions(architecture(host_target()))
    func = tirx.PrimFunc([cpu], tirx.AttrStmt(0, "pragma_import_llvm", text, call))
    func = func.with_attrs({"global_symbol": "leave", "tirx.is_scheduled": True, "s_tir": True})
    return tvm.tirx.build(tvm.IRModule({GlobalVar("leave"): func}), target=host_target())["leave"]


def in_a_thread(allowed: list[int], start: int, leave) -> tuple[int, set[int]]:
    """Where a thread is that may use some CPUs and has left ``start``, and what it may use then."""
    found = []

    def body() -> None:
        os.sched_setaffinity(0, {start})
        os.sched_setaffinity(0, allowed)
        leave(start)
        found.append((ctypes.CDLL(None).sched_getcpu(), os.sched_getaffinity(0)))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_that_may_use_other_cpus_moves(leave):
    """The system may move it back at any time, but not every time."""
    moved = 0
    for start in [*CPUS[:2]] * 10:
        cpu, allowed = in_a_thread(CPUS, start, leave)
        assert allowed == set(CPUS)
        moved += cpu != start
    assert moved >= 10


def test_a_pinned_thread_stays(leave):
    assert in_a_thread(CPUS[:1], CPUS[0], leave) == (CPUS[0], {CPUS[0]})
