"""Where neighbours of a sum are multiplied by one instruction, which adds their products too.

Processors multiply vectors of 16-bit integers and add two neighbouring products, and some multiply
bytes and add four, without loss: two and four times the products of float32's multiply-add. Some do
that with pairs of bfloat16 as well, whose sums are float32. Both factors have the neighbours side
by side in each lane of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import tirx

from tvm_rammer.backend.cpu.templates.columns import Columns, is_constant, is_contiguous
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.contraction import Axis, Contraction, load_of
from tvm_rammer.kernel.guards import guarded, mentions
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.machine import VDevice


@dataclass(frozen=True)
class _Instruction:
    """Adds so many products to each of its ``sums``.

    By the bytes of a vector, the features of which a processor has one if it has the instruction.
    """

    sums: str
    count: int
    features: Mapping[int, set[str]]


#: By the types of data and of weights.
_INSTRUCTIONS = {
    ("uint8", "int8"): _Instruction("int32", 4, {32: {"avxvnni"}, 64: {"avx512vnni"}}),
    ("int16", "int16"): _Instruction("int32", 2, {16: {"sse2"}, 32: {"avx2"}, 64: {"avx512bw"}}),
    ("bfloat16", "bfloat16"): _Instruction("float32", 2, {64: {"avx512bf16"}}),
}


@dataclass(frozen=True)
class Neighbours:
    """A reduced axis of which a step takes so many elements."""

    axis: Axis
    count: int


def most_neighbours(vdevice: VDevice) -> int:
    """How many products of integers a device's vectors add at once at most; 1 if none."""
    integers = (each for each in _INSTRUCTIONS.values() if each.sums == "int32")
    return max((each.count for each in integers if _has(vdevice, each)), default=1)


def _has(vdevice: VDevice, instruction: _Instruction) -> bool:
    features = instruction.features.get(vdevice.vector_bytes, set())
    return bool(features & set(vdevice.features))


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
    instruction = _INSTRUCTIONS.get((of_data, of_weights))
    if (
        instruction is None
        or contraction.dtype != instruction.sums
        or not _has(vdevice, instruction)
        or columns.elementwise
        or not is_constant(contraction, columns, constants)
    ):
        return None
    count = instruction.count
    axis = contraction.reduced[-1]
    summed = axis.var in variables(load_of(weights).indices) and is_contiguous(axis, data)
    along = axis.extent % count == 0 and summed
    read = guarded(data)
    apart = any(mentions(guard, [axis.var]) for guard in read.guards)
    # Integers are put together whatever they are; floats must lie side by side.
    plain = contraction.dtype == "int32" or isinstance(read.element, tirx.Cast)
    return Neighbours(axis, count) if along and plain and not apart else None
