"""A sum of products and what is fused around it, as plain expressions.

``product[spatial] = sum over reduced of data * weight``, and then an element-wise epilogue: matrix
products and convolutions of any rank and layout, padding included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad

from tvm_rammer.kernel.blocks import (
    all_are_int64,
    is_choice,
    is_number,
    is_reduced,
    is_zero,
    loads,
    only_reduction,
    variables,
)
from tvm_rammer.kernel.nodes import substitute


@dataclass(frozen=True)
class Axis:
    """A loop from 0 to ``extent``."""

    var: Any
    extent: int

    @property
    def dtype(self) -> str:
        return str(self.var.ty)


@dataclass(frozen=True)
class Contraction:
    """What a PrimFunc with one sum of products computes.

    Attributes
    ----------
    func : PrimFunc
        Its parameters are those of the expressions.
    spatial, reduced : tuple of Axis
        In the order of the untransformed loops.
    factors : tuple
        The two expressions that are multiplied.
    initial : PrimExpr
        What the sum starts with.
    store : BufferStore
        The epilogue in terms of the spatial axes; it loads the sum from ``product``.
    product : Var
        The buffer of the sums.
    repeated : tuple of Axis
        Axes of the result along which the sum does not vary.
    inside : tuple of PrimExpr
        The conditions on the spatial axes under which a sum has a place in the result.
    """

    func: tirx.PrimFunc
    spatial: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    factors: tuple[Any, Any]
    initial: Any
    store: Any
    product: Any
    repeated: tuple[Axis, ...]
    inside: tuple[Any, ...] = ()

    @property
    def dtype(self) -> str:
        """Of the sums."""
        return str(self.product.dtype)

    @property
    def slides(self) -> bool:
        """Whether a window slides over a factor, as in a convolution."""
        spatial = {axis.var for axis in self.spatial}
        reduced = {axis.var for axis in self.reduced}
        used = [variables(index) for factor in self.factors for index in load_of(factor).indices]
        return any(some & spatial and some & reduced for some in used)

    def epilogue(self, values: Mapping[Any, Any], total: Any) -> Any:
        """The statement that writes one result.

        Parameters
        ----------
        values : mapping of Var to PrimExpr
            Where: by spatial and repeated axis.
        total : PrimExpr
            The sum at this place.
        """

        def replace(load: Any) -> Any:
            return total if load.source.same_as(self.product) else load

        value = tvm_ffi.structural_map(self.store.value, (TensorLoad, replace))
        indices = [substitute(index, values) for index in self.store.indices]
        store = tirx.BufferStore(self.store.buffer, substitute(value, values), indices)
        if not self.inside:
            return store
        return tirx.IfThenElse(substitute(tirx.all(*self.inside), values), store, None)


def find_contraction(
    func: tirx.PrimFunc, is_factor: Callable[[Any], bool] | None = None
) -> Contraction | None:
    """The contraction that a PrimFunc is, ``None`` if it is something else.

    Parameters
    ----------
    func : PrimFunc
    is_factor : callable, optional
        What may be multiplied; :func:`is_cheap` unless given.
    """
    is_factor = is_factor or is_cheap
    found = only_reduction(func)
    if found is None:
        return None
    sch, blocks, number = found
    if _factors(sch, blocks[number], is_factor) is None:
        return None
    for block in [*blocks[:number], *blocks[number + 1 : -1]]:
        sch.compute_inline(block)
    factors = _factors(sch, blocks[number], is_factor)
    block = sch.get(blocks[number])
    if factors is None or block.init is None:
        return None
    spatial, reduced = _axes(block)
    if any(map(is_choice, factors)) and not all_are_int64(axis.var for axis in spatial + reduced):
        return None
    sums = block.body
    if not all(extent.extent for extent in spatial + reduced):
        return None
    if not _plain(sums.indices, spatial):
        return None
    epilogue = _epilogue(sch, blocks[-1], sums, spatial) if number + 1 < len(blocks) else None
    if number + 1 < len(blocks) and epilogue is None:
        return None
    made = epilogue or _Epilogue(_own_store(sums), spatial, (), ())
    return Contraction(
        sch.mod["main"],
        made.spatial,
        reduced,
        factors,
        block.init.value,
        made.store,
        sums.buffer,
        made.repeated,
        made.inside,
    )


def load_of(factor: Any) -> TensorLoad:
    """The load behind a factor's padding and conversion."""
    if isinstance(factor, TensorLoad):
        return factor
    return load_of(factor.args[1] if isinstance(factor, Call) else factor.value)


