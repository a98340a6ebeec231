"""Sets the running thread's pool of TVM workers up, so that every vEU gets a worker.

TVM's pool is thread-local. It takes its size when something in the thread touches it first (by
default half of the hardware threads on x86, and the thread is pinned to these), and it never grows.

A thread that comes through a fork has the pool that it had, but none of the workers, and what is
launched there waits for ever. A new thread has a new pool: :func:`in_pool_thread` uses one where it
must.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TypeVar

from tvm_rammer.backend.cpu.host.exit_after_fork import end_before_pool
from tvm_rammer.backend.cpu.host.processor import host_cpu
from tvm_rammer.machine.vdevice import MAX_OVERSUBSCRIPTION, positive_count

# kSpecifyThreadShareAllCore: the workers share the listed CPUs, none is pinned to one of them.
_SHARE_ALL_CPUS = -3
# kSpecifyOneCorePerThread: every worker has a CPU of its own, the calling thread may use them all.
# With as many workers as CPUs, and only then, this is how they must end up; left to themselves, two
# that spin for each other can share one CPU for seconds, and a run takes five times as long.
_ONE_CPU_EACH = -2
# None of TVM's modes: it sets the number of workers and touches no thread, dead ones neither.
_BIND_NONE = 0

T = TypeVar("T")


@dataclass
class _Pool:
    """What this module made of one thread's pool."""

    size: int
    asked: int = 0
    got: int = 0


@dataclass
class _Fork:
    """What is known of this process's threads around a fork.

    ``lost`` is the thread that came through the last one and left workers behind, ``stand_in`` runs
    what it wants to launch, ``threads`` is their number just before.
    """

    lost: int | None = None
    stand_in: ThreadPoolExecutor | None = None
    threads: int = 1


_local = threading.local()
_fork = _Fork()


def _before_fork() -> None:
    try:
        _fork.threads = len(os.listdir("/proc/self/task"))
    except OSError:  # nobody knows
        _fork.threads = 2


def _after_fork_in_child() -> None:
    # Without another thread, or without TVM, there was no worker. A thread that had lost its own
    # still has none.
    if _fork.threads > 1 and "tvm_ffi" in sys.modules:
        _fork.lost = threading.get_ident()
    elif _fork.lost != threading.get_ident():
        _fork.lost = None
    if _fork.lost is not None:
        vars(_local).clear()
        end_before_pool()
    _fork.stand_in = None


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)


def in_pool_thread(work: Callable[[], T]) -> T:
    """Call a function in place of a thread that came through a fork and left workers behind.

    It is another thread, always the same; handing over costs some 40 microseconds.
    """
    if _fork.stand_in is None:
        _fork.stand_in = ThreadPoolExecutor(1, thread_name_prefix="tvm-rammer-after-fork")
    return _fork.stand_in.submit(work).result()


def configure_pool(num_workers: int) -> int:
    """Give the calling thread's launches ``num_workers`` workers, itself included.

    The first call in a thread fixes the size of its pool: as many workers as this process may use
    cores, or ``num_workers`` if that is more. A later call uses more or fewer workers of that pool,
    but cannot enlarge it, nor can the first call once other code has used the pool in this thread.
    Afterwards the thread and the workers may run on all CPUs that the process had at import.

    In a thread that came through a fork and left workers behind it is the only worker.

    A ``TVM_NUM_THREADS`` below ``num_workers`` is the user's wish and wins. Asking again for the
    same number costs a tenth of a microsecond.

    Returns
    -------
    int
        Workers that launches from this thread have now: a program planned for more vEUs than that
        still runs, serially.
    """
    return configure_own_pool(num_workers) or 1


def configure_own_pool(num_workers: int) -> int:
    """As :func:`configure_pool`; 0 in a thread that came through a fork and left workers behind."""
    pool: _Pool | None = getattr(_local, "pool", None)
    if pool is None or pool.asked != num_workers:
        pool = _local.pool = _configured(pool, positive_count("num_workers", num_workers))
    return pool.got


def default_pool_size() -> int:
    """Workers that a thread gets from TVM if nobody configures its pool."""
    from tvm import get_global_func

    # A thread of its own: to ask for the size is to fix it.
    sizes: list[int] = []
    thread = threading.Thread(target=lambda: sizes.append(get_global_func("runtime.NumThreads")()))
    thread.start()
    thread.join()
    return sizes[0]


def requested_workers() -> int | None:
    """The user's ``TVM_NUM_THREADS``; None if it is not set."""
    text = os.environ.get("TVM_NUM_THREADS")
    if not text:
        return None
    return positive_count("TVM_NUM_THREADS", int(text) if text.isdecimal() else text)


def _configured(pool: _Pool | None, asked: int) -> _Pool:
    from tvm import get_global_func

    configure = get_global_func("runtime.config_threadpool")
    if threading.get_ident() == _fork.lost:
        configure(_BIND_NONE, 1, ["0"])
        return _Pool(1, asked)
    host = host_cpu()
    used = min(asked, requested_workers() or asked, MAX_OVERSUBSCRIPTION * host.threads)
    if pool is None:
        size = max(used, min(host.cores, requested_workers() or host.cores))
        # The length of the list is the size of the pool ...
        configure(_SHARE_ALL_CPUS, used, _cpu_list(host.in_order, size))
        pool = _Pool(size)
    # ... and once the pool is there, the list says where its threads may run.
    mode = _ONE_CPU_EACH if used == pool.size == len(host.cpus) else _SHARE_ALL_CPUS
    configure(mode, used, _cpu_list(host.in_order, max(pool.size, len(host.cpus))))
    return _Pool(pool.size, asked, int(get_global_func("runtime.NumThreads")()))


def _cpu_list(cpus: tuple[int, ...], length: int) -> list[str]:
    return list(islice(cycle(map(str, cpus)), length))
