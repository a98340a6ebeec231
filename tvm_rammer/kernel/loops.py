"""Loop nests of float32 written by hand, for kernels that schedule primitives cannot express."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from tvm_rammer.kernel.nodes import all_of

#: Function whose call marks a loop that LLVM must not unroll.
ROLLED = "rammer_keep_loop"
#: What marks a vector loop that adds products of neighbours to each sum: how many.
NEIGHBOURS = "tvm_rammer.neighbours"


def number(value: int) -> Any:
    """An index."""
    return tirx.const(value, "int64")


def buffer(name: str, shape: Sequence[int]) -> Any:
    """A buffer of float32."""
    return tirx.decl_buffer([number(extent) for extent in shape], "float32", name=name)


def loop(
    name: str, extent: int, body: Callable[[Any], Any], kind: Any = tirx.ForKind.SERIAL
) -> Any:
    """``body(index)`` for every index below ``extent``."""
    index = tirx.Var(name, "int64")
    return tirx.For(index, number(0), number(extent), kind, body(index))


def rolled(name: str, extent: int, body: Callable[[Any], Any]) -> Any:
    """A loop whose body becomes code once, however few steps it has."""
    return loop(name, extent, lambda index: sequence([keep_loop(), body(index)]))


def keep_loop() -> Any:
    """What LLVM does not copy: the loop around it stays a loop."""
    return tirx.Evaluate(tirx.call_extern("void", ROLLED))


def unrolled(name: str, extent: int, body: Callable[[Any], Any]) -> Any:
    """``body(index)`` for every index below ``extent``, without a loop that is left."""
    return loop(name, extent, body, tirx.ForKind.UNROLLED)


def parallel(name: str, extent: int, body: Callable[[Any], Any]) -> Any:
    """A loop over rTask tiles."""
    return loop(name, extent, body, tirx.ForKind.PARALLEL)


def vector(lanes: int, body: Callable[[Any], Any]) -> Any:
    """``body(lane)`` for all lanes at once."""
    return loop("lane", lanes, body, tirx.ForKind.VECTORIZED)


def bind(name: str, value: Any) -> tuple[Any, Any]:
    """A variable, and the statement that gives it its value for the statements after."""
    variable = tirx.Var(name, value.ty)
    return variable, tirx.Bind(variable, value)


def turn_of(step: Any, count: int) -> Any:
    """Which of ``count`` things has its turn in a step; now and then one of a few beyond them.

    The remainder by a power of two needs no division.
    """
    return step % number(1 << (count - 1).bit_length())


def sequence(statements: Sequence[Any]) -> Any:
    """The statements one after another; TVM wants no sequence of a single one."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def when(conditions: Sequence[Any], statement: Any) -> Any:
    """The statement if all conditions hold."""
    return tirx.IfThenElse(all_of(conditions), statement, None) if conditions else statement
