"""The plan: its data types, and what can be done with a plan without a device.

- ``program``: the data types; ``graph``: what policies schedule; ``rows``: the bytes of buffers
- ``structure``, ``happens_before``, ``verify``: the proof that a plan is safe
- ``updates``: outputs that may lie in the memory of inputs
- ``interpret``: plans run on the host, in any legal interleaving
- ``serialize``, ``printing``: plans as JSON, and for people
"""

from tvm_rammer.rprogram.graph import Operator, OperatorGraph
from tvm_rammer.rprogram.happens_before import Clocks, linear_extension, vector_clocks
from tvm_rammer.rprogram.interpret import (
    Interpreter,
    interpret_numeric,
    legal_interleavings,
)
from tvm_rammer.rprogram.printing import format_program
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
from tvm_rammer.rprogram.serialize import from_json, to_json
from tvm_rammer.rprogram.updates import updated_in_place
from tvm_rammer.rprogram.verify import verify

__all__ = [
    "ALIGNMENT",
    "Buffer",
    "Clocks",
    "Interpreter",
    "Operator",
    "OperatorGraph",
    "RKernel",
    "ROperator",
    "RProgram",
    "RTask",
    "Wait",
    "aligned",
    "dtype_bytes",
    "format_program",
    "from_json",
    "interpret_numeric",
    "legal_interleavings",
    "linear_extension",
    "to_json",
    "updated_in_place",
    "vector_clocks",
    "verify",
]
