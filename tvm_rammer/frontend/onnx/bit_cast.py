"""``BitCast``: elements as others that have the same bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import TensorProto
from tvm import relax

from tvm_rammer.frontend.same_bits import same_bits

#: Types that TVM computes with, by their widths in bits.
_WIDTHS = {
    8: ("bool", "int8", "uint8"),
    16: ("bfloat16", "float16", "int16", "uint16"),
    32: ("float32", "int32", "uint32"),
    64: ("float64", "int64", "uint64"),
}
_WIDTH_OF = {dtype: width for width, dtypes in _WIDTHS.items() for dtype in dtypes}
_ONNX_NAMES = {"float32": "float", "float64": "double"}
_DTYPES = {
    getattr(TensorProto, _ONNX_NAMES.get(dtype, dtype).upper()): dtype for dtype in _WIDTH_OF
}


def bit_cast(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr:
    """To the type ``to``; of a byte as a truth value all but 0 is true.

    Raises
    ------
    ValueError
        When there are no such elements, or they are of another width.
    """
    (x,) = inputs
    given = str(x.ty.dtype)
    wanted = _DTYPES.get(attributes["to"], "")
    if given not in _WIDTH_OF or not wanted:
        name = TensorProto.DataType.Name(attributes["to"]).lower()
        raise ValueError(f"elements of {given} cannot become elements of {name}")
    if _WIDTH_OF[given] != _WIDTH_OF[wanted]:
        raise ValueError(f"elements of {given} and of {wanted} have different widths")
    if given == wanted:
        return x
    if "bool" in (given, wanted):
        return relax.op.astype(x, wanted)
    return bb.emit_te(same_bits, x, wanted)
