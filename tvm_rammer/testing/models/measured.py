"""The statistics of the zoo's models, counted once for every state of their builders."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import cache
from pathlib import Path

import onnx

from tvm_rammer.machine.cache import CacheFile
from tvm_rammer.testing.models.statistics import ModelStatistics, statistics
from tvm_rammer.testing.models.zoo import ModelInfo

_COUNTED = CacheFile("model_statistics.json", ModelStatistics)


def known_statistics(info: ModelInfo, tiny: bool = False) -> ModelStatistics:
    """Count a model, unless the builders as they are now have been counted before.

    Parameters
    ----------
    info : ModelInfo
    tiny : bool
        At the size for quick tests.
    """
    name = f"{info.name} (tiny)" if tiny else info.name
    key = f"{_builders()}/{name}"
    known: ModelStatistics | None = _COUNTED.load().get(key)
    if known is None:
        known = statistics(info.tiny() if tiny else info.build())
        _COUNTED.add({key: asdict(known)})
    return known


@cache
def _builders() -> str:
    """What the counts depend on: the sources of this folder, and onnx, which brings some graphs."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(onnx.__version__.encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()
