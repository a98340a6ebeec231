"""Which iteration variables of several loop nests run along the same axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.rows.row_program import Store, all_loads


@dataclass(frozen=True)
class RowNest:
    """A loop nest: the extents of its variables, those that reduce, and its stores."""

    extents: Mapping[Any, int]
    reducing: frozenset[Any]
    stores: tuple[Store, ...]


@dataclass
class Axes:
    """Classes of variables and buffer dimensions that are one axis; they grow together."""

    parents: dict[Any, Any] = field(default_factory=dict)

    def find(self, node: Any) -> Any:
        """The representative of a variable or of a (buffer, dimension)."""
        while node in self.parents:
            node = self.parents[node]
        return node

    def join(self, one: Any, other: Any) -> None:
        """Make two classes one."""
        one, other = self.find(one), self.find(other)
        if one != other:
            self.parents[one] = other


def join_axes(nests: Sequence[RowNest], params: Iterable[Any]) -> Axes | None:
    """Join the variables of nests that index the same dimension of a buffer between them.

    ``None`` when a buffer between nests is indexed by anything but its own variables: then one
    row would need what another one computed. Where a result goes that nobody reads is free.
    """
    axes = Axes()
    finals = set(params) - {load.source for nest in nests for load in all_loads(nest.stores)}
    written = {store.buffer for nest in nests for store in nest.stores}
    for nest in nests:
        accesses = [(load.source, load.indices) for load in all_loads(nest.stores)]
        accesses += [(store.buffer, store.indices) for store in nest.stores]
        for buffer, indices in accesses:
            if buffer not in written:
                continue
            for dimension, index in enumerate(indices):
                extent = int(buffer.shape[dimension])
                plain = isinstance(index, tirx.Var) and nest.extents.get(index) == extent
                if plain:
                    axes.join(index, (buffer, dimension))
                elif extent != 1 and buffer not in finals:
                    return None
    return axes
