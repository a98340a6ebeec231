"""What the terminal shows while something takes its time."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tvm_rammer.commands.command import plain_console

#: What TVM logs at every export and load, about nothing.
_NOISE = re.compile(rb"\[[\d:]+\] \S*executable\.cc:\d+: Warning: Scope (Saving|Loaded):\s*")


@contextmanager
def native_work(description: str) -> Iterator[None]:
    """Show what is being done, and for how long already; hold back TVM's empty log lines."""
    with progress() as display:
        display.add_task(description, total=None)
        with _without_noise():
            yield


@contextmanager
def progress(bar: bool = False) -> Iterator[Progress]:
    """A display of progress on standard error if that is a terminal, else one that shows nothing.

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
    if not sys.stderr.isatty():
        yield Progress(*columns, disable=True)
        return
    # A descriptor of its own: the display goes on while descriptor 2 is held back.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        console = plain_console(file=terminal, force_terminal=True)
        with Progress(*columns, console=console, transient=True) as display:
            yield display


@contextmanager
def _without_noise() -> Iterator[None]:
    """Collect what is written to descriptor 2, and pass on afterwards what says something."""
    sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            said = b"".join(line for line in held if not _NOISE.fullmatch(line))
            with suppress(OSError):
                os.write(2, said)
