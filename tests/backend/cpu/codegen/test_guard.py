"""A library says which CPU it needs and gives its threads workers, with TVM's runtime alone."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tvm
from new_thread import in_new_thread
from tvm.target import Target

from tvm_rammer.backend.cpu.codegen.guard import (
    ARM_FEATURES,
    X86_FEATURES,
    build_guard,
    needed_features,
)
from tvm_rammer.backend.cpu.host import host_cpu, host_target
from tvm_rammer.machine.target import architecture

CPUS = sorted(host_cpu().cpus)
WORKERS = len(CPUS)
X86 = architecture(host_target()) == "x86_64"
RUNTIME = Path(tvm.__file__).parent / "lib" / "libtvm_runtime.so"

several_cpus = pytest.mark.skipif(WORKERS < 2, reason="TVM's default is all that there is")
on_x86 = pytest.mark.skipif(not X86, reason="reads features by CPUID")

# What a process with tvm_ffi and TVM's runtime alone makes of each thread's actions.
SESSION = """
import ctypes, json, os, sys, threading
import tvm_ffi

kind, path, runtime, cpus, *threads = sys.argv[1:]
cpus = json.loads(cpus)
os.sched_setaffinity(0, cpus)  # the parent may have been pinned
if kind == "library":
    ctypes.CDLL(runtime, ctypes.RTLD_GLOBAL)
    guard = tvm_ffi.load_module(path)
    assert not {"tvm", "tvm_rammer"} & set(sys.modules)
else:
    from tvm_rammer.backend.cpu.codegen.guard import build_guard
    from tvm_rammer.backend.cpu.host import host_target
    guard = build_guard("guard", host_target(), len(cpus))

num_threads = tvm_ffi.get_global_func("runtime.NumThreads")
configure = tvm_ffi.get_global_func("runtime.config_threadpool")

shared = (ctypes.c_int64 * 4)(8, 4, 0, 0)

def fail(*arguments):
    raise ValueError("no threads left")

actions = {
    "guard": guard["guard"],
    "skip": guard["guard_skip"],
    "check": guard["guard_check"],
    "share": lambda: guard["guard_share"](ctypes.addressof(shared)),
    "touch": num_threads,
    "lower": lambda: configure(-3, 1, list(map(str, cpus))),
    "pin": lambda: os.sched_setaffinity(0, cpus[-1:]),
    "break": lambda: tvm_ffi.register_global_func("runtime.config_threadpool", fail, override=True),
}

def session(names):
    try:
        for name in names.split():
            actions[name]()
        results.append([num_threads(), sorted(os.sched_getaffinity(0))])
    except RuntimeError as error:
        results.append(str(error))

results = []
for number, names in enumerate(threads):
    if number == 0:
        session(names)
    else:
        thread = threading.Thread(target=session, args=(names,))
        thread.start()
        thread.join()
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guard") / "guard.so"
    build_guard("guard", host_target(), WORKERS).export_library(str(path))
    return path


