"""Files that live in memory: they need no folder, and leave nothing behind."""

from __future__ import annotations

import ctypes
import os

_CLOSE_ON_EXEC, _NOEXEC_SEAL = 1, 8

# Pythons that were built for older C libraries have no os.memfd_create.
_libc = ctypes.CDLL(None, use_errno=True)


def memory_file(name: str) -> int:
    """The descriptor of a new file in memory.

    Parameters
    ----------
    name : str
        What debuggers and profilers show.

    Raises
    ------
    OSError
        The system gives none.
    """
    # Some systems want to be told that the file is none to start; older ones do not know the flag.
    for flags in (_CLOSE_ON_EXEC | _NOEXEC_SEAL, _CLOSE_ON_EXEC):
        descriptor = int(_libc.memfd_create(os.fsencode(name)[:200], flags))
        if descriptor >= 0:
            return descriptor
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
