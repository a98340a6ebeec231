"""Which axis of a contraction the vectors of a tile run along, and how its weights are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm_ffi
from tvm import te, tirx
from tvm.ir import TensorLoad

from tvm_rammer.kernel.blocks import parameter_number, variables
from tvm_rammer.kernel.contraction import Axis, Contraction, load_of
from tvm_rammer.kernel.scheduled import TensorPacking


@dataclass(frozen=True)
class Columns:
    """The axis of the vectors: ``axis`` runs along the weights, factor number ``weight``.

    ``group`` neighbouring columns belong together. The other factor, the data, is one element for
    all of them or, if it is ``elementwise``, has an element for each of them, as in a depthwise
    convolution.
    """

    axis: Axis
    group: int
    weight: int
    elementwise: bool

    def weights(self, contraction: Contraction) -> Any:
        """The expression of the weights."""
        return contraction.factors[self.weight]

    def data(self, contraction: Contraction) -> Any:
        """The expression of the data."""
        return contraction.factors[1 - self.weight]


def find_columns(contraction: Contraction, constants: frozenset[int]) -> Columns | None:
    """The best axis for vectors whose weights are contiguous or can be packed."""
    candidates = [
        (_rank(contraction, columns, constants), -number, columns)
        for number, axis in enumerate(contraction.spatial)
        for weight in (0, 1)
        if (columns := _columns(contraction, axis, weight)) is not None
    ]
    ranked = [candidate for candidate in candidates if candidate[0] is not None]
    return max(ranked, key=lambda item: item[:2])[2] if ranked else None


#: Types of weights that sums are too long for.
_WIDENED = ("int8", "int16", "float16", "bfloat16")


def is_constant(contraction: Contraction, columns: Columns, constants: frozenset[int]) -> bool:
    """Whether the weights are a constant that is packed when compiled.

    Columns and reduced axes are plain indices then. The others may be chosen by data: a mixture of
    experts takes the matrix that a router names. Short numbers are widened when they are read.
    """
    weights = columns.weights(contraction)
    if isinstance(weights, tirx.Cast) and str(weights.value.ty) in _WIDENED:
        weights = weights.value
    return (
        isinstance(weights, TensorLoad)
        and parameter_number(contraction.func, weights.source) in constants
        and _is_permutation([weights.indices[k] for k in inner_places(contraction, columns)])
    )


def inner_places(contraction: Contraction, columns: Columns) -> list[int]:
    """Which indices of the weights vary inside of a task: those of columns and reduced axes."""
    inner = {columns.axis.var, *(axis.var for axis in contraction.reduced)}
    indices = load_of(columns.weights(contraction)).indices
    return [place for place, index in enumerate(indices) if variables([index]) & inner]


def is_contiguous(axis: Axis, factor: Any) -> bool:
    """Whether neighbours along an axis are neighbours in memory."""
    *others, last = load_of(factor).indices
    return _steps_by_one(last, axis.var) and axis.var not in variables(others)


def _steps_by_one(index: Any, var: Any) -> bool:
    """Whether an index is the variable plus what does not depend on it."""
    if isinstance(index, tirx.Add):
        first, second = (var in variables([part]) for part in (index.a, index.b))
        return not (first and second) and _steps_by_one(index.a if first else index.b, var)
    return bool(index.same_as(var))


def _columns(contraction: Contraction, axis: Axis, weight: int) -> Columns | None:
    if axis.var not in variables(load_of(contraction.factors[weight]).indices):
        return None
    data = contraction.factors[1 - weight]
    group = _group(data, axis)
    if group is not None:
        return Columns(axis, group, weight, False)
    return Columns(axis, axis.extent, weight, True) if is_contiguous(axis, data) else None


def _group(data: Any, axis: Axis) -> int | None:
    """How many neighbouring columns have the same data, ``None`` if that cannot be seen."""
    if axis.var not in variables(data):
        return axis.extent
    divisors: list[int] = []

    def divide(quotient: Any) -> Any:
        if quotient.a.same_as(axis.var) and isinstance(quotient.b, tirx.IntImm):
            divisors.append(int(quotient.b))
            return tirx.const(0, quotient.ty)
        return quotient

    rest = tvm_ffi.structural_map(data, (tirx.FloorDiv, divide))
    if axis.var in variables(rest) or len(set(divisors)) != 1:
        return None
    return divisors[0] if axis.extent % divisors[0] == 0 else None


def _rank(
    contraction: Contraction, columns: Columns, constants: frozenset[int]
) -> tuple[bool, ...] | None:
    """How good an axis is, ``None`` if its weights can neither be read nor packed."""
    weights = columns.weights(contraction)
    contiguous = is_contiguous(columns.axis, weights)
    constant = is_constant(contraction, columns, constants)
    if not contiguous and not constant and not _is_permutation(load_of(weights).indices):
        return None
    last = contraction.store.indices[-1]
    stored = columns.axis.var in variables([last])
    several, ready = columns.axis.extent > 1, constant or contiguous
    return (ready and several, ready, stored, constant, contiguous, several)


def _is_permutation(indices: Sequence[Any]) -> bool:
    """Whether every index is an axis of its own: no element is read twice."""
    found = {index for index in indices if isinstance(index, tirx.Var)}
    return len(found) == len(indices)


@dataclass(frozen=True)
class Layout:
    """How ``columns`` columns in groups of ``group`` become vectors of ``lanes``.

    A tile has ``vectors`` vectors. Where they do not divide a group, its last ones overlap: all are
    full, and some columns are computed twice, but no two tiles compute the same column.
    """

    columns: int
    group: int
    vectors: int
    lanes: int

    @property
    def groups(self) -> int:
        return self.columns // self.group

    @property
    def tiles(self) -> int:
        """Tiles of one group."""
        return -(-self.group // (self.vectors * self.lanes))

    @property
    def total(self) -> int:
        """Vectors in all."""
        return self.groups * self.tiles * self.vectors

    @property
    def ragged(self) -> bool:
        return self.group % (self.vectors * self.lanes) != 0

    def as_packed(self) -> Layout:
        """The same for all layouts whose vectors lie alike in memory: where none overlap, any."""
        return self if self.ragged else replace(self, vectors=1)

    def column(self, tile: Any, vector: Any) -> Any:
        """The first column of a vector of a tile, the tiles of all groups numbered through."""
        if not self.ragged:
            return tile * self.vectors * self.lanes + vector * self.lanes
        group, in_group = tile // self.tiles, tile % self.tiles
        return group * self.group + self.first(in_group * self.vectors + vector)

    def columns_of(self, tile: int) -> list[int]:
        """All columns of a tile, in the order of its vectors."""
        starts = (self.column(tile, vector) for vector in range(self.vectors))
        return [start + lane for start in starts for lane in range(self.lanes)]

    def first(self, vector: Any) -> Any:
        """The first column, within its group, of a vector of the group."""
        first = vector * self.lanes
        if not self.ragged:
            return first
        last = self.group - self.lanes
        if self.group % (self.vectors * self.lanes) >= self.lanes:
            return _smaller(first, last)
        # Too few columns are left for the last tile: the one before gives some away.
        in_last = vector >= (self.tiles - 1) * self.vectors
        return _smaller(first, _select(in_last, last, last - self.lanes))


def _smaller(one: Any, other: Any) -> Any:
    return min(one, other) if isinstance(one, int) else tirx.min(one, other)


def _select(condition: Any, one: Any, other: Any) -> Any:
    if isinstance(condition, bool):
        return one if condition else other
    return tirx.Select(condition, _number(one), _number(other))


def _number(value: int) -> Any:
    return tirx.const(value, "int64")


@dataclass(frozen=True)
class PackColumns(TensorPacking):
    """The packing of weights into vectors: ``[..., vector, reduced..., lane]``.

    Attributes
    ----------
    order : tuple of int
        The array's axes: those before the column, the column, the reduced ones.
    outer : int
        How many axes come before the column.
    layout : Layout
    together : int
        So many neighbours of the last reduced axis lie side by side in each lane.
    """

    order: tuple[int, ...]
    outer: int
    layout: Layout
    together: int = 1

    def fill(self, packed: np.ndarray, array: np.ndarray) -> None:
        layout = self.layout
        columns = np.moveaxis(array.transpose(self.order), self.outer, 0)
        vectors = np.moveaxis(packed, (self.outer, -1), (0, 1))
        per_group = layout.tiles * layout.vectors
        for number, vector in enumerate(vectors):
            group, place = divmod(number, per_group)
            first = group * layout.group + layout.first(place)
            lanes = columns[first : first + layout.lanes]
            for k in range(self.together):
                vector[k :: self.together] = lanes[..., k :: self.together]

    def tensor(self, array: te.Tensor) -> te.Tensor:
        """The packed array as a computation, for weights that are not known yet."""
        layout = self.layout
        per_group = layout.tiles * layout.vectors

        def element(*places: Any) -> Any:
            outer, (vector, *reduced, lane) = places[: self.outer], places[self.outer :]
            first = vector // per_group * layout.group + layout.first(vector % per_group)
            if self.together > 1:
                reduced[-1] = reduced[-1] * self.together + lane % self.together
                lane = lane // self.together
            moved = dict(zip(self.order, (*outer, first + lane, *reduced), strict=True))
            return array(*(moved[axis] for axis in sorted(moved)))

        shape = self.shape(tuple(int(extent) for extent in array.shape))
        return te.compute([_number(extent) for extent in shape], element, "packed")

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the packed array."""
        moved = [shape[axis] for axis in self.order]
        layout, reduced = self.layout, moved[self.outer + 1 :]
        if self.together > 1:
            reduced[-1] //= self.together
        lanes = layout.lanes * self.together
        return (*moved[: self.outer], layout.total, *reduced, lanes)
