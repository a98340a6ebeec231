"""What a build is doing at the moment, for whoever watches it: the command line, a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
Watcher = Callable[[str], None]

_watcher: ContextVar[Watcher | None] = ContextVar("tvm_rammer_watcher", default=None)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Have every step told to ``watcher``, in the words of :func:`tell`."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell(step: str) -> None:
    """Say what begins now, e.g. ``"compiling kernels"``."""
    if (watcher := _watcher.get()) is not None:
        watcher(step)


def tell_each(step: str, items: Sequence[Item]) -> Iterator[Item]:
    """The items, each with its number told; the watcher is that of the caller's thread."""
    watcher = _watcher.get()

    def told() -> Iterator[Item]:
        for number, item in enumerate(items, 1):
            if watcher is not None:
                watcher(f"{step} {number}/{len(items)}")
            yield item

    return told()
