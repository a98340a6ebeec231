"""Machine code for the emulated driver: libraries for GPUs that run in a process of their own.

Such a library is written, loaded and run by what would do so for a GPU, TVM's runtime for CUDA
included: only the compiler, the driver and its runtime library are others.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from bench.packed_runtime import cudart_name

from emulated_cuda.compile_source import compile_source, driver_folder, obstacle
from tvm_rammer.backend.cuda.codegen import machine_code
from tvm_rammer.backend.cuda.cubin import Cubin

_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(')


def driver_obstacle() -> str:
    """Why libraries cannot be written for the emulated driver; empty if they can."""
    try:
        # What TVM's runtime for CUDA needs, which writes them.
        ctypes.CDLL(cudart_name())
    except OSError:
        return f"{cudart_name()} is not there, of CUDA's runtime"
    return obstacle()


@contextmanager
def emulated_machine_code() -> Iterator[None]:
    """Libraries for CUDA that are written inside hold what the emulated driver runs."""

    def compile_emulated(source: str, arch: str, *flags: str) -> Cubin:
        kernels = {name: () for name in _KERNEL.findall(source)}
        return Cubin(arch, compile_source(source, kernels).read_bytes(), ())

    with (
        mock.patch.object(machine_code, "compile_cubin", compile_emulated),
        mock.patch.object(machine_code, "find_tool", lambda name: Path(name)),
    ):
        yield


def driver_environment(**settings: str | int) -> dict[str, str]:
    """The environment of a process that finds the emulated driver.

    Parameters
    ----------
    **settings : str or int
        Such as ``arch=80`` for ``EMULATED_CUDA_ARCH``; see ``driver.cpp``.
    """
    given = {f"EMULATED_CUDA_{name.upper()}": str(value) for name, value in settings.items()}
    return {**os.environ, "LD_LIBRARY_PATH": str(driver_folder()), **given}
