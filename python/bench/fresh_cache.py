"""A cache in which a model is new: what is known of the machine, and nothing of models."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tvm_rammer.machine.cache import cache_directory

#: What a build measures of a model's kernels and plans, not of the machine.
_MODEL_CACHES = ("kernel_costs.json", "model_statistics.json")


@contextmanager
def fresh_cache() -> Iterator[Path]:
    """A folder with what is known of this machine, and nothing of models."""
    with tempfile.TemporaryDirectory() as folder:
        for file in cache_directory().glob("*.json"):
            if file.name not in _MODEL_CACHES:
                shutil.copy(file, folder)
        yield Path(folder)
