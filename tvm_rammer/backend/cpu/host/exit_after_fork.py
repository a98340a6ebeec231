"""Lets a child of fork end although its first thread has a pool whose workers were left behind.

TVM destroys the pool of a thread when that ends, and waits for the workers: for ever if they slept,
or for other threads that have got their places since, which ends the process by an abort. A process
that ends by itself must end before that. Nothing but the exit status is left to say then, and
Python tells it to nobody: what it asks a SystemExit for before it ends the process is noticed.

What this cannot know: the 120 of a process whose last flush fails, and a status that C code or an
embedding program gives.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import sys
from dataclasses import dataclass
from typing import Any, NoReturn

_libc = ctypes.CDLL(None)


@dataclass
class _End:
    """What is known of this process's end: an error of before the fork is none of its own."""

    installed: bool = False
    status: int | None = None
    earlier: object = None


_end = _End()


def end_before_pool() -> None:
    """End this process before its thread's pool is destroyed, once it ends by itself."""
    _end.status, _end.earlier = None, _last_error()
    if not _end.installed:
        _end.installed = True
        _watch_code()
        sys.exit = _exit
        atexit.register(_at_exit)


def _watch_code() -> None:
    """Notice the code of the SystemExit that ends the process: nobody sees one that is not caught.

    Python's own attribute is wrapped; what code of Python reads, in an ``except``, does not count.
    """
    (attributes,) = gc.get_referents(SystemExit.__dict__)
    code = attributes["code"]

    def get(error: SystemExit) -> Any:
        value = code.__get__(error)
        # Called by no code of Python, hence by what ends the process.
        if sys._getframe().f_back is None:
            _end.status = _status_of(value)
        return value

    attributes["code"] = property(get, code.__set__, code.__delete__, code.__doc__)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))


def _exit(status: Any = None, /) -> NoReturn:
    """As ``sys.exit``, of which Python before 3.12 makes a SystemExit only if somebody catches."""
    raise SystemExit(status)


def _status_of(code: object) -> int:
    if isinstance(code, int):
        return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
    return int(code is not None)


def _last_error() -> object:
    """The last error that nobody caught."""
    return getattr(sys, "last_value", None)


def _at_exit() -> None:
    """Called when Python ends: what it asks libc for comes before what TVM has asked for."""
    status = _end.status
    if status is None:
        status = int(_last_error() is not _end.earlier)
    _at_end_of_thread("_exit", status)
    _at_end_of_thread("fflush", None)


def _at_end_of_thread(function: str, argument: int | None) -> None:
    """Have libc call one of its functions, the last that was asked for first."""
    address = ctypes.cast(getattr(_libc, function), ctypes.c_void_p)
    # The last argument says whose function it is: NULL would be the program, if libc knew it yet.
    _libc.__cxa_thread_atexit_impl(address, ctypes.c_void_p(argument), address)
