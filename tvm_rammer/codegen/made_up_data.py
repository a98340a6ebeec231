"""Which rTask bodies can be measured on made-up data: all but those that zeros would end.

Whole numbers of a measurement are zeros, since they may be indices. A processor ends a process that
divides a whole number by zero.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


def divides_by_data(body: tirx.PrimFunc) -> bool:
    """Whether a body divides whole numbers by what it reads."""
    found: list[Any] = []

    def division(node: Any) -> None:
        if str(node.ty).startswith(("int", "uint")):
            tvm_ffi.structural_walk(node.b, (TensorLoad, found.append))

    tvm_ffi.structural_walk(body, (_DIVISIONS, division))
    return bool(found)
