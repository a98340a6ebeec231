"""CUDA without a GPU: kernels that TVM generates run on the CPU, under TVM's own host code.

``install`` makes ``tvm.cuda(0)`` the host's memory and compiles CUDA sources with g++ against a
header in which CUDA threads are fibers (``emulated.cpp`` schedules them). ``run_emulated`` does so
in a process of its own, as every later use of CUDA in a process is emulated.

Sources use what TVM generates for float32, float16 and integers, shuffles, ``__nanosleep``,
``__threadfence``, atomics, ``cuda::atomic_ref``, ``nvcuda::wmma`` on float16 and the inline PTX of
``inline_ptx``. A loop that waits for another block calls ``__nanosleep`` or loads by ``ld.acquire``
or ``atomic_ref``; one over a bare volatile works as well, slowly. Vectors that are not aligned are
an error, and so are tensor cores with a part of a warp. ``RAMMER_EMULATED`` is defined.

Memory is sequentially consistent, so a fence that is missing changes no result, nor does every
barrier that is; inside of ``looking_for_races`` both are errors. Warps never diverge inside of a
statement.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tvm  # noqa: F401  (brings the CPU's device API)
import tvm_ffi

from emulated_cuda.compile_source import compile_source, obstacle
from emulated_cuda.own_process import run_emulated

__all__ = [
    "ORDERS",
    "barriers",
    "compile_source",
    "edited",
    "install",
    "lane_order",
    "looking_for_races",
    "obstacle",
    "resident_blocks",
    "run_emulated",
    "time_limit",
    "without_barrier",
]

#: Lanes, warps and blocks forward, backward and shuffled.
ORDERS = (0, 1, 7)

Edit = Callable[[str], str]
_edits: list[Edit] = []
_races: list[bool] = []


def install() -> None:
    """Emulate CUDA in this process from now on; before anything asks for a device."""
    if why := obstacle():
        raise RuntimeError(why)
    cpu = tvm_ffi.get_global_func("device_api.cpu")
    tvm_ffi.register_global_func("device_api.cuda", lambda: cpu(), override=True)
    tvm_ffi.register_global_func("ffi.Module.create.cuda", _create, override=True)


def _create(code: bytes, form: str, functions: Any, sources: Any) -> Any:
    text = bytes(code).decode() if form == "cuda" else sources["cuda"]
    for edit in _edits:
        text = edit(text)
    kernels = {str(n): [str(t) for t in i.launch_param_tags] for n, i in functions.items()}
    return tvm_ffi.load_module(str(compile_source(text, kernels, bool(_races))))


@contextmanager
def edited(edit: Edit) -> Iterator[None]:
    """Change sources before they are compiled, or just look at them."""
    _edits.append(edit)
    try:
        yield
    finally:
        _edits.remove(edit)


@contextmanager
def looking_for_races() -> Iterator[None]:
    """What is compiled inside ends a launch with an error when accesses race, in any order."""
    _races.append(True)
    try:
        yield
    finally:
        _races.pop()


@contextmanager
def _environment(name: str, value: float) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = str(value)
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def lane_order(order: int) -> Any:
    """Launches inside run lanes, warps and blocks forward (0), backward (1) or by a seed."""
    return _environment("EMULATED_CUDA_ORDER", order)


def resident_blocks(most: int) -> Any:
    """Cooperative launches inside may have so many blocks: more are an error, as on a GPU."""
    return _environment("EMULATED_CUDA_RESIDENT", most)


def without_barrier(line: int) -> Any:
    """Launches inside pass by the ``__syncthreads`` of a line of the source, or -1: the grid's."""
    return _environment("EMULATED_CUDA_WITHOUT", line)


def barriers(source: str) -> list[int]:
    """The lines of a source with a ``__syncthreads``."""
    lines = enumerate(source.splitlines(), start=1)
    return [number for number, line in lines if "__syncthreads();" in line]


def time_limit(seconds: int) -> Any:
    """Launches inside that take longer end with an error."""
    return _environment("EMULATED_CUDA_SECONDS", seconds)
