"""Turns the expressions of a row program into ones over loop indices and local buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from tvm_rammer.backend.cpu.templates.rows.row_program import RowProgram, RowStep, Store


@dataclass(frozen=True)
class Point:
    """Where a step is evaluated.

    Attributes
    ----------
    axes : tuple of PrimExpr
        The index along every axis of the program.
    row : PrimExpr
        Which of the rows that are computed side by side.
    column : PrimExpr
        The position within the row.
    """

    axes: tuple[Any, ...]
    row: Any
    column: Any


@dataclass(frozen=True)
class Frame:
    """The temporaries of ``rows`` rows that are computed side by side."""

    program: RowProgram
    rows: int
    buffers: Mapping[Any, Any]

    @classmethod
    def of(cls, program: RowProgram, rows: int) -> Frame:
        """Declare one local buffer for each temporary."""
        buffers = {
            buffer: tirx.decl_buffer(
                (rows * program.num_columns if spans else rows,), str(buffer.dtype), buffer.name
            )
            for buffer, spans in program.temporaries.items()
        }
        return cls(program, rows, buffers)

    @property
    def allocations(self) -> list[Any]:
        """The statements that allocate the local buffers."""
        return [tirx.AllocBuffer(buffer) for buffer in self.buffers.values()]

    def value(self, step: RowStep, expression: Any, point: Point) -> Any:
        """An expression of a step at a point."""
        values = _values(step, point.axes)

        def load(node: Any) -> Any:
            place = self._place(node.source, point)
            return node if place is None else tirx.BufferLoad(*place)

        def variable(node: Any) -> Any:
            return values.get(node, node)

        return tvm_ffi.structural_map(expression, ((TensorLoad, load), (tirx.Var, variable)))

    def store(self, step: RowStep, store: Store, value: Any, point: Point) -> Any:
        """Store a result at a point."""
        place = self._place(store.buffer, point)
        if place is None:
            place = store.buffer, [self.value(step, index, point) for index in store.indices]
        return tirx.BufferStore(place[0], value, place[1])

    def map(self, step: RowStep, point: Point) -> Any:
        """The stores of a step that does not reduce."""
        (store,) = step.stores
        return self.store(step, store, self.value(step, store.value, point), point)

    def _place(self, buffer: Any, point: Point) -> tuple[Any, list[Any]] | None:
        """Where an element of a buffer between steps is; ``None`` for any other buffer."""
        home = self.program.homes.get(buffer)
        if home is not None:
            zero = tirx.const(0, self.program.index_dtype)
            return home.param, [zero if a is None else point.axes[a] for a in home.axes]
        local = self.buffers.get(buffer)
        if local is None:
            return None
        spans = self.program.temporaries[buffer]
        return local, [point.column * self.rows + point.row if spans else point.row]


def _values(step: RowStep, axes: tuple[Any, ...]) -> dict[Any, Any]:
    return {
        var: tirx.const(0, str(var.ty)) if axis is None else axes[axis]
        for var, axis in step.axes.items()
    }
