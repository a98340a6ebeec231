"""Every thread of a process gets its workers, with this package and without."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_models import BLOCKED, Sorting, python

import tvm_rammer
from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.backend.cpu.host.pool import default_pool_size

CORES = host_cpu().cores

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to link")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tvm_rammer.build(Sorting).export_library(tmp_path_factory.mktemp("exported") / "sort.so")


BUILD = """
import threading
import numpy as np
import tvm
from small_models import Branches, branches, floats
from tvm import relax
import tvm_rammer
from tvm_rammer.backend.cpu.host import host_target

num_threads = tvm.get_global_func("runtime.NumThreads")
inputs = floats(4, 8), floats(4, 8, seed=1)

def is_right(got):
    return np.allclose(got.numpy(), branches(*inputs), 1e-4, 1e-5)

def thread(work):
    results = []
    running = threading.Thread(target=lambda: results.append(work()))
    running.start()
    running.join()
    return results[0]
"""

GRAPH_MODULE = f"""
{BUILD}
library = tvm_rammer.build(Branches)

def work():
    module = library.create()
    (got,) = module(*inputs)
    return is_right(got), module.num_veus, module.num_workers, num_threads()

print(work(), thread(work), sep="\\n")
"""

STOCK_VM = f"""
{BUILD}
executable = relax.build(Branches, host_target(), relax_pipeline="rammer")

def work():
    machine = relax.VirtualMachine(executable, tvm.cpu())
    got = machine["main"](*map(tvm.runtime.tensor, inputs))
    planned = executable.jit().get_function("tvm_rammer_num_veus", query_imports=True)()
    return is_right(got), planned, num_threads(), num_threads()

print(work(), thread(work), sep="\\n")
"""


def report(code: str, **environment: str) -> list[tuple[bool, int, int, int]]:
    """(right, vEUs planned, workers got, TVM's workers) in the first and a second thread."""
    return [eval(line) for line in python(code, **environment).splitlines()]


@pytest.mark.parametrize("code", [GRAPH_MODULE, STOCK_VM], ids=["GraphModule", "stock VM"])
def test_every_thread_of_a_process_gets_a_worker_for_each_veu(code):
    assert report(code) == [(True, CORES, CORES, CORES)] * 2


@pytest.mark.parametrize("code", [GRAPH_MODULE, STOCK_VM], ids=["GraphModule", "stock VM"])
def test_one_worker_that_the_user_wants_runs_the_whole_plan(code):
    assert report(code, TVM_NUM_THREADS="1") == [(True, CORES, 1, 1)] * 2


def test_a_pool_that_was_used_before_runs_the_whole_plan():
    used_before = GRAPH_MODULE.replace("library =", "default = num_threads()\nlibrary =")
    (first, second) = report(used_before)
    assert first[0] and first[2] <= CORES
    assert second == (True, CORES, CORES, CORES)


# Where this package is not

BARE = f"""
{BLOCKED}
import numpy as np
import threading
import tvm
from tvm import relax

try:
    import tvm_rammer
except ImportError:
    pass
else:
    raise SystemExit("tvm_rammer is there")

module = tvm.runtime.load_module(sys.argv[1])
planned = module.get_function("tvm_rammer_num_veus", query_imports=True)
rng = np.random.default_rng(0)
x, y = (rng.standard_normal((rows, 8)).astype("float32") for rows in (4, 600))

def softmax(z):
    powers = np.exp(z - z.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)

def work():
    machine = relax.VirtualMachine(module, tvm.cpu())
    machine.set_input("main", tvm.runtime.tensor(x), tvm.runtime.tensor(y))
    for _ in range(3):
        machine.invoke_stateful("main")
    e, (a, same) = machine.get_outputs("main")
    want = softmax(np.sort(softmax(x) @ y.T, axis=1)) @ y
    right = np.allclose(e.numpy(), want, 1e-4, 1e-5) and np.allclose(a.numpy(), softmax(x), 1e-4)
    workers = tvm.get_global_func("runtime.NumThreads")()
    results.append((bool(right), planned(), workers, workers))

results = []
work()
second = threading.Thread(target=work)
second.start()
second.join()
print(*results, sep="\\n")
"""


def bare_report(path: Path, **environment: str) -> list[tuple[bool, int, int, int]]:
    return [eval(line) for line in python(BARE, path, **environment).splitlines()]


@needs_compiler
def test_a_library_needs_only_tvm(exported):
    assert bare_report(exported) == [(True, CORES, CORES, CORES)] * 2


@needs_compiler
def test_a_library_leaves_the_pool_alone_if_told_to(exported, monkeypatch):
    monkeypatch.delenv("TVM_NUM_THREADS", raising=False)
    default = default_pool_size()
    found = bare_report(exported, TVM_RAMMER_CONFIGURE_POOL="0")
    assert found == [(True, CORES, default, default)] * 2


@needs_compiler
def test_a_library_follows_the_users_wish(exported):
    assert bare_report(exported, TVM_NUM_THREADS="1") == [(True, CORES, 1, 1)] * 2
