"""Loops and sequences written by hand, for kernels that schedule primitives cannot express."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tvm import tirx

from tvm_rammer.kernel.nodes import all_of, statements

#: Function whose call marks a loop that LLVM must not unroll.
ROLLED = "rammer_keep_loop"
#: What marks a vector loop that adds products of neighbours to each sum: how many.
NEIGHBOURS = "tvm_rammer.neighbours"

#: What marks a loop that hardly ever runs to its end: how many steps it usually has.
USUAL_TRIPS = "tvm_rammer.usual_trips"


def number(value: int) -> Any:
    """An index."""
    return tirx.const(value, "int64")


def buffer(name: str, shape: Sequence[int]) -> Any:
    """A buffer of float32."""
    return tirx.decl_buffer([number(extent) for extent in shape], "float32", name=name)


def loop(
    name: str,
    extent: Any,
    body: Callable[[Any], Any],
    kind: Any = tirx.ForKind.SERIAL,
    dtype: str = "int64",
    marks: Mapping[str, int] | None = None,
) -> Any:
    """``body(index)`` for every index below ``extent``, a number or what the run decides."""
    index = tirx.Var(name, dtype)
    end = tirx.const(extent, dtype) if isinstance(extent, int) else extent
    bounds = (tirx.const(0, dtype), end)
    return tirx.For(index, *bounds, kind, body(index), annotations=dict(marks or {}))


def for_each(
    name: str,
    extent: int,
    body: Callable[[Any], Any],
    kind: Any = tirx.ForKind.SERIAL,
    dtype: str = "int64",
    marks: Mapping[str, int] | None = None,
) -> Any:
    """The same, but a single index needs no loop."""
    if extent == 1:
        return body(tirx.const(0, dtype))
    return loop(name, extent, body, kind, dtype, marks)


def rolled(name: str, extent: int, body: Callable[[Any], Any]) -> Any:
    """A loop whose body becomes code once, however few steps it has."""
    return loop(name, extent, lambda index: sequence([keep_loop(), body(index)]))


def keep_loop() -> Any:
    """What LLVM does not copy: the loop around it stays a loop."""
    return tirx.Evaluate(tirx.call_extern("void", ROLLED))


def unrolled(name: str, extent: int, body: Callable[[Any], Any]) -> Any:
    """``body(index)`` for every index below ``extent``, without a loop that is left."""
    return loop(name, extent, body, tirx.ForKind.UNROLLED)


def parallel(name: str, extent: Any, body: Callable[[Any], Any]) -> Any:
    """A loop over rTask tiles."""
    return loop(name, extent, body, tirx.ForKind.PARALLEL)


def vector(lanes: int, body: Callable[[Any], Any]) -> Any:
    """``body(lane)`` for all lanes at once."""
    return loop("lane", lanes, body, tirx.ForKind.VECTORIZED)


def bind(name: str, value: Any) -> tuple[Any, Any]:
    """A variable, and the statement that gives it its value for the statements after."""
    variable = tirx.Var(name, value.ty)
    return variable, tirx.Bind(variable, value)


def ceil_div(size: Any, divisor: int) -> Any:
    """How many parts of a length cover a size, which is a number or what the run decides."""
    if isinstance(size, int):
        return -(-size // divisor)
    return tirx.floordiv(size + (divisor - 1), number(divisor))


def turn_of(step: Any, count: int) -> Any:
    """Which of ``count`` things has its turn in a step; now and then one of a few beyond them.

    The remainder by a power of two needs no division.
    """
    return step % number(1 << (count - 1).bit_length())


def unravel(index: Any, extents: Sequence[int]) -> tuple[Any, ...]:
    """The indices along several axes that one index of their fused loop stands for."""
    found: list[Any] = []
    for extent in reversed(extents[1:]):
        found.insert(0, index % extent)
        index = index // extent
    return (index, *found) if extents else ()


def sequence(several: Iterable[Any]) -> Any:
    """Statements one after another as one; TVM wants no sequence of a single one."""
    flat = [inner for each in several for inner in statements(each)]
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


def when(conditions: Sequence[Any], statement: Any) -> Any:
    """The statement if all conditions hold."""
    return tirx.IfThenElse(all_of(conditions), statement, None) if conditions else statement
