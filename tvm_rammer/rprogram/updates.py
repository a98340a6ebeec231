"""Outputs of a plan that may lie in the memory of an input: a tensor of which a part is replaced.

The plan and its proof are the same for tensors that lie apart. The one operator that reads the
input writes the output; each of its tiles reads no element but those that it writes, before it
writes them, and no two tiles write the same one. So nothing is read after it was replaced, in
whatever order tiles run.
"""

from __future__ import annotations

from collections import Counter

from tvm_rammer.rprogram.program import RProgram


def updated_in_place(program: RProgram) -> dict[int, int]:
    """The inputs whose memory outputs may lie in, by the numbers of the outputs."""
    buffers = program.buffers
    uses = Counter(place for operator in program.operators for place in operator.arguments)
    uses.update(buffer.index for buffer in buffers if buffer.space == "part")
    found: dict[int, int] = {}
    for number, operator in enumerate(program.operators):
        pair = program.kernel_of(number).in_place
        if pair is None:
            continue
        source, result = (operator.arguments[pointer] for pointer in pair)
        old, new = buffers[source], buffers[result]
        outside = (old.space, new.space) == ("input", "output")
        if outside and uses[source] == 1 and old.nbytes == new.nbytes:
            found[new.index] = old.index
    return found
