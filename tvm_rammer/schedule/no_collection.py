"""Plans are made without the garbage collector: they are millions of small objects without cycles.

A third of the time of planning would go into looking for some.
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
