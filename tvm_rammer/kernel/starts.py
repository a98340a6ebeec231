"""What reductions start from: extrema of floats from infinity.

TVM starts them from the last finite number: a row of infinities alone would not stay one.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from tvm_rammer.kernel.blocks import block_with


def start_value(combine: Any, dtype: str) -> Any:
    """What a combination starts from."""
    if combine is tirx.Add or combine is tirx.Mul:
        return tirx.const(0 if combine is tirx.Add else 1, dtype)
    if "float" in dtype:
        return tirx.const(float("-inf" if combine is tirx.Max else "inf"), dtype)
    return tirx.min_value(dtype) if combine is tirx.Max else tirx.max_value(dtype)


def start_of(block: s_tir.SBlock) -> Any:
    """The statement that a reducing block begins with; extrema of floats from infinity."""
    start, value = block.init, getattr(block.body, "value", None)
    if not isinstance(value, tirx.Max | tirx.Min) or not isinstance(start.value, tirx.FloatImm):
        return start
    infinity = start_value(type(value), str(start.value.ty))
    return tirx.BufferStore(start.buffer, infinity, start.indices)


def with_infinite_starts(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A PrimFunc whose maxima start from minus infinity, and minima from infinity."""

    def started(block: s_tir.SBlock) -> Any:
        start = start_of(block) if block.init is not None else None
        if start is None or start.same_as(block.init):
            return block
        return block_with(block, init=start)

    return func.with_body(tvm_ffi.structural_map(func.body, (s_tir.SBlock, started)))
