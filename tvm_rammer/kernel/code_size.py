"""How much code a statement becomes once its unrolled loops are written out.

LLVM's time grows faster than the code: what is counted are the statements and the nodes of their
expressions, which are trees for LLVM also where they share nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Expr

from tvm_rammer.kernel.nodes import collect, parts_of


@dataclass(frozen=True)
class CodeSize:
    """A number of statements, and one of nodes of their expressions."""

    statements: int = 0
    nodes: int = 0

    def __add__(self, other: CodeSize) -> CodeSize:
        return CodeSize(self.statements + other.statements, self.nodes + other.nodes)

    def __mul__(self, times: int) -> CodeSize:
        return CodeSize(self.statements * times, self.nodes * times)


def code_size(statement: Any) -> CodeSize:
    """The size of a statement, of all loops and blocks in it together."""
    parts = parts_of(statement)
    if not parts:
        return CodeSize(1, nodes_of(statement))
    size = sum(map(code_size, parts), CodeSize())
    if isinstance(statement, tirx.IfThenElse):
        return size + CodeSize(1, nodes_of(statement.condition))
    unrolled = isinstance(statement, tirx.For) and is_unrolled(statement)
    return size * int(statement.extent) if unrolled else size


def nodes_of(expression: Any) -> int:
    """The nodes of an expression, or of those of a simple statement."""
    return len(collect(expression, Expr))


def is_unrolled(loop: Any) -> bool:
    """Whether a loop of constant extent becomes a copy of its body for each step."""
    return loop.kind == tirx.ForKind.UNROLLED and isinstance(loop.extent, tirx.IntImm)
