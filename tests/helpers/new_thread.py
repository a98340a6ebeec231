"""Work in a thread of its own, to which TVM gives a pool of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def in_new_thread(work: Callable[[], Result]) -> Result:
    """What the work returns."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]
