"""Every thread gets the workers it asks for, within what its pool can give."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from new_thread import in_new_thread
from tvm import get_global_func

from tvm_rammer.backend.cpu.host import configure_pool, host_cpu
from tvm_rammer.backend.cpu.host.pool import default_pool_size
from tvm_rammer.errors import InputError

CORES = host_cpu().cores
CPUS = len(host_cpu().cpus)
num_threads = get_global_func("runtime.NumThreads")


@pytest.fixture(autouse=True)
def no_wish(monkeypatch):
    monkeypatch.delenv("TVM_NUM_THREADS", raising=False)


def test_a_thread_gets_what_it_asks_for():
    assert in_new_thread(lambda: (configure_pool(CORES), num_threads())) == (CORES, CORES)


def test_later_calls_move_within_the_first_ones_size():
    asked = (1, CORES, CORES + 1, 1)
    got = in_new_thread(lambda: tuple(configure_pool(count) for count in asked))
    assert got == (1, CORES, CORES, 1)


def test_workers_may_outnumber_the_cpus_four_times():
    most = 4 * host_cpu().threads
    assert in_new_thread(lambda: configure_pool(host_cpu().threads + 1)) == host_cpu().threads + 1
    assert in_new_thread(lambda: configure_pool(most + 1)) == most


def test_a_pool_that_was_used_before_cannot_grow():
    default = default_pool_size()
    assert in_new_thread(lambda: (num_threads(), configure_pool(CORES))) == (
        default,
        min(default, CORES),
    )


@pytest.mark.skipif(CORES < 2, reason="nothing to limit")
def test_the_users_wish_wins(monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    assert in_new_thread(lambda: configure_pool(CORES)) == 1
    monkeypatch.setenv("TVM_NUM_THREADS", "64")
    assert in_new_thread(lambda: configure_pool(CORES)) == CORES


def affinities(num_workers: int) -> tuple[set[int], list[set[int]]]:
    """Where a new thread with so many workers may run, and where its workers may."""

    def masks() -> tuple[set[int], list[set[int]]]:
        before = set(os.listdir("/proc/self/task"))
        configure_pool(num_workers)
        workers = set(os.listdir("/proc/self/task")) - before
        return os.sched_getaffinity(0), [os.sched_getaffinity(int(tid)) for tid in workers]

    return in_new_thread(masks)


def test_the_calling_thread_may_run_on_all_cpus_of_the_process():
    for num_workers in (1, CPUS, CPUS + 1):
        assert affinities(num_workers)[0] == set(host_cpu().cpus)


def test_with_a_worker_for_every_cpu_each_has_its_own():
    _, workers = affinities(CPUS)
    assert sorted(map(sorted, workers)) == [[cpu] for cpu in host_cpu().cpus[1:]]


def test_with_another_number_the_workers_share_the_cpus():
    _, workers = affinities(CPUS + 1)
    assert workers == [set(host_cpu().cpus)] * CPUS


def test_nonsense_is_refused():
    with pytest.raises(InputError, match=r"^num_workers is 0: it must be a whole number of at"):
        configure_pool(0)


def test_a_wish_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "all")

    def refused() -> str:
        with pytest.raises(InputError) as caught:
            configure_pool(2)
        return str(caught.value)

    # Only a thread that has not asked yet looks at the wish.
    assert in_new_thread(refused).startswith("TVM_NUM_THREADS is 'all': it must be a whole number")


MAIN_FIRST = """
import os
import tvm_rammer.backend.cpu.host as host
import tvm, threading

default = tvm.get_global_func("runtime.NumThreads")()  # fixes this thread's pool, and pins it
cores = host.host_cpu().cores
assert host.configure_pool(cores) == min(default, cores)
got = []
thread = threading.Thread(target=lambda: got.append(host.configure_pool(cores)))
thread.start()
thread.join()
print(got[0] == cores, os.sched_getaffinity(0) == set(host.host_cpu().cpus))
"""


def test_a_new_thread_gets_a_full_pool_although_the_main_thread_has_half_a_one():
    environment = {k: v for k, v in os.environ.items() if k not in ("TVM_NUM_THREADS",)}
    environment["PYTHONPATH"] = str(Path(__file__).parents[4])
    child = subprocess.run(
        [sys.executable, "-c", MAIN_FIRST], env=environment, capture_output=True, text=True
    )
    assert (child.stdout, child.returncode) == ("True True\n", 0), child.stderr
