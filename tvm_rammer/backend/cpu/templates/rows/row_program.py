"""A row program: what a PrimFunc computes from every row, step by step, apart from any loops.

Its *kept* axes number the rows, its *reduced* axes run along a row. A softmax is the largest
element of a row (a reduction), the exponentials (a map that spans the row), their sum, and the
quotients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi

from tvm_rammer.kernel.blocks import loads


@dataclass(frozen=True)
class Store:
    """``buffer[indices] = value``, or the combination of all values when ``combine`` is a class.

    ``combine`` is ``tirx.Add``, ``Mul``, ``Max`` or ``Min``.
    """

    buffer: Any
    indices: tuple[Any, ...]
    value: Any
    combine: Any = None


@dataclass(frozen=True)
class RowStep:
    """Stores under one set of iteration variables.

    Attributes
    ----------
    axes : mapping of Var to int or None
        The axis that each variable runs along; ``None`` for one iteration.
    stores : tuple of Store
    spans : bool
        Whether it writes an element of every column, and not one of every row.
    """

    axes: Mapping[Any, int | None]
    stores: tuple[Store, ...]
    spans: bool

    @property
    def reduces(self) -> bool:
        """Whether it combines the elements of a row."""
        return self.stores[0].combine is not None


@dataclass(frozen=True)
class Home:
    """A parameter that holds a buffer between steps, and the axis of each of its dimensions."""

    param: Any
    axes: tuple[int | None, ...]


@dataclass(frozen=True)
class RowProgram:
    """Steps over kept and reduced axes.

    Attributes
    ----------
    kept, reduced : tuple of int
        Extents, outermost first. The kept axes are the first in the numbering of axes.
    steps : tuple of RowStep
        In the order in which they run.
    homes : mapping of Var to Home
        Buffers between the steps that live in a parameter.
    temporaries : mapping of Var to bool
        The other buffers between the steps, and whether they hold the whole row.
    index_dtype : str
    """

    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    steps: tuple[RowStep, ...]
    homes: Mapping[Any, Home]
    temporaries: Mapping[Any, bool]
    index_dtype: str

    @property
    def num_rows(self) -> int:
        return prod(self.kept)

    @property
    def num_columns(self) -> int:
        return prod(self.reduced)

    @property
    def lane_bytes(self) -> int:
        """Bytes of the widest element that is accumulated."""
        return max(
            int(tvm_ffi.dtype(str(store.buffer.dtype)).itemsize)
            for step in self.steps
            if step.reduces
            for store in step.stores
        )


def all_loads(stores: Sequence[Store]) -> list[Any]:
    """The loads of what is stored."""
    return [load for store in stores for load in loads(store.value)]
