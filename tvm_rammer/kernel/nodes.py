"""Walks over TIR: what a statement consists of, and an expression; what is not known is an error.

Whoever counts or estimates goes through here, so that no statement and no operation counts as
nothing because nobody has heard of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_rammer.errors import ModelError
from tvm_rammer.rprogram import dtype_bytes


def _body(statement: Any) -> Sequence[Any]:
    return (statement.body,)


def _cases(statement: Any) -> Sequence[Any]:
    return [case for case in (statement.then_case, statement.else_case) if case is not None]


def _block(block: Any) -> Sequence[Any]:
    return [part for part in (block.body, block.init) if part is not None]


_PARTS: dict[type, Callable[[Any], Sequence[Any]]] = {
    tirx.SeqStmt: lambda sequence: list(sequence.seq),
    tirx.IfThenElse: _cases,
    **dict.fromkeys((tirx.For, tirx.While, tirx.AttrStmt), _body),
    s_tir.SBlockRealize: lambda realize: (realize.block,),
    s_tir.SBlock: _block,
    **dict.fromkeys((tirx.BufferStore, tirx.Evaluate, tirx.Bind), lambda _: ()),
    **dict.fromkeys((tirx.AllocBuffer, tirx.DeclBuffer), lambda _: ()),
    **dict.fromkeys((tirx.AssertStmt, tirx.Return, tirx.Break, tirx.Continue), lambda _: ()),
}

_EXPRESSIONS = frozenset(
    {
        *(tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod),
        *(tirx.Max, tirx.Min, tirx.Select, tirx.Cast, tirx.Let),
        *(tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.And, tirx.Or, tirx.Not),
        *(tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.BitwiseNot),
        *(tirx.LShift, tirx.RShift, tirx.Ramp, tirx.Broadcast, tirx.Shuffle),
        *(tirx.Var, tirx.IntImm, tirx.FloatImm, ir.StringImm),
        *(ir.TensorLoad, ir.Call, ir.Op, ir.GlobalVar),
    }
)


def parts_of(statement: Any) -> Sequence[Any]:
    """The statements that a statement consists of, in order; none of one without others in it.

    Raises
    ------
    ModelError
        When its kind is not known.
    """
    parts = _PARTS.get(type(statement))
    if parts is None:
        raise _unknown("statement", statement)
    return parts(statement)


def collect(node: Any, *kinds: type) -> list[Any]:
    """Every node of some kinds in a statement or an expression, operands first."""
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (kinds, found.append))
    return found


def statements(statement: Any) -> list[Any]:
    """The statements of nested sequences in order."""
    if isinstance(statement, tirx.SeqStmt):
        return [inner for child in statement.seq for inner in statements(child)]
    return [statement]


def buffer_bytes(buffer: Any) -> int:
    """The size of what has a shape and a type."""
    return prod(map(int, buffer.shape)) * dtype_bytes(str(buffer.dtype))


def conjuncts(condition: Any) -> list[Any]:
    """The conditions that must all hold for one to hold."""
    if isinstance(condition, tirx.And):
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [condition]


def all_of(conditions: Sequence[Any]) -> Any:
    """The conjunction of at least one condition."""
    return functools.reduce(tirx.And, conditions)


def substitute(expression: Any, values: Mapping[Any, Any]) -> Any:
    """An expression with other expressions in the place of variables."""
    return tvm_ffi.structural_map(expression, (tirx.Var, lambda var: values.get(var, var)))


def expressions(value: Any) -> list[Any]:
    """Every node of an expression, operands before what is made of them.

    Raises
    ------
    ModelError
        When the kind of one is not known.
    """
    found = collect(value, ir.Expr)
    for node in found:
        if type(node) not in _EXPRESSIONS:
            raise _unknown("expression", node)
    return found


def _unknown(what: str, node: Any) -> ModelError:
    kind = f"{type(node).__module__}.{type(node).__name__}"
    return ModelError(
        f"a kernel has the {what} {kind}, and what it costs is not known: leave it out of the "
        "kernel, or report it with the model"
    )
