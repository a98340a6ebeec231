"""What the fuzzer calls a find: anything but the right answer or a refusal with a reason."""

from __future__ import annotations

import numpy as np

from tvm_rammer.errors import RammerError


class Find(Exception):
    """An answer that is wrong, or a refusal that helps nobody."""


def check_refusal(error: RammerError) -> str:
    """The verdict on a refusal: one line that can be shown."""
    text = str(error)
    if not text or "\n" in text or not text.isprintable():
        raise Find(f"a poor error: {text!r}")
    return "refused"


def compare(name: str, mine: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-3) -> None:
    """See whether an output is what another program computes, up to a part of the largest value."""
    if mine.dtype.kind == "V":
        return  # floats of 8 bits, for which numpy has no type, and ONNX Runtime no one name
    if mine.shape != wanted.shape or mine.dtype != wanted.dtype:
        raise Find(f"{name}: {mine.dtype}{mine.shape}, the other {wanted.dtype}{wanted.shape}")
    with np.errstate(all="ignore"):
        a, b = mine.astype(np.complex128), wanted.astype(np.complex128)
        known = np.isfinite(a) & np.isfinite(b)
        scale = max(1.0, float(np.abs(b[known]).max(initial=0.0)))
        worst = float(np.abs(a - b)[known].max(initial=0.0)) / scale
    if worst > (2e-2 if mine.dtype == np.float16 else tolerance):
        raise Find(f"{name}: wrong by {worst:.3g} of the largest value")
