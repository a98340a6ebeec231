"""What the terminal shows while something takes its time."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tvm_rammer.commands.command import plain_console
from tvm_rammer.commands.held_text import held_back
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
