"""How much a kernel computes and how many bytes it needs, counted from its body.

Counted is the algorithm that was chosen, not the operator: a Winograd convolution has fewer
operations than a direct one. A multiply-add is two operations, and so are the products of integers
that one instruction adds. What a vector unit does not do in one instruction counts as many as a
good vector routine takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.iterations import Iterations
from tvm_rammer.kernel.loops import NEIGHBOURS
from tvm_rammer.kernel.nodes import expressions, parts_of
from tvm_rammer.rprogram import dtype_bytes

#: Operations of exp, tanh, erf, log, pow and the like: a polynomial of ten multiply-adds.
TRANSCENDENTAL_FLOPS = 20
_MULTIPLY_ADD = 2

#: Calls that are one operation, or none.
_PLAIN_CALLS = {
    **dict.fromkeys(("sqrt", "rsqrt", "fabs", "floor", "ceil", "round", "trunc", "fma"), 1),
    **dict.fromkeys(("nearbyint", "isnan", "isinf", "isfinite", "copysign"), 1),
    **dict.fromkeys(("if_then_else", "likely", "reinterpret", "address_of", "ret"), 0),
    **dict.fromkeys(("call_extern", "call_pure_extern", "tvm_access_ptr"), 0),
}
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)

#: Its stub gives it the constructor of its fields; it takes the object.
_structure: Any = tvm_ffi.StructuralKey


@dataclass(frozen=True)
class Work:
    """What a kernel has to do.

    Attributes
    ----------
    flops : float
        Floating-point operations, and those of integers that are multiplied together.
    nbytes : int
        Bytes that it reads or writes, each counted once.
    """

    flops: float
    nbytes: int

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.nbytes + other.nbytes)


def work_of(body: tirx.PrimFunc, num_tiles: int, operand_bytes: Sequence[int]) -> Work:
    """Count the work of all tiles of an rTask body.

    Parameters
    ----------
    body : PrimFunc
        A body as :func:`~.split.split_into_stages` makes them: ``(start, stop, *pointers)``.
    num_tiles : int
    operand_bytes : sequence of int
        Size of the buffer behind each pointer. Of a table that is only looked into, no more bytes
        count than are loaded.
    """
    flops, touched = count_work(body, num_tiles, operand_bytes)
    return Work(flops, round(sum(touched)))


def count_work(
    body: tirx.PrimFunc, num_tiles: int, operand_bytes: Sequence[int]
) -> tuple[float, tuple[float, ...]]:
    """The operations of :func:`work_of`, and its bytes for each pointer."""
    start, stop, *pointers = body.params
    counter = _Work(dict(zip(pointers, range(len(pointers)), strict=True)))
    counter.visit(body.body, Iterations({start: 0, stop: num_tiles}))
    touched = (min(size, counter.bytes[k]) for k, size in enumerate(operand_bytes))
    return counter.flops, tuple(touched)


class _Work:
    """Adds up the operations of statements, and the bytes that go through each pointer."""

    def __init__(self, pointers: dict[Any, int]) -> None:
        self.pointers = pointers
        self.views: dict[Any, int] = {}
        self.flops = 0.0
        self.bytes: defaultdict[int, float] = defaultdict(float)

    def visit(self, statement: Any, around: Iterations) -> Iterations:
        """Count a statement; returns what surrounds those that follow it."""
        if isinstance(statement, tirx.For):
            inside = around.inside(statement)
            before = self.flops
            self.visit(statement.body, inside)
            if NEIGHBOURS in statement.annotations:
                self.flops = before + _MULTIPLY_ADD * inside.times
        elif isinstance(statement, tirx.IfThenElse):
            conditions = (statement.condition, tirx.Not(statement.condition))
            for case, condition in zip(parts_of(statement), conditions, strict=False):
                self.visit(case, around.where(condition))
        elif isinstance(statement, tirx.DeclBuffer):
            sources = [self.pointers[v] for v in variables(statement.data) if v in self.pointers]
            self.views.update(dict.fromkeys([statement.buffer], sources[0]) if sources else {})
        elif isinstance(statement, tirx.Bind):
            self._value(statement.value, around.times)
            return around.let(statement.var, statement.value)
        elif isinstance(statement, tirx.BufferStore):
            times = around.times
            self._value(statement.value, times)
            self._access(statement.buffer, str(statement.value.ty), times)
        elif isinstance(statement, tirx.Evaluate):
            self._value(statement.value, around.times)
        else:
            inner = around
            for part in parts_of(statement):
                inner = self.visit(part, inner)
        return around

    def _value(self, value: Any, times: float) -> None:
        """Count an expression; the same one twice is computed once, as compilers do."""
        loads: dict[Any, Any] = {}
        operations: dict[Any, float] = {}
        for node in expressions(value):
            if isinstance(node, TensorLoad):
                loads[_structure(node)] = node
            elif flops := _flops(node):
                operations[_structure(node)] = flops
        self.flops += times * sum(operations.values())
        for load in loads.values():
            self._access(load.source, str(load.ty), times)

    def _access(self, buffer: Any, dtype: str, times: float) -> None:
        if buffer in self.views:
            self.bytes[self.views[buffer]] += times * element_bytes(dtype)


def _flops(node: Any) -> float:
    """Floating-point operations of a node, its operands not counted."""
    if isinstance(node, Call):
        name = getattr(node.op, "name", "").rpartition(".")[2]
        flops = _PLAIN_CALLS.get(name, TRANSCENDENTAL_FLOPS)
    else:
        flops = int(isinstance(node, _ARITHMETIC))
    base, lanes = element(str(node.ty)) if flops else ("", 0)
    return flops * lanes if base.startswith(("float", "bfloat")) else 0


def element(dtype: str) -> tuple[str, int]:
    """The element of a vector type and how many there are: ``float32x16`` is 16 ``float32``."""
    base, _, lanes = dtype.partition("x")
    return base, int(lanes) if lanes.isdigit() else 1


def element_bytes(dtype: str) -> int:
    """Bytes of an element, or of a whole vector."""
    base, lanes = element(dtype)
    return lanes * dtype_bytes(base)
