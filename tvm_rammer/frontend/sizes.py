"""Sizes that are numbers, or formulas of what each run decides; and checks that end a run."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

#: Farther than any axis reaches: models have the largest integer for the end of an axis.
FAR = 2**40


def as_number(size: Any) -> Any:
    """A size of a Relax type; an ``int`` where it is a number."""
    return int(size) if isinstance(size, int | tirx.IntImm) else size


def as_size(number: Any) -> Any:
    """A number or a formula of sizes as TVM computes with it."""
    return tirx.IntImm("int64", number) if isinstance(number, int) else number


def quotient(size: Any, divisor: Any) -> Any:
    """A size divided by another, rounded down; by 0 as by 1.

    The run computes sizes before it checks them, and a division by 0 would end the process.
    """
    return tirx.floordiv(as_size(size), _positive(divisor))


def remainder(size: Any, divisor: Any) -> Any:
    """What a division of sizes leaves; by 0 as by 1."""
    return tirx.floormod(as_size(size), _positive(divisor))


def _positive(divisor: Any) -> Any:
    number = as_number(divisor)
    return as_size(number) if isinstance(number, int) else tirx.max(divisor, as_size(1))


def distance(size: Any, other: Any) -> Any:
    """By how much two sizes differ; a square of that may be 0 in 64 bits."""
    return tirx.max(as_size(size) - as_size(other), as_size(other) - as_size(size))


def end_unless_zero(builder: relax.BlockBuilder, excess: Any) -> None:
    """End the run where a formula of sizes is not 0."""
    if isinstance(excess, int) and excess == 0:
        return
    vector = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([excess])))
    shape = builder.emit(relax.op.tensor_to_shape(vector))
    builder.match_cast(shape, relax.ShapeType([0]))
