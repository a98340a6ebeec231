"""Vectors in which a value is accumulated before it becomes one number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.rows.row_program import Store
from tvm_rammer.backend.cpu.templates.rows.vector_loops import (
    UNROLLED,
    VectorRun,
    folded,
    lanes_of,
    sweep,
)
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.kernel.starts import start_value


@dataclass(frozen=True)
class Accumulator:
    """One reduced value, as the vectors of ``parts`` in a buffer on the stack."""

    store: Store
    parts: tuple[VectorRun, ...]
    index_dtype: str
    buffer: Any

    @classmethod
    def of(cls, store: Store, parts: tuple[VectorRun, ...], index_dtype: str) -> Accumulator:
        """Declare the buffer for a value."""
        size = parts[-1].start + parts[-1].count * parts[-1].lanes
        buffer = tirx.decl_buffer((size,), str(store.buffer.dtype), "accumulator")
        return cls(store, parts, index_dtype, buffer)

    def begin(self) -> Any:
        """Allocate the vectors and set them to the neutral element."""
        neutral = start_value(self.store.combine, str(self.buffer.dtype))
        clear = sweep(self.parts, self.index_dtype, lambda k, _: self._set(k, neutral), UNROLLED)
        return sequence([tirx.AllocBuffer(self.buffer), clear])

    def add(self, value: Any, slot: Any) -> Any:
        """Combine a value with the element ``slot``."""
        return self._set(slot, self.store.combine(self.get(slot), value))

    def get(self, slot: Any) -> Any:
        """The element ``slot``."""
        return tirx.BufferLoad(self.buffer, [slot])

    def combine(self) -> list[Any]:
        """Bring everything together in the first element: pairs of vectors, then halves."""
        statements = []
        (vectors,) = self.parts
        count, width = vectors.count, vectors.lanes
        while count > 1:
            pairs = [(k * width, (count - 1 - k) * width) for k in range(count // 2)]
            statements += [self._fold(into, other, width) for into, other in pairs]
            count -= count // 2
        combine = self.store.combine
        return [*statements, *folded(self.buffer, 0, width, combine, self.index_dtype)]

    def _fold(self, into: int, other: int, width: int) -> Any:
        return lanes_of(
            width, self.index_dtype, lambda lane: self.add(self.get(lane + other), lane + into)
        )

    def _set(self, slot: Any, value: Any) -> Any:
        return tirx.BufferStore(self.buffer, value, [slot])
