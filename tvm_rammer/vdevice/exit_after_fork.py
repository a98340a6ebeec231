"""Lets a child of fork end although its first thread has a pool whose workers were left behind.

TVM destroys the pool of a thread when that ends, and waits for the workers: for ever if they slept,
or for other threads that have got their places since, which ends the process by an abort. A process
that ends by itself must end before that. Nothing but the exit status is left to say then, which
Python does not tell; ``sys.exit`` is made to remember it.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from typing import Any, NoReturn

_status: list[int] = []
_libc = ctypes.CDLL(None)


def end_before_pool() -> None:
    """End this process before its thread's pool is destroyed, once it ends by itself."""
    if _status:
        return
    _status.append(0)
    leave = sys.exit

    def exit(status: Any = None, /) -> NoReturn:
        _status[0] = status if isinstance(status, int) else int(status is not None)
        leave(status)

    sys.exit = exit
    atexit.register(_end)


def _end() -> None:
    """Called when Python ends: what it asks libc for comes before what TVM has asked for."""
    # An exception that nobody caught.
    status = 1 if getattr(sys, "last_value", None) is not None else _status[0]
    _at_end_of_thread("_exit", status & 0xFF)
    _at_end_of_thread("fflush", None)


def _at_end_of_thread(function: str, argument: int | None) -> None:
    """Have libc call one of its functions, the last that was asked for first."""
    address = ctypes.cast(getattr(_libc, function), ctypes.c_void_p)
    _libc.__cxa_thread_atexit_impl(address, ctypes.c_void_p(argument), None)
