"""Products and convolutions of integers: how many are added at once, and one of other operands.

Vectors that multiply neighbours, two of 16 bits or four bytes, need them side by side in memory.
Bytes are worth it where four do not divide the sum, too: zeros are added to the weights. Against
pairs, windows that move by one element over more than a few stay with Winograd's algorithm, which
needs fewer products still, but more weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst

from tvm_rammer.relax_util import operator_name, static_shape
from tvm_rammer.tensors import as_array, constant

MATMUL, CONVOLUTION = "relax.matmul", "relax.nn.conv2d"
#: Convolutions, whose kernels have their outputs along an axis that their layout calls O.
CONVOLUTIONS = {"relax.nn.conv1d": relax.op.nn.conv1d, CONVOLUTION: relax.op.nn.conv2d}
#: Operators whose results are elements of their first operand.
MOVING = frozenset(
    f"relax.{name}"
    for name in ("permute_dims", "reshape", "squeeze", "expand_dims", "strided_slice")
)
#: Types of 8 bits: less a number of the type, their numbers are integers of 16 bits.
BYTES = frozenset({"int8", "uint8"})
#: Fewer columns fill no vector.
_FEWEST_COLUMNS = 8
#: For so few places Winograd's algorithm takes longer to read its weights, four times as many, than
#: it saves.
_FEW_PLACES = 64
#: How many products of bytes are added at once, and how many of 16 bits.
FOUR, PAIR = 4, 2
#: What a byte with a sign is more without one.
_SHIFT = 128

Shape = tuple[int, ...]
Emit = Callable[[Any], Any]


@dataclass(frozen=True)
class IntegerProducts:
    """What pays on a device.

    Attributes
    ----------
    few_rows : int
        A product with so many rows or fewer takes as long as reading its weights, which are smaller
        as bytes than in pairs.
    neighbours : int
        How many products are added at once: 4 of bytes and 2 of 16 bits, 2 alone, or 1: none.
    """

    few_rows: int = 0
    neighbours: int = 1

    def together(self, call: Any, most: int = FOUR) -> int:
        """How many neighbours a product with constant weights takes least time with.

        Parameters
        ----------
        call : Call
            Whatever the types of its operands are.
        most : int
            2 where its operands are no bytes.

        Returns
        -------
        int
            1 for what is no such product, or faster otherwise.
        """
        name = operator_name(call)
        if name not in (MATMUL, CONVOLUTION) or not isinstance(call.args[1], GenericConst):
            return 1
        data, weights = map(static_shape, call.args)
        if data is None or weights is None or not prod((*data, *weights)):
            return 1
        if not (_is_matrix(weights) if name == MATMUL else _is_plain(call, weights)):
            return 1
        most, summed = min(most, self.neighbours), data[-1]
        if most == FOUR and summed > 1:
            return FOUR
        few_rows = name == MATMUL and prod(data[:-1]) <= self.few_rows
        is_winograds = name == CONVOLUTION and _is_winograds(call, weights)
        return 1 if summed % PAIR or few_rows or is_winograds else min(most, PAIR)


def _is_matrix(weights: Shape) -> bool:
    return len(weights) == 2 and weights[-1] >= _FEWEST_COLUMNS


def _is_plain(call: Any, weights: Shape) -> bool:
    attrs = call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    plain = layouts == ("NHWC", "OHWI", "NHWC") and int(attrs.groups) == 1
    return plain and weights[0] >= _FEWEST_COLUMNS


def _is_winograds(convolution: Any, weights: Shape) -> bool:
    """Whether Winograd's algorithm is better, which takes windows that move by one element."""
    _, *places, _ = static_shape(convolution) or ()
    moves_by_one = all(int(stride) == 1 for stride in convolution.attrs.strides)
    return moves_by_one and prod(weights[1:3]) > 1 and prod(places) > _FEW_PLACES


@dataclass(frozen=True)
class Integers:
    """``values - point``.

    Attributes
    ----------
    values : Expr
        Of uint8, or of int16 and without a point.
    point : int or Expr
        One number of int32.
    """

    values: Any
    point: Any = 0

    def moved(self, emit: Emit, call: Any) -> Integers:
        """The integers as a call moves what they stand for, its first operand."""
        _, *more = call.args
        return Integers(emit(Call(call.op, [self.values, *more], call.attrs)), self.point)


