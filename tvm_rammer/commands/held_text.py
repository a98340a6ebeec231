"""Holds back what is written to standard error, and loses none of it whatever ends the process.

LLVM ends the process for some faults, the system for others, and nothing in it has the time to say
a word. The text is kept in memory, and a small process that waits for this one's end holds that
memory too: if this one dies, it passes the text on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tvm_rammer.memory_file import memory_file
from tvm_rammer.printable import printable

#: What the other process runs: a byte on standard input says that nothing remains to be done.
_REPLAY = """
import os, sys
held, place = int(sys.argv[1]), 0
if not os.read(0, 1):
    while data := os.pread(held, 1 << 16, place):
        place += os.write(2, data)
"""


@contextmanager
def held_back(keep: Callable[[bytes], bool]) -> Iterator[None]:
    """Collect what is written to descriptor 2, and pass it on afterwards.

    Where there is no memory or no process for it, what is written is seen at once.

    Parameters
    ----------
    keep : callable
        Which lines are passed on; all are if the process dies.
    """
    sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    try:
        held = memory_file("held-back")
        replay = _replay(held)
    except OSError:
        os.close(saved)
        yield
        return
    os.dup2(held, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        with os.fdopen(held, "rb") as file:
            file.seek(0)
            lines = (line.decode(errors="replace") for line in file if keep(line))
            said = printable("".join(lines)).encode()
        with suppress(OSError):
            replay.communicate(b".")
        with suppress(OSError):
            while said:
                said = said[os.write(2, said) :]


def _replay(held: int) -> subprocess.Popen[bytes]:
    """Start the process that passes the text on if this one dies."""
    command = [sys.executable, "-I", "-S", "-c", _REPLAY, str(held)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[held],
        start_new_session=True,  # Ctrl-C is not for it
    )
