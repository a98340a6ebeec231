"""Which vEU has the bytes of an intermediate result in its cache: the one that wrote them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tvm_rammer.rprogram.program import RProgram, cells_by_row
from tvm_rammer.rprogram.rows import root_of

Floats = npt.NDArray[np.float64]

#: Equal pieces of a buffer whose owners are told apart: the rows of its cells.
PIECES = 8


def owners_of(program: RProgram) -> Floats:
    """``[buffer, piece, vEU]``: the share of a piece's bytes that each vEU writes.

    Buffers that no task writes belong to all vEUs alike. The parts of a buffer have the rows that
    it has: what is written to them is written to their whole.
    """
    owners = np.zeros((len(program.buffers), PIECES, program.num_veus))
    for veu, _, task in program.tasks():
        operator = program.operators[task.operator]
        kernel = program.kernels[operator.kernel]
        for pointer, buffer in enumerate(operator.arguments):
            if kernel.modes[pointer] == "write":
                cells = cells_by_row(kernel.touched(pointer, task.start, task.stop), PIECES)
                nbytes = program.buffers[buffer].nbytes
                owners[root_of(program.buffers, buffer), :, veu] += nbytes * np.array(cells)
    written = owners.sum(axis=2, keepdims=True)
    return np.divide(
        owners, written, out=np.full_like(owners, 1 / program.num_veus), where=written > 0
    )
