"""A library for another CPU is compiled, or refused with a reason; none of its code runs here."""

from __future__ import annotations

import os
import signal
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target, codegen

import tvm_rammer
from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cpu.codegen import shard_compiler
from tvm_rammer.backend.cpu.codegen.guard import runs_here
from tvm_rammer.backend.cpu.host import host_target
from tvm_rammer.errors import DeviceError, LibraryError
from tvm_rammer.machine.target import architecture

TRIPLES = {name: f"{name}-linux-gnu" for name in ("x86_64", "aarch64")}
HOST = architecture(host_target())
#: For other systems and for CPUs that are still to come.
FOREIGN = [
    ("x86_64", "diamondrapids"),
    ("x86_64", "novalake"),
    ("x86_64", "knl"),
    ("aarch64", "neoverse-v2"),
    ("aarch64", "apple-m4"),
]

on_x86 = pytest.mark.skipif(HOST != "x86_64", reason="asks for CPUs of this architecture")


@I.ir_module
class Small:
    """Products, an elementary function, a reduction."""

    @R.function
    def main(x: R.Tensor((4, 16), "float32"), y: R.Tensor((16, 16), "float32")):
        with R.dataflow():
            a = R.matmul(x, y)
            b = R.nn.softmax(a)
            c = R.matmul(b, y)
            R.output(c)
        return c


def target_of(processor: str, mcpu: str) -> dict[str, Any]:
    return {"kind": "llvm", "mtriple": TRIPLES[processor], "mcpu": mcpu, "num-cores": 2}


def known_cpus(processor: str) -> list[str]:
    general = Target({"kind": "llvm", "mtriple": TRIPLES[processor]})
    return [str(name) for name in codegen.llvm_get_cpu_archlist(general)]


@pytest.fixture
def ran(monkeypatch) -> list[int]:
    """The shards whose code was run in this process."""
    numbers: list[int] = []
    address_of = shard_compiler.dispatcher_address

    def recorded(number: int, module: tvm.runtime.Module) -> int:
        numbers.append(number)
        return address_of(number, module)

    monkeypatch.setattr(shard_compiler, "dispatcher_address", recorded)
    return numbers


@pytest.mark.parametrize(("processor", "mcpu"), FOREIGN)
def test_code_for_another_cpu_is_compiled_and_not_run(processor, mcpu, ran):
    target = target_of(processor, mcpu)
    if runs_here(resolve_target(target)):
        pytest.skip("this machine is one")
    library = tvm_rammer.build(Small, target)
    assert ran == []
    with pytest.raises(LibraryError) as refused:
        library.create()
    if processor == HOST:
        assert str(refused.value).startswith(f"this library was compiled for {mcpu}, which needs ")
    else:
        assert str(refused.value).startswith("the library does not run here (")


@on_x86
def test_code_for_a_lesser_cpu_runs_here(ran):
    library = tvm_rammer.build(Small, target_of("x86_64", "x86-64"))
    assert ran
    library.create().run()


@on_x86
@pytest.mark.parametrize("mcpu", ["i386", "pentium4", "yonah", "athlon-xp"])
def test_a_cpu_of_32_bits_is_refused(mcpu):
    with pytest.raises(DeviceError) as refused:
        tvm_rammer.build(Small, target_of("x86_64", mcpu))
    assert str(refused.value) == (
        f"the CPU {mcpu!r} has no 64-bit mode: choose one that has, such as 'x86-64'"
    )


def outcome(processor: str, mcpu: str) -> str:
    """What building for a CPU comes to, in a child of fork: LLVM ends a process for some faults."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(300)  # a child that hangs is killed
        try:
            tvm_rammer.build(Small, target_of(processor, mcpu), policy="sequential")
            said = "compiled"
        except DeviceError as error:
            said = f"refused: {error}"
        except BaseException:
            said = traceback.format_exc()
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return said if status == 0 else f"ended with {status}"


@pytest.mark.slow
@pytest.mark.parametrize("processor", TRIPLES)
def test_every_cpu_that_llvm_knows_is_compiled_for_or_refused(processor):
    names = known_cpus(processor)
    assert len(names) > 50
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        found = dict(zip(names, threads.map(lambda n: outcome(processor, n), names), strict=True))
    wrong = {
        name: said
        for name, said in found.items()
        if said != "compiled" and not said.startswith("refused: ")
    }
    assert wrong == {}
    assert sum(said == "compiled" for said in found.values()) > len(names) / 2
