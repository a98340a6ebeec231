"""Where neighbours of a sum are multiplied by one instruction, which adds their products too.

Processors multiply vectors of 16-bit integers and add two neighbouring products, and some multiply
bytes and add four, without loss: two and four times the products of float32's multiply-add. Both
factors have the neighbours side by side in each lane of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from tvm_rammer.backend.cpu.templates.columns import Columns, is_constant, is_contiguous
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.contraction import Axis, Contraction, load_of
from tvm_rammer.kernel.guards import guarded, mentions
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.machine import VDevice

_SUM = "int32"
#: How many neighbours there are, by the types of data and of weights.
_COUNTS = {("int16", "int16"): 2, ("uint8", "int8"): 4}
#: By the bytes of a vector, the features of which one has the instruction for pairs, or for fours.
_PAIRS = {16: {"sse2"}, 32: {"avx2"}, 64: {"avx512bw"}}
_FOURS = {32: {"avxvnni"}, 64: {"avx512vnni"}}


@dataclass(frozen=True)
class Neighbours:
    """A reduced axis of which a step takes so many elements."""

    axis: Axis
    count: int


def most_neighbours(vdevice: VDevice) -> int:
    """How many products of integers a device's vectors add at once at most; 1 if none."""
    for count, features in ((4, _FOURS), (2, _PAIRS)):
        if features.get(vdevice.vector_bytes, set()) & set(vdevice.features):
            return count
    return 1


def find_neighbours(
    contraction: Contraction, columns: Columns, constants: frozenset[int], vdevice: VDevice
) -> Neighbours | None:
    """The axis of a reduction whose neighbours are multiplied together, ``None`` if none are.

    The data must have them side by side in memory; weights are packed so.
    """
    data, weights = columns.data(contraction), columns.weights(contraction)
    if any(len(collect(factor, tirx.Cast)) != 1 for factor in (data, weights)):
        return None
    of_data, of_weights = (str(load_of(factor).source.dtype) for factor in (data, weights))
    count = _COUNTS.get((of_data, of_weights), 1)
    if (
        contraction.dtype != _SUM
        or not 1 < count <= most_neighbours(vdevice)
        or columns.elementwise
        or not is_constant(contraction, columns, constants)
    ):
        return None
    axis = contraction.reduced[-1]
    summed = axis.var in variables(load_of(weights).indices) and is_contiguous(axis, data)
    guards = guarded(data).guards
    along = axis.extent % count == 0 and summed
    apart = any(mentions(guard, [axis.var]) for guard in guards)
    return Neighbours(axis, count) if along and not apart else None
