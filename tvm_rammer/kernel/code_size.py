"""How much code a statement becomes once its unrolled loops are written out.

LLVM's time grows faster than the code: what is counted are the statements and the nodes of their
expressions, which are trees for LLVM also where they share nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Expr


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
    if isinstance(statement, tirx.SeqStmt):
        return sum(map(code_size, statement.seq), CodeSize())
    if isinstance(statement, tirx.For):
        return code_size(statement.body) * (int(statement.extent) if is_unrolled(statement) else 1)
    if isinstance(statement, s_tir.SBlockRealize):
        return code_size(statement.block)
    if isinstance(statement, s_tir.SBlock):
        parts = [statement.body, *([] if statement.init is None else [statement.init])]
        return sum(map(code_size, parts), CodeSize())
    if isinstance(statement, tirx.AttrStmt | tirx.While):
        return code_size(statement.body)
    if isinstance(statement, tirx.IfThenElse):
        cases = [statement.then_case]
        cases += [] if statement.else_case is None else [statement.else_case]
        return sum(map(code_size, cases), CodeSize(1, nodes_of(statement.condition)))
    return CodeSize(1, nodes_of(statement))


def nodes_of(expression: Any) -> int:
    """The nodes of an expression, or of those of a simple statement."""
    found: list[None] = []
    tvm_ffi.structural_walk(expression, (Expr, lambda _: found.append(None)))
    return len(found)


def is_unrolled(loop: Any) -> bool:
    """Whether a loop of constant extent becomes a copy of its body for each step."""
    return loop.kind == tirx.ForKind.UNROLLED and isinstance(loop.extent, tirx.IntImm)
