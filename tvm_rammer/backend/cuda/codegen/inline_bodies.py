"""Changes what TVM cannot say in the text of our kernels: inlined bodies, and blocks on an SM.

A body that is called keeps registers of its caller in memory; inlined, it is as if it were written
where it runs. And ptxas uses what registers there are, unless it is told how many blocks an SM is
to run at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tvm_ffi

#: TVM calls this function with the text of every kernel that it generates.
_HOOK = "tvm_callback_cuda_postproc"
_BODY = 'extern "C" __device__ int'
_INLINED = "__device__ __forceinline__ int"
_BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")


def with_inlined_bodies(text: str, blocks_per_sm: int) -> str:
    """CUDA C of ours as it is to be compiled."""
    text = text.replace(_BODY, _INLINED)
    return _BOUNDS.sub(rf"__launch_bounds__(\1, {blocks_per_sm})", text)


@contextmanager
def inlined_bodies(blocks_per_sm: int) -> Iterator[None]:
    """What TVM generates inside, in this or another thread, is changed if it is ours."""
    before = tvm_ffi.get_global_func(_HOOK, allow_missing=True)

    def change(text: str, target: Any) -> str:
        text = str(text if before is None else before(text, target))
        return with_inlined_bodies(text, blocks_per_sm)

    tvm_ffi.register_global_func(_HOOK, change, override=True)
    try:
        yield
    finally:
        if before is None:
            tvm_ffi.registry.remove_global_func(_HOOK)
        else:
            tvm_ffi.register_global_func(_HOOK, before, override=True)
