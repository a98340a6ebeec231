"""Ceilings are measured once, kept, and reached by instructions of the target's width."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, replace
from threading import Barrier

import pytest

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.backend.cpu.host import measure_ceilings as module
from tvm_rammer.backend.cpu.host.ceiling_text import multiply_adds
from tvm_rammer.backend.cpu.host.measure_ceilings import (
    CeilingsTogether,
    ceilings,
    chains,
    compile_loops,
)
from tvm_rammer.backend.cpu.host.one_core import on_every_core
from tvm_rammer.machine.ceilings import Ceilings, memory_level

TARGET = resolve_target()
HOST = vdevice_for(TARGET)
LOW, HIGH = Ceilings(1e9, 4e9, 3e9, 2e9, 1e9), Ceilings(2e9, 3e9, 3e9, 2e9, 5e9)

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def measurements(monkeypatch) -> list[Ceilings]:
    """What measuring finds, one after the other."""
    coming = [LOW, HIGH]
    monkeypatch.setattr(module, "measure", lambda target, vdevice: coming.pop(0))
    return coming


def test_what_was_measured_is_plausible():
    """Loose, as the machine may be busy: speeds of a computer, and of nothing else."""
    found = ceilings(TARGET, HOST)
    assert 1e9 < found.flops < 1e13
    assert all(1e8 < speed < 1e13 for speed in (found.l1, found.l2, found.l3, found.dram))


def test_measured_once_and_kept(measurements):
    assert ceilings(TARGET, HOST) == LOW
    assert ceilings(TARGET, HOST) == LOW
    assert measurements == [HIGH]


def test_the_better_of_two_measurements_is_kept(measurements):
    ceilings(TARGET, HOST)
    best = Ceilings(2e9, 4e9, 3e9, 2e9, 5e9)
    assert ceilings(TARGET, HOST, refresh=True) == best
    assert ceilings(TARGET, HOST) == best


def test_all_cores_together_add_up(monkeypatch):
    cores = len(os.sched_getaffinity(0))
    monkeypatch.setattr(module, "_compile", lambda target, vdevice: (None, {}))
    memories = []

    def measured(vdevice, compute, reads, memory, per_second):
        memories.append(id(memory))
        return LOW

    monkeypatch.setattr(module, "_measured", measured)
    want = Ceilings(**{name: cores * speed for name, speed in asdict(LOW).items()})
    together = CeilingsTogether(TARGET, HOST)
    assert [together.measure(), together.measure()] == [want, want]
    # Each core reads memory of its own, the same ones every time.
    assert len(set(memories)) == cores and len(memories) == 2 * cores


def test_what_is_usual_is_no_more_than_the_best(monkeypatch):
    """Of calls that take 1, 2 and 4 seconds the best is 1 a second, and the usual half of that."""
    monkeypatch.setattr(module, "repetitions", lambda run, seconds: 1)
    monkeypatch.setattr(module, "_calls", lambda run, count, seconds: [4.0, 1.0, 2.0])
    assert module._best_per_second(lambda rounds: None) == 1.0
    assert module._usual_per_second(lambda rounds: None) == 0.5


def test_every_core_works_at_the_same_time():
    cores = os.sched_getaffinity(0)
    meeting = Barrier(len(cores))

    def work():
        meeting.wait(timeout=60)  # one after the other they would never meet
        return os.sched_getaffinity(0)

    assert on_every_core(work) == [{core} for core in sorted(cores)]
    assert os.sched_getaffinity(0) == cores


def test_another_vector_width_has_other_ceilings(measurements):
    assert ceilings(TARGET, HOST) == LOW
    assert ceilings(TARGET, replace(HOST, vector_bytes=8)) == HIGH


def test_what_is_not_this_machine_has_no_ceilings(measurements):
    assert ceilings(TARGET, replace(HOST, host=False)) is None
    assert len(measurements) == 2


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ([], "it is []; it must be an object"),
        ({"flops": 1e9}, "it lacks the key 'l1'; add it"),
        ({**asdict(LOW), "l3": 0.0}, "are no ceilings of a core: "),
        ({**asdict(LOW), "l3": None}, "l3 is null; it must be a number"),
    ],
)
def test_damaged_ceilings_are_measured_anew(empty_cache, measurements, damage, problem):
    ceilings(TARGET, HOST)
    (file,) = empty_cache.iterdir()
    file.write_text(json.dumps(dict.fromkeys(json.loads(file.read_text()), damage)))
    with pytest.warns(UserWarning) as caught:
        assert ceilings(TARGET, HOST) == HIGH
    assert str(caught[0].message).startswith(f"{file}: 1 measurement cannot be used")
    assert problem in str(caught[0].message)


def test_the_level_is_the_nearest_memory_that_holds_the_working_set():
    sizes = [1, HOST.l2_bytes, HOST.l2_bytes + 1, HOST.l3_bytes, HOST.l3_bytes + 1]
    levels = [memory_level(size, HOST) for size in sizes]
    assert levels == ["l2", "l2", "l3", "l3", "dram"]
    assert LOW.bandwidth(1, HOST) == LOW.l2
    assert LOW.bandwidth(HOST.l3_bytes + 1, HOST) == LOW.dram


@pytest.mark.parametrize(
    ("target", "multiply_add", "load"),
    [
        ({"mtriple": "x86_64-linux-gnu", "mcpu": "skylake-avx512"}, "vfmadd", "%zmm"),
        ({"mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"}, "vfmadd", "%ymm"),
        ({"mtriple": "x86_64-linux-gnu", "mcpu": "x86-64"}, "mulps", "%xmm"),
        ({"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}, "fmla", "v0.4s"),
    ],
)
def test_the_loops_use_the_vectors_of_the_target(target, multiply_add, load):
    """The loops of every architecture compile, on whatever machine, to its widest vectors."""
    resolved = resolve_target({"kind": "llvm", "num-cores": 64, **target})
    vdevice = vdevice_for(resolved)
    assembly = compile_loops(resolved, vdevice).inspect_source("asm")
    lines = [line for line in assembly.splitlines() if multiply_add in line]
    assert len(lines) == multiply_adds(chains(vdevice))  # what LLVM saves would count as done
    assert load in assembly


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86")
def test_narrower_vectors_of_this_machine_are_measured():
    narrow = resolve_target({"kind": "llvm", "mcpu": "x86-64"})
    assert ceilings(narrow, vdevice_for(narrow)).flops > 1e8
