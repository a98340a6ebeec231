"""How a call ends that is interrupted, or that nobody listens to any more."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress

#: Exit statuses as shells have them: 128 and the signal that ends other programs.
INTERRUPTED = 128 + signal.SIGINT
CLOSED_PIPE = 128 + signal.SIGPIPE


def make_streams_usable() -> None:
    """Let output that is closed take what is written, and any output take every character."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            null = os.open(os.devnull, os.O_WRONLY)
            if null != number:
                # Else the next file that is opened would get what is written there.
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def quiet_end() -> None:
    """Let nothing be said after an error: what could not be written, and what TVM leaves behind."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        # Where it is no file, as in a test, there is nothing to be said.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(null, stream.fileno())
    os.close(null)
