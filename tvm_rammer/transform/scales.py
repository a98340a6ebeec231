"""Changes of scale between numbers and the steps that they are rounded to."""

from __future__ import annotations

from typing import Any

from tvm.ir import GenericConst

from tvm_rammer.relax_util import static_shape

QUANTIZE, DEQUANTIZE = "relax.quantize", "relax.dequantize"


def has_one_scale(call: Any) -> bool:
    """Whether a change of scale is the same for all elements, and known."""
    plain = all(
        isinstance(each, GenericConst) and each.value.numpy().size == 1 for each in call.args[1:]
    )
    return plain and bool(static_shape(call))
