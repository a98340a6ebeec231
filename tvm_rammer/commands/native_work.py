"""What the terminal shows while something takes its time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tvm_rammer.commands.command import plain_console
from tvm_rammer.memory_file import memory_file
from tvm_rammer.printable import printable
from tvm_rammer.progress import watching

#: What TVM logs at every export and load, about nothing, and of models that were refused.
_NOISE = re.compile(
    rb"\[[\d:]+\] \S*(executable\.cc:\d+: Warning: Scope (Saving|Loaded):"
    rb"|block_builder\.cc:\d+: Warning: BlockBuilder destroyed .*)\s*"
)


@contextmanager
def native_work(description: str) -> Iterator[None]:
    """Show what is being done, at which step it is, and for how long already."""
    with progress() as display:
        task = display.add_task(description, total=None)
        with watching(lambda step: display.update(task, description=f"{description}: {step}")):
            yield


@contextmanager
def progress(bar: bool = False) -> Iterator[Progress]:
    """A display of progress on standard error if that is a terminal, else one that shows nothing.

    What is said on standard error meanwhile comes afterwards, without TVM's empty log lines.

    Parameters
    ----------
    bar : bool
        With a bar, for work of a known length.
    """
    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        *([BarColumn()] if bar else []),
        TimeElapsedColumn(),
    ]
    with _terminal() as terminal, held_back(_says_something):
        if terminal is None:
            yield Progress(*columns, disable=True)
            return
        console = plain_console(file=terminal, force_terminal=True)
        with Progress(*columns, console=console, transient=True, redirect_stderr=False) as display:
            yield display


@contextmanager
def _terminal() -> Iterator[TextIO | None]:
    """Standard error's terminal, if it is one, by a descriptor that stays when 2 is held back."""
    if not sys.stderr.isatty():
        yield None
        return
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        yield terminal


def _says_something(line: bytes) -> bool:
    return not _NOISE.fullmatch(line)


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

    LLVM ends the process for some faults, the system for others, and nothing in it has the time to
    say a word. So the text is kept in memory, and a small process that waits for this one's end
    holds that memory too: if this one dies, it passes the text on.
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
