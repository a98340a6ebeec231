"""A compiler pass that keeps weights short where reading them is what a product waits for.

A quantised model's weights are integers of 8 bits or fewer times a scale, and importers turn them
into floating-point numbers of four times the size. A product of few rows takes as long as its
weights take to be read, so there they become short again: bytes are widened in registers, and the
scale multiplies the sums; of blocks with a scale of their own each, and perhaps an offset, integers
of 2 and 4 bits share words. So do integers times scales that were rounded to floats of 16 bits:
they lose the rounding. Weights that were trained or kept as floats of 16 bits become these
again, without a scale. Many rows use what was widened several times: they lose nothing, and win
where weights come from memory. What counts are the numbers, not where a model has them from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax, te
from tvm.ir import GenericConst

from tvm_rammer.kernel.block_scaled import block_scaled_product, packed_integers
from tvm_rammer.relax_util import ANCHOR, calls_of, operator_name, rewrite, static_shape
from tvm_rammer.tensors import as_array, constant
from tvm_rammer.transform.affine_blocks import affine_blocks
from tvm_rammer.transform.few_bits import few_bits
from tvm_rammer.transform.scaled_bytes import scaled_bytes

#: Fewer weights stay in a near cache, from where they are read as fast as they are widened.
_FEWEST_WEIGHTS = 1 << 14
#: The same for floats of 16 bits and a single row, and for those that take a shift more.
_FEWEST_HALVES = {"float16": 1 << 16, "bfloat16": 1 << 17}
_HALVES = tuple(_FEWEST_HALVES)
#: More bytes than this come from memory in every run: to read half of them is worth more than
#: several rows, or few weights at a time, lose.
_NEAR_BYTES = 1 << 25


@tvm.transform.module_pass(opt_level=0, name="NarrowWeights")
class NarrowWeights:
    """Keep the weights of products as integers times scales, or as floats of 16 bits.

    Parameters
    ----------
    few_rows : int
        Products with more rows take longer than reading their weights does: there weights are short
        only where they come from memory. None are if it is 0.
    short_floats : tuple of str
        Types of 16 bits that weights and scales may have, the best first.
    """

    def __init__(self, few_rows: int, short_floats: tuple[str, ...] = ()) -> None:
        self.few_rows = few_rows
        self.short_floats = short_floats

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        if self.few_rows == 0:
            return mod
        narrow = _narrow_weights(mod, self.few_rows, self.short_floats)
        return rewrite(mod, _Narrower(mod, narrow)) if narrow else mod


@dataclass(frozen=True)
class _Short:
    """What stands for weights: operands of a product of a few ``bits``, or a matrix, its scale."""

    operands: tuple[Any, ...]
    scale: Any = None
    bits: int = 0


def _narrow_weights(
    mod: tvm.IRModule, few_rows: int, short_floats: tuple[str, ...]
) -> dict[Any, _Short]:
    """What may stand for weights that may be shorter."""
    rows: dict[Any, int] = {}
    for call in calls_of(mod):
        if _reads_weights(call):
            weights = call.args[1].value
            rows[weights] = max(rows.get(weights, 0), _rows(call))
    far = sum(as_array(weights).nbytes for weights in rows) > _NEAR_BYTES

    def worth(name: str, weights: np.ndarray, count: int) -> bool:
        return far or (count == 1 and weights.size >= _FEWEST_HALVES[name])

    def short(weights: np.ndarray, count: int) -> _Short | None:
        if weights.dtype.name in _HALVES:
            # They are read in half of the time: from near in less than widening integers takes, and
            # from memory so by half as many rows.
            return _of_integers(weights, short_floats) if far and 2 * count <= few_rows else None
        # From near, many rows read wide weights as fast as short ones.
        if count > few_rows and not (far and weights.dtype == np.float32):
            return None
        halves = [*_halves(weights)]
        for each in (weights, *halves):
            if (found := _of_integers(each, short_floats)) is not None:
                return found
        names = [name for name in short_floats if worth(name, weights, count)]
        return next((_Short((constant(h),)) for h in halves if h.dtype.name in names), None)

    found = {weights: short(as_array(weights), count) for weights, count in rows.items()}
    return {weights: each for weights, each in found.items() if each is not None}


def _of_integers(weights: np.ndarray, short_floats: Sequence[str]) -> _Short | None:
    """Integers times scales, perhaps with an offset."""
    found = scaled_bytes(weights, in_blocks=True)
    parts = few_bits(found, short_floats) if found else affine_blocks(weights, short_floats)
    if parts is not None:
        words = packed_integers(parts.values, parts.bits)
        arrays = (words, parts.scale, parts.offset)
        return _Short(tuple(constant(a) for a in arrays if a is not None), bits=parts.bits)
    if found is None:
        return None
    scale = None if found.scale is None else constant(found.scale)
    return _Short((constant(found.values),), scale)


def _halves(weights: np.ndarray) -> Iterator[np.ndarray]:
    """The same numbers in the types of 16 bits that have them, of float32."""
    for name in _HALVES if weights.dtype == np.float32 else ():
        # The first rows tell of most weights that they are none.
        if all(_are_exact(part, np.dtype(name)) for part in (weights[:1], weights)):
            yield weights.astype(name)


def _are_exact(weights: np.ndarray, dtype: np.dtype) -> bool:
    """Whether another type has all numbers; infinite ones and NaN are left alone."""
    with np.errstate(over="ignore"):
        short = weights.astype(dtype).astype(weights.dtype)
    return bool(np.array_equal(short, weights) and np.isfinite(weights).all())


@relax.expr_functor.mutator
class _Narrower(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, narrow: dict[Any, _Short]) -> None:
        super().__init__(mod)
        self.narrow = narrow
        self.products: dict[Any, Any] = {}
        self.widened: dict[Any, Any] = {}

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        short = self.narrow.get(call.args[1].value) if _reads_weights(call) else None
        if short is None:
            return call
        product = self._product(call, self._data(call.args[0]), short)
        if short.scale is not None:
            product = relax.op.multiply(self.builder_.emit(product), short.scale)
        if str(call.ty.dtype) in _HALVES:
            product = relax.op.astype(self.builder_.emit(product), str(call.ty.dtype))
        return product

    def _data(self, data: Any) -> Any:
        """Data of a product; those of 16 bits are widened once for all products that read them."""
        if str(data.ty.dtype) not in _HALVES:
            return data
        if data not in self.widened:
            self.widened[data] = self.builder_.emit(relax.op.astype(data, "float32"))
        return self.widened[data]

    def _product(self, call: Any, data: Any, short: _Short) -> Any:
        """A call of a function that is the same for operands that are alike."""
        operands = [data, *short.operands]
        key = (short.bits, *((static_shape(each), str(each.ty.dtype)) for each in operands))
        if key not in self.products:
            compute = partial(block_scaled_product, bits=short.bits) if short.bits else _product
            made = self.builder_.call_te(
                compute,
                *operands,
                primfunc_name_hint="matmul",
                primfunc_attrs={"op_pattern": ANCHOR},
            )
            self.products[key] = made.args[0]
            return made
        result = relax.TensorType(call.ty.shape, data.ty.dtype)
        return relax.call_tir(self.products[key], operands, result)


def _reads_weights(call: Any) -> bool:
    """Whether a call is a product with many constant weights, all float or all integers."""
    if operator_name(call) != "relax.matmul" or not isinstance(call.args[1], GenericConst):
        return False
    data, weights = map(static_shape, call.args)
    dtypes = {str(each.ty.dtype) for each in (*call.args, call)}
    return (
        data is not None
        and weights is not None
        and len(weights) == 2
        and len(data) >= 2
        and prod(data[:-1]) > 0
        and prod(weights) >= _FEWEST_WEIGHTS
        and (dtypes == {"int32"} or any(dtypes <= {"float32", half} for half in _HALVES))
    )


def _rows(call: Any) -> int:
    """The rows of a product whose data have a known shape."""
    return prod((static_shape(call.args[0]) or ())[:-1])


def _product(data: te.Tensor, weights: te.Tensor) -> te.Tensor:
    """A product that widens the weights when it reads them."""
    k = te.reduce_axis((0, weights.shape[0]), "k")

    def element(*places: Any) -> Any:
        *rows, column = places
        return te.sum(data[(*rows, k)] * weights[k, column].astype(data.dtype), axis=k)

    return te.compute((*data.shape[:-1], weights.shape[1]), element, "matmul")