def small_integers(emit: Emit, data: Any, point: Any, count: int) -> Integers:
    """Bytes less a point, as an instruction takes them that adds ``count`` products."""
    is_known = isinstance(point, int)
    if count < FOUR:
        wide = emit(relax.op.astype(data, "int16"))
        if is_known and not point:
            return Integers(wide)
        small = constant(np.array(point, np.int16)) if is_known else relax.op.astype(point, "int16")
        return Integers(emit(relax.op.subtract(wide, small)))
    if str(data.ty.dtype) == "uint8":
        return Integers(data, point)
    wide = emit(relax.op.astype(data, "int16"))
    shifted = emit(relax.op.add(wide, constant(np.array(_SHIFT, np.int16))))
    unsigned = emit(relax.op.astype(shifted, "uint8"))
    if is_known:
        return Integers(unsigned, point + _SHIFT)
    return Integers(unsigned, emit(relax.op.add(point, constant(np.array(_SHIFT, np.int32)))))


@dataclass(frozen=True)
class SmallWeights:
    """Constant weights as an instruction takes them that adds ``count`` products.

    Calls that share weights share these: steps of an LSTM would each have weights of their own.

    Attributes
    ----------
    constant : Constant
        Of int8, or of int16 for pairs, with zeros where neighbours are missing.
    totals : Constant
        The sum of each output's weights, of int32.
    count : int
    """

    constant: Any
    totals: Any
    count: int

    @classmethod
    def of(cls, call: Any, weights: np.ndarray, count: int) -> SmallWeights:
        """The weights of a call, which are integers that are small enough."""
        is_matmul = operator_name(call) == MATMUL
        summed = (0,) if is_matmul else tuple(range(1, weights.ndim))
        totals = weights.sum(axis=summed, dtype=np.int32)
        widths = [(0, 0)] * weights.ndim
        last = 0 if is_matmul else -1
        widths[last] = 0, -weights.shape[last] % count
        small = np.pad(weights.astype("int8" if count == FOUR else "int16"), widths)
        return cls(constant(small), constant(totals), count)


def sums_of(emit: Emit, call: Any, data: Integers, weights: SmallWeights) -> Any:
    """The sums, of int32, of a product or convolution of integers.

    Data are padded where neighbours are missing, and where a window would meet zeros in place of
    the point. What the point adds to a sum is the same for all places.

    Parameters
    ----------
    emit : callable
        Puts an expression into the function.
    call : Call
        Of other operands.
    data : Integers
        Where a window meets zeros, their point is known, and a value.
    weights : SmallWeights
    """
    shape = static_shape(data.values)
    assert shape is not None
    missing = (0, -shape[-1] % weights.count)
    widths, point = [*([(0, 0)] * (len(shape) - 1)), missing], 0
    moves: dict[str, Sequence[int]] = {}
    if meets_zeros(call) and data.point != 0:
        assert isinstance(data.point, int)
        point = data.point
        top, left, bottom, right = map(int, call.attrs.padding)
        widths, moves = [(0, 0), (top, bottom), (left, right), missing], {"padding": (0, 0, 0, 0)}
    values = data.values
    if any(map(sum, widths)):
        values = emit(relax.op.nn.pad(values, [*chain(*widths)], pad_value=point))
    sums = with_operands(call, values, weights.constant, "int32", **moves)
    if not isinstance(data.point, int):
        return relax.op.subtract(emit(sums), emit(relax.op.multiply(weights.totals, data.point)))
    if not data.point:
        return sums
    beyond = as_array(weights.totals.value) * np.int32(data.point)
    return relax.op.subtract(emit(sums), constant(beyond))


def has_one_element(operand: Any) -> bool:
    """Whether a tensor is a number, whatever its rank."""
    shape = static_shape(operand)
    return shape is not None and prod(shape) == 1


def meets_zeros(call: Any) -> bool:
    """Whether a window of a convolution reaches beyond the data."""
    return operator_name(call) == CONVOLUTION and any(map(int, call.attrs.padding))


def with_operands(
    call: Any, data: Any, weights: Any, dtype: str | None = None, **changes: Any
) -> Any:
    """The same product or convolution of other operands; ``dtype`` of the sums is theirs if not
    given, and strides, padding, dilation and layouts of a convolution its own.
    """
    name, attrs = operator_name(call), call.attrs
    if name == MATMUL:
        return relax.op.matmul(data, weights, out_dtype=dtype)

    def wanted(key: str) -> Any:
        return changes.get(key, getattr(attrs, key))

    return CONVOLUTIONS[name](
        data,
        weights,
        **{key: list(map(int, wanted(key))) for key in ("strides", "padding", "dilation")},
        **{key: str(wanted(key)) for key in ("data_layout", "kernel_layout", "out_layout")},
        groups=int(attrs.groups),
        out_dtype=dtype,
    )
