"""A child of fork runs what its parent loaded, whether the parent has run it or not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_models import BLOCKED, Branches, python

import tvm_rammer
from tvm_rammer.backend.cpu.host import host_cpu

CORES = host_cpu().cores
BOTH = f"{CORES} {CORES}"

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to link"),
    pytest.mark.skipif(CORES < 2, reason="one worker is no other thread"),
]


def slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    return tvm_rammer.build(Branches, policy="wavefront").export_library(folder / "branches.so")


@pytest.fixture(scope="module")
def other(library: Path) -> Path:
    return Path(shutil.copy(library, library.with_name("other.so")))


def said(code: str, *arguments: object, **environment: str) -> list[str]:
    """What the children of a program in a process of its own say."""
    lines = python(code, *arguments, **environment).splitlines()
    assert lines
    return lines


# With this package

GRAPH = """
import sys
from fork_workers import *
import tvm_rammer

path, before = sys.argv[1:]
library = tvm_rammer.load(path)
module = library.create()
if before == "runs":
    run_graph(module)
elif before == "thread":
    in_new_thread(lambda: run_graph(module))
elif before == "touches":
    make_pool()

def loaded():
    return here_and_in_a_new_thread(lambda: run_graph(module))

def anew():
    return here_and_in_a_new_thread(lambda: run_graph(tvm_rammer.load(path).create()))

def grandchild():
    loaded()
    module.profile(1)
    return in_children(1, loaded)[0]

print(*in_children(4, loaded), *in_children(1, anew), *in_children(1, grandchild), sep="\\n")
print(loaded())
"""


@pytest.mark.parametrize("before", ["loads", "runs", slow("thread"), slow("touches")])
def test_children_run_with_all_workers_whatever_the_parent_did_before(library, before):
    lines = said(GRAPH, library, before)
    assert lines == [BOTH] * 7


ENDING = """
import sys, time
from fork_workers import *
import tvm_rammer

module = tvm_rammer.load(sys.argv[1]).create()
run_graph(module)
time.sleep(1)  # the workers sleep

def caught():
    raise ValueError("not caught")

endings = [lambda: None, lambda: sys.exit(), lambda: sys.exit(3), lambda: sys.exit("why"), caught]
statuses = []
for number, end in enumerate(endings * 2):
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        if number >= len(endings):
            here_and_in_a_new_thread(lambda: run_graph(module))
        print("ends")
        end()
        break
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    print(*statuses)
    os._exit(sys.stdout.flush() or 0)
"""


def test_a_child_ends_with_its_own_status(library):
    assert said(ENDING, library) == ["ends"] * 10 + ["0 0 3 1 1 0 0 3 1 1"]


POOLS = """
import multiprocessing
import sys
from fork_workers import *
import tvm_rammer

if __name__ == "__main__":
    path, method, count = sys.argv[1:]
    run_graph(tvm_rammer.load(path).create())
    with multiprocessing.get_context(method).Pool(int(count)) as pool:
        found = pool.map_async(load_and_run, [path] * 4).get(60)
    print(*found, sep="\\n")
"""


@pytest.mark.parametrize(("method", "count"), [("fork", 4), slow("forkserver", 1)])
def test_processes_of_multiprocessing(library, method, count):
    assert said(POOLS, library, method, count) == [str(CORES)] * 4


BUILDING = """
import sys
from fork_workers import *
from small_models import Branches
import tvm_rammer

run_graph(tvm_rammer.build(Branches, policy="wavefront").create())

def build():
    return here_and_in_a_new_thread(lambda: run_graph(tvm_rammer.build(Branches).create()))

print(*in_children(1, build))
"""


@pytest.mark.slow
def test_a_child_may_build():
    assert said(BUILDING) == [BOTH]


VM = """
import sys
from fork_workers import *
import tvm_rammer

machine = relax.VirtualMachine(tvm_rammer.load(sys.argv[1]).executable, tvm.cpu())
if sys.argv[2] == "runs":
    run_machine(machine)
print(*in_children(2, lambda: here_and_in_a_new_thread(lambda: run_machine(machine))), sep="\\n")
"""


@pytest.mark.parametrize(("before", "wanted"), [("loads", BOTH), ("runs", f"1 {CORES}")])
def test_children_run_what_was_loaded_under_the_vm(library, before, wanted):
    assert said(VM, library, before) == [wanted] * 2


BUILT = """
from fork_workers import *
from small_models import Branches
import tvm_rammer

used, unused = (tvm_rammer.build(Branches, policy="wavefront").executable for _ in range(2))
run_machine(relax.VirtualMachine(used, tvm.cpu()))

def first_use():
    machine = relax.VirtualMachine(unused, tvm.cpu())
    return here_and_in_a_new_thread(lambda: run_machine(machine))

print(*in_children(1, first_use))
"""


def test_a_child_runs_what_its_parent_built_and_did_not_run():
    assert said(BUILT) == [f"1 {CORES}"]


# Where this package is not

BARE = f"""
{BLOCKED}
from fork_workers import *

one, other, before = sys.argv[1:]
first, second = machine(one), machine(other)
if before == "runs":
    run_machine(first)
elif before == "touches":
    make_pool()
elif before == "thread":
    in_new_thread(lambda: run_machine(first))

def same():
    return here_and_in_a_new_thread(lambda: run_machine(first))

def another():
    return here_and_in_a_new_thread(lambda: run_machine(second))

def threads_first():
    for _ in range(8):
        in_new_thread(lambda: run_machine(second))
    return same()

def grandchild():
    same()
    return in_children(1, another)[0]

print(*in_children(4, same), *in_children(1, another), *in_children(1, threads_first),
      *in_children(1, grandchild), sep="\\n")
"""


@pytest.mark.parametrize(
    ("before", "first"),
    [("loads", CORES), slow("thread", CORES), ("runs", 1), slow("touches", 1)],
)
def test_a_child_without_this_package_works_alone_if_its_pool_is_lost(
    library, other, before, first
):
    """A grandchild's first thread has lost the pool that the child's run gave it."""
    *lines, threads_first, grandchild = said(BARE, library, other, before)
    assert lines == [f"{first} {CORES}"] * 5
    # Threads that end meanwhile may hide that a pool is new; then the thread works alone.
    assert threads_first in (f"{first} {CORES}", f"1 {CORES}")
    assert grandchild == f"1 {CORES}"


def test_a_wish_for_workers_holds_in_a_child(library, other):
    lines = said(BARE, library, other, "loads", TVM_NUM_THREADS=str(CORES))
    assert lines == [f"1 {CORES}"] * 7
