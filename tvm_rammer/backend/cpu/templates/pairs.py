"""Where neighbours of a sum are multiplied in pairs.

Processors multiply vectors of 16-bit integers and add neighbouring products in one instruction,
without loss: twice the products of float32's multiply-add. Both factors have the pairs side by
side in each lane of a vector.
"""

from __future__ import annotations

from tvm_rammer.backend.cpu.templates.columns import Columns, is_constant, is_contiguous
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.contraction import Axis, Contraction, load_of
from tvm_rammer.kernel.guards import guarded, mentions
from tvm_rammer.kernel.loops import PAIR
from tvm_rammer.machine import VDevice

_FACTOR, _SUM = "int16", "int32"
#: By the bytes of a vector, the feature that has the instruction.
_FEATURES = {16: "sse2", 32: "avx2", 64: "avx512bw"}


def multiplies_pairs(vdevice: VDevice) -> bool:
    """Whether a device's vectors multiply pairs of 16-bit integers."""
    return _FEATURES.get(vdevice.vector_bytes) in vdevice.features


def pair_axis(
    contraction: Contraction, columns: Columns, constants: frozenset[int], vdevice: VDevice
) -> Axis | None:
    """The axis of a reduction whose neighbours are multiplied in pairs, ``None`` if none are.

    The data must have them side by side in memory; weights are packed so.
    """
    data, weights = columns.data(contraction), columns.weights(contraction)
    dtypes = [str(load_of(factor).source.dtype) for factor in (data, weights)]
    if (
        contraction.dtype != _SUM
        or dtypes != [_FACTOR] * PAIR
        or columns.elementwise
        or not multiplies_pairs(vdevice)
        or not is_constant(contraction, columns, constants)
    ):
        return None
    axis = contraction.reduced[-1]
    summed = axis.var in variables(load_of(weights).indices) and is_contiguous(axis, data)
    guards = guarded(data).guards
    along = axis.extent % PAIR == 0 and summed
    return axis if along and not any(mentions(guard, [axis.var]) for guard in guards) else None
