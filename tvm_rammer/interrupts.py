"""Ctrl-C, noticed whatever becomes of the KeyboardInterrupt on its way through TVM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts(again: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Notice Ctrl-C, and leave it to whoever handled it before; tells if there was one.

    TVM makes an error of its own of a KeyboardInterrupt, or none at all: a call of TVM that
    returns may have been interrupted.

    Parameters
    ----------
    again : callable
        Called at every interrupt after the first one.
    """
    happened = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def interrupt(*received: Any) -> None:
        if happened.is_set():
            again()
        happened.set()
        if callable(before):
            before(*received)
        raise KeyboardInterrupt

    # Only the main thread gets signals. Whoever started this may have asked for no interrupts, and
    # None is a handler of C's.
    if threading.current_thread() is not threading.main_thread() or before in (
        signal.SIG_IGN,
        None,
    ):
        yield happened.is_set
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield happened.is_set
    finally:
        signal.signal(signal.SIGINT, before)
