"""Elements as others that have the same bits, for both importers."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx


def same_bits(tensor: te.Tensor, dtype: str) -> te.Tensor:
    """A tensor whose elements are of another type of the same width, and no truth values."""

    def element(*at: tirx.Var) -> Any:
        value, given = tensor(*at), str(tensor.dtype)
        if given == "bfloat16":
            # TVM reinterprets none of several elements at once; they are halves of float32.
            whole = tirx.reinterpret("uint32", value.astype("float32"))
            value, given = (whole >> tirx.const(16, "uint32")).astype("uint16"), "uint16"
        return value if given == dtype else tirx.reinterpret(dtype, value)

    return te.compute(tensor.shape, element, "bits")
