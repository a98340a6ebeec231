"""Models are read and built by one thread at a time.

TVM's importers and PyTorch's decompositions keep what they work on in places that all threads of a
process share, as standard output is.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Turn:
    """Who has the turn; in a process that was forked nobody has."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.RLock()


_TURN = _Turn()


def one_at_a_time(function: Callable[P, R]) -> Callable[P, R]:
    """A function that waits until no other thread is in one that this decorates."""

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with _TURN.lock:
            return function(*args, **kwargs)

    return alone
