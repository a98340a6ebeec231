"""The plan: its data types, and what can be done with a plan without a device."""

from tvm_rammer.rprogram.graph import Operator, OperatorGraph
from tvm_rammer.rprogram.program import (
    ALIGNMENT,
    Buffer,
    RKernel,
    ROperator,
    RProgram,
    RTask,
    Wait,
    aligned,
    dtype_bytes,
)

__all__ = [
    "ALIGNMENT",
    "Buffer",
    "Operator",
    "OperatorGraph",
    "RKernel",
    "ROperator",
    "RProgram",
    "RTask",
    "Wait",
    "aligned",
    "dtype_bytes",
]