def _factors(
    sch: s_tir.Schedule, block: Any, is_factor: Callable[[Any], bool]
) -> tuple[Any, Any] | None:
    """``a`` and ``b`` of a block that does ``c[...] = c[...] + a * b``."""
    store = sch.get(block).body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        return None
    before, product = store.value.a, store.value.b
    if not isinstance(before, TensorLoad) or not before.source.same_as(store.buffer):
        return None
    if not isinstance(product, tirx.Mul):
        return None
    return (product.a, product.b) if is_factor(product.a) and is_factor(product.b) else None


def is_cheap(factor: Any) -> bool:
    """A load, perhaps converted or padded by zeros: it may be computed again for every use."""
    if isinstance(factor, tirx.Cast):
        return is_cheap(factor.value)
    if is_choice(factor):
        return is_cheap(factor.args[1]) and is_zero(factor.args[2])
    return isinstance(factor, TensorLoad)


def _axes(block: Any) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    axes = [(is_reduced(v), Axis(v.var, int(v.dom.extent))) for v in block.iter_vars]
    spatial = tuple(axis for reduces, axis in axes if not reduces)
    return spatial, tuple(axis for reduces, axis in axes if reduces)


def _plain(indices: Any, axes: tuple[Axis, ...]) -> bool:
    return len(indices) == len(axes) and all(
        isinstance(index, tirx.Var) and index.same_as(axis.var)
        for index, axis in zip(indices, axes, strict=True)
    )


def _own_store(sums: Any) -> Any:
    load = tirx.BufferLoad(sums.buffer, list(sums.indices))
    return tirx.BufferStore(sums.buffer, load, list(sums.indices))


@dataclass(frozen=True)
class _Epilogue:
    """The last block in terms of the sum's axes, as in :class:`Contraction`.

    ``spatial`` may be shorter than the sums are: behind a slice only the first ones are computed.
    """

    store: Any
    spatial: tuple[Axis, ...]
    repeated: tuple[Axis, ...]
    inside: tuple[Any, ...]


def _epilogue(
    sch: s_tir.Schedule, last: Any, sums: Any, spatial: tuple[Axis, ...]
) -> _Epilogue | None:
    """What becomes of the sums, ``None`` if it cannot be said in terms of their axes."""
    block = sch.get(last)
    store = block.body
    if not isinstance(store, tirx.BufferStore):
        return None
    reads = [load for load in loads(store.value) if load.source.same_as(sums.buffer)]
    if not reads:
        return None
    if not all(tvm_ffi.structural_equal(read.indices, reads[0].indices) for read in reads):
        return None
    own, _ = _axes(block)
    extents = {axis.var: axis.extent for axis in own}
    spatial = tuple(
        Axis(axis.var, min(axis.extent, extents.get(index, axis.extent)))
        for index, axis in zip(reads[0].indices, spatial, strict=True)
    )
    found = _places(own, list(zip(reads[0].indices, spatial, strict=True)))
    if found is None:
        return None
    values, inside = found
    changed = tirx.BufferStore(
        store.buffer,
        substitute(store.value, values),
        [substitute(index, values) for index in store.indices],
    )
    repeated = tuple(axis for axis in own if axis.var not in values)
    return _Epilogue(changed, spatial, repeated, inside)


def _places(
    own: tuple[Axis, ...], pairs: list[tuple[Any, Axis]]
) -> tuple[dict[Any, Any], tuple[Any, ...]] | None:
    """Where a result is, by the axes of the sum that it reads at some indices.

    An index is an axis of the result or, where neighbours of the result are different axes of the
    sum, as the phases of a transposed convolution are, its quotient or its remainder. ``None`` for
    any other index, and for one that leaves out sums or meets some twice.
    """
    extents = {axis.var: axis.extent for axis in own}
    values: dict[Any, Any] = {}
    inside: list[Any] = []
    remainders = {index.a: pair for pair in pairs if isinstance(index := pair[0], tirx.FloorMod)}
    if len(remainders) < sum(isinstance(index, tirx.FloorMod) for index, _ in pairs):
        return None
    for index, axis in pairs:
        if isinstance(index, tirx.FloorMod):
            continue
        if not isinstance(index, tirx.Var | tirx.FloorDiv):
            # An axis of one element may be read at a constant place.
            if axis.extent != 1:
                return None
            continue
        place, step = index, 1
        value: Any = axis.var
        if isinstance(index, tirx.FloorDiv):
            place = index.a
            remainder, inner = remainders.pop(place, (None, axis))
            step = inner.extent
            numbers = [index.b, *([remainder.b] if remainder is not None else [])]
            if len(numbers) < 2 or not all(is_number(number, step) for number in numbers):
                return None
            value = axis.var * tirx.const(step, str(axis.var.ty)) + inner.var
        extent = extents.get(place)
        if extent is None or place in values or axis.extent != -(-extent // step):
            return None
        values[place] = value
        if extent < axis.extent * step:
            inside.append(value < tirx.const(extent, str(axis.var.ty)))
    return None if remainders else (values, tuple(inside))
