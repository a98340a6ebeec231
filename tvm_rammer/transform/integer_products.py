"""Products and convolutions of integers: which are taken in pairs, and one of other operands.

Vectors that multiply pairs of 16-bit integers need pairs of data side by side in memory, and an
even number of them. Windows that move by one element over more than a few stay with Winograd's
algorithm, which needs fewer products still, but more weights.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax
from tvm.ir import GenericConst

from tvm_rammer.relax_util import operator_name, static_shape

MATMUL, CONVOLUTION = "relax.matmul", "relax.nn.conv2d"
#: Convolutions, whose kernels have their outputs along an axis that their layout calls O.
CONVOLUTIONS = {"relax.nn.conv1d": relax.op.nn.conv1d, CONVOLUTION: relax.op.nn.conv2d}
#: Fewer columns fill no vector.
_FEWEST_COLUMNS = 8
#: For so few places Winograd's algorithm takes longer to read its weights, four times as many, than
#: it saves.
_FEW_PLACES = 64


def gains_by_pairs(call: Any, few_rows: int) -> bool:
    """Whether a call is a product with constant weights that takes less time in pairs.

    Parameters
    ----------
    call : Call
        Whatever the types of its operands are.
    few_rows : int
        A product with so many rows or fewer takes as long as reading its weights.
    """
    name = operator_name(call)
    if name not in (MATMUL, CONVOLUTION) or not isinstance(call.args[1], GenericConst):
        return False
    data, weights = map(static_shape, call.args)
    if data is None or weights is None or not prod((*data, *weights)):
        return False
    if name == MATMUL:
        is_even, many_rows = data[-1] % 2 == 0, prod(data[:-1]) > few_rows
        return is_even and many_rows and len(weights) == 2 and weights[-1] >= _FEWEST_COLUMNS
    attrs = call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    return (
        layouts == ("NHWC", "OHWI", "NHWC")
        and int(attrs.groups) == 1
        and not _is_winograds(call, prod(weights[1:3]))
        and weights[0] >= _FEWEST_COLUMNS
        and weights[-1] % 2 == 0
    )


def _is_winograds(convolution: Any, window: int) -> bool:
    """Whether Winograd's algorithm is better, which takes windows that move by one element."""
    _, *places, _ = static_shape(convolution) or ()
    moves_by_one = all(int(stride) == 1 for stride in convolution.attrs.strides)
    return moves_by_one and window > 1 and prod(places) > _FEW_PLACES


def with_operands(call: Any, data: Any, weights: Any, dtype: str | None = None) -> Any:
    """The same product or convolution of other operands; ``dtype`` of the sums is theirs if not
    given.
    """
    name, attrs = operator_name(call), call.attrs
    if name == MATMUL:
        return relax.op.matmul(data, weights, out_dtype=dtype)
    return CONVOLUTIONS[name](
        data,
        weights,
        strides=list(map(int, attrs.strides)),
        padding=list(map(int, attrs.padding)),
        dilation=list(map(int, attrs.dilation)),
        groups=int(attrs.groups),
        data_layout=str(attrs.data_layout),
        kernel_layout=str(attrs.kernel_layout),
        out_layout=str(attrs.out_layout),
        out_dtype=dtype,
    )
