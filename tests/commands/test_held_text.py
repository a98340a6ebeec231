"""What is said while a command works is seen in the end, however the process ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tvm_rammer.testing import models

ROOT = Path(__file__).parents[2]

#: The command line; in the midst of compiling something happens.
COMPILE = """
import ctypes, os, resource, sys
import tvm
from tvm_rammer.runtime import build
from tvm_rammer.cli import main

happens, model, output = sys.argv[1:]
partition = build.partition_module

def inside(*arguments):
    if happens == "llvm gives up":
        a = tvm.te.placeholder((4,), name="a")
        b = tvm.te.compute((4,), lambda i: a[i] + 1)
        target = tvm.target.Target({"kind": "llvm", "mcpu": "i386"})
        tvm.tirx.build(tvm.IRModule({"f": tvm.te.create_prim_func([a, b])}), target=target)
    elif happens == "abort":
        os.write(2, b"a last word\\n")
        os.abort()
    elif happens == "segmentation fault":
        os.write(2, b"a last word\\n")
        ctypes.string_at(0)
    elif happens == "kill":
        os.write(2, b"a last word\\n")
        os.kill(os.getpid(), 9)
    elif happens == "no memory":
        # None is left before other threads compile: one of TVM's destructors there would end
        # the process for a check of its own.
        used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGESIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20),) * 2)
    return partition(*arguments)

build.partition_module = inside
main(["compile", model, "-o", output])
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "lstm.onnx"
    onnx.save(models.lstm(2, 2, 16), path)
    return path


def python(code: str, *arguments: object, before: tuple[str, ...] = (), **variables: str):
    return subprocess.run(
        [*before, sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("happens", "status", "said"),
    [
        ("llvm gives up", 1, "LLVM ERROR: 64-bit code requested on a subtarget that doesn't"),
        pytest.param("abort", -signal.SIGABRT, "a last word\n", marks=pytest.mark.slow),
        ("segmentation fault", -signal.SIGSEGV, "a last word\n"),
        ("kill", -signal.SIGKILL, "a last word\n"),
    ],
)
def test_the_last_words_of_a_compiler_that_dies_are_seen(model, tmp_path, happens, status, said):
    if happens == "llvm gives up" and os.uname().machine != "x86_64":
        pytest.skip("asks for a CPU of this architecture")
    done = python(COMPILE, happens, model, tmp_path / "model.so")
    assert done.returncode == status
    assert said in done.stderr


def test_a_compiler_without_memory_says_so(model, tmp_path):
    done = python(COMPILE, "no memory", model, tmp_path / "model.so")
    assert done.returncode != 0
    assert any(word in done.stderr for word in ("MemoryError", "bad_alloc", "out of memory"))


@pytest.mark.slow
def test_a_folder_for_temporary_files_that_is_missing(model, tmp_path):
    output = tmp_path / "model.so"
    done = python(COMPILE, "nothing", model, output, TMPDIR=str(tmp_path / "nowhere"))
    assert done.returncode == 0, done.stderr
    assert output.exists()


def test_a_folder_for_temporary_files_that_is_full(model, tmp_path):
    folder = tmp_path / "full"
    folder.mkdir()
    inside = 'mount -t tmpfs -o size=4k none "$TMPDIR" && "$@"'
    before = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh")
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            [*before, "true"], env={**os.environ, "TMPDIR": str(folder)}, capture_output=True
        ).returncode
    ):
        pytest.skip("may not mount")
    output = tmp_path / "model.so"
    done = python(COMPILE, "nothing", model, output, before=before, TMPDIR=str(folder))
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


# Without a compiler

WORK = """
import os, sys
from tvm_rammer.commands.native_work import native_work

if sys.argv[1:]:
    sys.executable = sys.argv[1]
with native_work("working"):
    os.write(2, b"[10:20:30] /a/executable.cc:1: Warning: Scope Loaded:\\n")
    os.write(2, b"mind this\\n" * 100_000)
    print("before", file=sys.stderr)
os.write(2, b"after\\n")
"""


def test_what_is_held_back_comes_afterwards_without_noise():
    assert python(WORK).stderr == "mind this\n" * 100_000 + "before\nafter\n"


def test_where_there_is_no_process_to_hold_text_it_is_seen_at_once():
    said = python(WORK, "/no/such/python").stderr
    assert said.startswith("[10:20:30]")
    assert said.endswith("mind this\nbefore\nafter\n")


def test_an_interrupt_loses_nothing():
    code = """
import os, signal
from tvm_rammer.commands.native_work import native_work

with native_work("working"):
    os.write(2, b"a last word\\n")
    os.killpg(0, signal.SIGINT)
    signal.pause()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert "a last word\n" in child.communicate(timeout=60)[1]
