"""Measured costs of rKernels, kept on disk between processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from tvm_rammer.machine import VDevice
from tvm_rammer.machine.cache import CacheFile

#: Raised when measuring or generating code changes, so that older results are not used.
FORMAT_VERSION = 3


def _check(seconds: float) -> None:
    if seconds <= 0:
        raise ValueError(f"is {seconds}; it must be positive")


_COSTS = CacheFile("kernel_costs.json", float, _check, most=20_000)


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
    stored = _COSTS.load()
    return {name: stored[key] for name, key in keys.items() if key in stored}


def store_costs(keys: Mapping[str, str], seconds: Mapping[str, float]) -> None:
    """Add measurements to those on disk."""
    _COSTS.add({keys[name]: value for name, value in seconds.items()})


def adopt_costs(folder: Path) -> None:
    """Add the measurements that processes with another cache folder left there."""
    _COSTS.add(_COSTS.load(folder))
