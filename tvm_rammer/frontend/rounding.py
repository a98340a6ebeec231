"""Rounds float32 to bfloat16: what is cast and cast back at once would else stay as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx


def rounded_to_bfloat16(compute: Callable[..., Any], real: Any) -> Any:
    """A tensor of float32 in bfloat16, to the nearest, ties to even; NaN stays NaN.

    Parameters
    ----------
    compute : callable
        Emits what a function of ``te`` tensors computes of Relax expressions.
    real : relax.Expr
    """
    return relax.op.astype(compute(_rounded, real), "bfloat16")


def _rounded(tensor: te.Tensor) -> te.Tensor:
    def element(*places: tirx.Var) -> Any:
        value = tensor(*places)
        bits = tirx.reinterpret("uint32", value)
        # Half of what is cut off, less if the last bit that stays is even.
        half = tirx.const(0x7FFF, "uint32") + ((bits >> 16) & tirx.const(1, "uint32"))
        near = tirx.reinterpret("float32", (bits + half) & tirx.const(0xFFFF0000, "uint32"))
        return tirx.Select(tirx.isnan(value), value, near)

    return te.compute(tensor.shape, element, "rounded")
