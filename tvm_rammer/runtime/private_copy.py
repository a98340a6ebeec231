"""A shared object, loaded from a copy of its file that lives in memory.

The system's loader takes a file that it knows by name or by number for the one that it has loaded,
and a file that is overwritten changes under the code that runs from it. A copy in memory has a name
and a number of its own, needs no folder that may be written and executed, and leaves nothing
behind, whatever ends the process.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from itertools import count

import tvm

from tvm_rammer.memory_file import memory_file
from tvm_rammer.runtime.link import SERIALISED
from tvm_rammer.runtime.shared_object import defect, symbol_range

_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)
_numbers = count()


class PrivateCopy:
    """A file in memory.

    Parameters
    ----------
    name : str
        What debuggers and profilers show.

    Raises
    ------
    MemoryError
        The system gives no such file.
    """

    def __init__(self, name: str) -> None:
        try:
            self._descriptor = memory_file(name)
        except OSError as error:
            raise MemoryError(error.strerror) from error
        status = os.fstat(self._descriptor)
        # A process that makes itself a daemon closes all descriptors, and numbers are used again.
        own = status.st_dev, status.st_ino
        weakref.finalize(self, _close, self._descriptor, own)

    def write(self, data: bytes) -> None:
        """Append to the file; a MemoryError if there is no room."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise MemoryError(error.strerror) from error

    def defect(self) -> str | None:
        """Why it cannot be loaded; None if nothing speaks against it."""
        with open(self._descriptor, "rb", closefd=False) as file:
            return defect(file)

    def load(self) -> tvm.runtime.Module:
        """Load the file as a library of TVM's, which is unloaded with its last function.

        ``tvm.runtime.load_module`` keeps every library for the rest of the process.
        """
        load = tvm.get_global_func("ffi.Module.load_from_file.so")
        module = load(self._path(), "so")
        self._forget_serialised()
        return module

    def _path(self) -> str:
        """A name of the file that no other has had in this process.

        The loader compares names as texts, and the number of a descriptor that was closed is soon
        that of another file: an empty step in the path more or less makes it another text.
        """
        steps = ("/." if digit == "1" else "/" for digit in f"{next(_numbers):b}")
        return f"/proc/self/fd{''.join(steps)}/{self._descriptor}"

    def _forget_serialised(self) -> None:
        """Give back the memory of what TVM has copied."""
        with open(self._descriptor, "rb", closefd=False) as file:
            offset, size = symbol_range(file, SERIALISED)
        page = os.sysconf("SC_PAGESIZE")
        first, last = -(-offset // page) * page, (offset + size) // page * page
        if last > first:
            # Where this fails the memory stays: nothing else depends on it.
            _libc.fallocate(
                self._descriptor,
                _KEEP_SIZE | _PUNCH_HOLE,
                ctypes.c_long(first),
                ctypes.c_long(last - first),
            )


def _close(descriptor: int, own: tuple[int, int]) -> None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return
    if (status.st_dev, status.st_ino) == own:
        os.close(descriptor)