def sessions(path: Path, *threads: str, kind: str = "library", **variables: str) -> list[Any]:
    """The workers and CPUs of the main thread, then of new threads, after each one's actions."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "TVM_RAMMER_CONFIGURE_POOL"):
        environment.pop(name, None)
    child = subprocess.run(
        [sys.executable, "-c", SESSION, kind, path, RUNTIME, json.dumps(CPUS), *threads],
        env=environment | variables,
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def default_workers(path: Path) -> int:
    return sessions(path, "")[0][0]


def error_of(module: Any, symbol: str) -> str | None:
    def attempt() -> str | None:
        try:
            module[symbol]()
        except RuntimeError as error:
            return str(error)
        return None

    return in_new_thread(attempt)


# --- The pool ---


@several_cpus
@pytest.mark.parametrize("kind", ["library", "jit"])
def test_every_thread_gets_its_workers_and_keeps_its_cpus(library, kind):
    assert sessions(library, "guard", "guard guard", kind=kind) == [[WORKERS, CPUS]] * 2


@several_cpus
def test_a_thread_with_fewer_cpus_gets_no_more_workers_and_stays_there(library):
    assert sessions(library, "guard", "pin guard")[1] == [1, CPUS[-1:]]


@several_cpus
def test_number_of_workers_that_the_user_sets_stays(library):
    assert sessions(library, "guard", TVM_NUM_THREADS="1")[0][0] == 1
    assert sessions(library, "guard", TVM_NUM_THREADS="")[0][0] == WORKERS


@several_cpus
def test_pool_stays_as_it_is_by_request(library):
    default = default_workers(library)
    assert sessions(library, "guard", TVM_RAMMER_CONFIGURE_POOL="0")[0][0] == default
    assert sessions(library, "guard", TVM_RAMMER_CONFIGURE_POOL="1")[0][0] == WORKERS


@several_cpus
def test_pool_stays_as_it_is_in_a_thread_that_skips(library):
    after_skip, after_guard = sessions(library, "skip lower guard", "guard lower")
    assert (after_skip[0], after_guard[0]) == (1, 1)


@several_cpus
def test_checking_the_cpu_leaves_the_pool_alone(library):
    assert sessions(library, "check")[0][0] == default_workers(library)


@several_cpus
def test_what_a_library_knows_of_threads_may_be_kept_elsewhere(library):
    assert sessions(library, "share skip guard lower guard")[0][0] == 1
    assert sessions(library, "skip lower share guard")[0][0] == WORKERS


@several_cpus
def test_fewer_workers_set_by_other_code_are_raised_again(library):
    assert sessions(library, "guard lower guard")[0][0] == WORKERS


@several_cpus
def test_pool_that_was_touched_before_is_used_as_it_is(library):
    assert sessions(library, "touch guard")[0][0] == default_workers(library)


def test_failing_pool_is_an_error(library):
    assert sessions(library, "break guard") == [
        f"TVM's thread pool could not get {WORKERS} workers: "
        "set TVM_RAMMER_CONFIGURE_POOL=0 to use those that it has"
    ]


def test_later_calls_cost_next_to_nothing():
    guard = build_guard("guard", host_target(), WORKERS)["guard"]

    def microseconds() -> float:
        begin = time.perf_counter()
        for _ in range(1000):
            guard()
        return (time.perf_counter() - begin) * 1e3

    assert in_new_thread(lambda: min(microseconds() for _ in range(50))) < 1  # mostly Python's


# --- The CPU ---


def first_missing(target: Target) -> str | None:
    """The first feature that LLVM, asked independently, does not find in this CPU."""
    present = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    return next((name for name in needed_features(target) if not present[name]), None)


def test_this_machine_can_run_what_is_compiled_for_it():
    assert error_of(build_guard("guard", host_target(), WORKERS), "guard") is None


@on_x86
@pytest.mark.parametrize("symbol", ["guard", "guard_skip", "guard_check"])
@pytest.mark.parametrize("mcpu", ["sapphirerapids", "bdver4"])
def test_lesser_cpu_is_an_error(mcpu, symbol):
    target = Target({"kind": "llvm", "mcpu": mcpu})
    feature = first_missing(target)
    if feature is None:
        pytest.skip(f"this machine is a {mcpu}")
    assert error_of(build_guard("guard", target, WORKERS), symbol) == (
        f"this library was compiled for {mcpu}, which needs {feature}; this CPU does not have it: "
        'compile it for this CPU, or with target={"kind": "llvm", "mcpu": "x86-64"}'
    )


@on_x86
def test_features_are_found_where_llvm_finds_them():
    """Builds one guard a feature, for a CPU that has it and what it implies."""
    for name in X86_FEATURES:
        target = Target({"kind": "llvm", "mcpu": "x86-64", "mattr": [f"+{name}"]})
        assert name in needed_features(target)
        error = error_of(build_guard("guard", target, 1), "guard_skip") or "needs None;"
        assert re.findall("needs ([^;]*);", error) == [str(first_missing(target))], name


def test_features_that_a_cpu_needs():
    def needed(architecture: str, mcpu: str) -> tuple[str, ...]:
        triple = f"{architecture}-linux-gnu"
        return needed_features(Target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu}))

    assert needed("x86_64", "x86-64") == ()
    assert needed("x86_64", "x86-64-v3")[-6:] == ("avx", "f16c", "fma", "bmi", "avx2", "bmi2")
    assert needed("aarch64", "generic") == ()
    assert needed("aarch64", "neoverse-n1") == ("lse", "rdm", "fullfp16", "dotprod", "rcpc")


def test_every_arm_feature_is_known_to_llvm():
    triple = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "generic"}
    for name in ARM_FEATURES:
        assert name in needed_features(Target({**triple, "mattr": [f"+{name}"]}))


@pytest.mark.parametrize(
    "triple, mcpu, beyond",
    [
        ("x86_64-linux-gnu", "znver4", r"%[yz]mm|\tv[a-z]"),
        ("aarch64-linux-gnu", "neoverse-v2", r"\t(cas|ldadd|ldapr|ptrue|whilelo|cnt[bhwd])"),
    ],
)
def test_guard_itself_runs_on_the_oldest_cpu(triple, mcpu, beyond):
    target = Target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu})
    code = build_guard("guard", target, 2).inspect_source("asm")
    assert "sched_getaffinity" in code
    assert not re.search(beyond, code)
