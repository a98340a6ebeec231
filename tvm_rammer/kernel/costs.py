"""Measured costs of rKernels, kept on disk between processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from tvm_rammer.vdevice import VDevice
from tvm_rammer.vdevice.cache import load_json, store_json

#: Raised when measuring or generating code changes, so that older results are not used.
FORMAT_VERSION = 3
_FILE = "kernel_costs.json"
#: Older entries are dropped beyond this many.
_MAX_ENTRIES = 20_000


def cost_key(body: Any, num_tiles: int, target: Any, vdevice: VDevice) -> str:
    """What a measurement depends on: the code, its target, the CPU and our versions."""
    structure = tvm_ffi.structural_hash(body) & (2**64 - 1)
    return f"{FORMAT_VERSION}/{tvm.__version__}/{vdevice.name}/{target}/{num_tiles}/{structure:x}"


def load_costs(keys: Mapping[str, str]) -> dict[str, float]:
    """The seconds per tile that are known.

    Parameters
    ----------
    keys : mapping of str to str
        Key by kernel name.

    Returns
    -------
    dict of str to float
        By kernel name; kernels without a valid entry are missing.
    """
    stored = load_json(_FILE)
    stored = stored if isinstance(stored, dict) else {}
    found = {name: stored.get(key) for name, key in keys.items()}
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and 0 < value < float("inf")
    }


def store_costs(keys: Mapping[str, str], seconds: Mapping[str, float]) -> None:
    """Add measurements to those on disk."""
    _store({keys[name]: value for name, value in seconds.items()})


def adopt_costs(folder: Path) -> None:
    """Add the measurements that processes with another cache folder left there."""
    found = load_json(_FILE, folder)
    if isinstance(found, dict):
        _store(found)


def _store(fresh: Mapping[str, float]) -> None:
    stored = load_json(_FILE)
    merged = {**(stored if isinstance(stored, dict) else {}), **fresh}
    store_json(_FILE, dict(list(merged.items())[-_MAX_ENTRIES:]))
