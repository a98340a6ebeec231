"""Models are built without the garbage collector: millions of small objects without cycles.

A quarter of the time that passes take, of planning a third and of our own imports a fifth would go
into looking for some.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Nothing is collected in between, or by a function that this decorates."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
