"""A loaded library in this process: its CPU is checked, its threads have the workers they need."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

import tvm

from tvm_rammer.backend.cpu.host.pool import configure_own_pool, in_pool_thread
from tvm_rammer.backend.protocol import GUARD, Binding
from tvm_rammer.errors import LibraryError, last_line

T = TypeVar("T")

#: What all loaded libraries know of threads (see ``build_guard``): a variable of 8 bytes, aligned
#: to 4; libgcc never takes back what it gave out for one.
_threads = (ctypes.c_int64 * 4)(8, 4, 0, 0)


def check_cpu(module: tvm.runtime.Module) -> None:
    """Raise a LibraryError if this CPU lacks a feature that a library was compiled for."""
    check = module.get_function(f"{GUARD}_check", query_imports=True)
    try:
        check()
    except RuntimeError as error:
        raise LibraryError(last_line(error)) from error


def share_threads(module: tvm.runtime.Module) -> None:
    """Let a library that has not run yet keep what it knows of threads where all others do."""
    module.get_function(f"{GUARD}_share", query_imports=True)(ctypes.addressof(_threads))


class PoolBinding(Binding):
    """A library whose kernels run on the workers of TVM's pool, of which each thread has its own.

    Parameters
    ----------
    module : tvm.runtime.Module
    num_veus : int
        What its plans want a worker each for.
    """

    def __init__(self, module: tvm.runtime.Module, num_veus: int) -> None:
        super().__init__(module)
        self._num_veus = num_veus
        self._skip_guard = module.get_function(f"{GUARD}_skip", query_imports=True)
        self._thread = 0

    def prepare(self) -> int:
        """Give the calling thread its workers; the library's own guard need not do it again.

        0 if it has lost them: another thread must run.
        """
        workers = configure_own_pool(self._num_veus)
        if workers and (thread := threading.get_ident()) != self._thread:
            self._skip_guard()
            self._thread = thread
        return workers

    def elsewhere(self, work: Callable[[], T]) -> T:
        """Call a function in a thread that has workers."""
        return in_pool_thread(work)
