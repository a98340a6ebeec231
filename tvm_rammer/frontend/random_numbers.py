"""Random numbers as functions of how often a model has been run.

A generator that counts: each number is computed from the number of the run, from its place in the
tensor, and from a key of the operator that asks for it (Widynski, "Squares: A Fast Counter-Based
RNG", 2020). So operators draw side by side and in any order, and equal states draw equal numbers.
What a run leaves for the next one is how many there have been.
"""

from __future__ import annotations

import hashlib
from math import pi
from typing import Any

from tvm import te, tirx

#: The state of a model that draws: how many runs there have been.
STATE = "random_draws"

#: Digits of a key: each half has different ones, as the generator wants it.
_DIGITS = "123456789abcdef"
_HALF = 8


def key_of(name: str) -> int:
    """The key of what is called so: operators of one name draw the same numbers."""

    def half(which: str) -> str:
        marks = {d: hashlib.sha256(f"{name} {which} {d}".encode()).digest() for d in _DIGITS}
        return "".join(sorted(_DIGITS, key=marks.__getitem__)[:_HALF])

    return int(half("high") + half("low"), 16) | 1


def uniform(shape: Any, draw: te.Tensor, key: int) -> te.Tensor:
    """Numbers from 0 to 1, without 1, in float32.

    Parameters
    ----------
    shape : sequence of PrimExpr
        Of the result.
    draw : te.Tensor
        ``int64`` without axes: the number of the run.
    key : int
        See :func:`key_of`.
    """
    return te.compute(
        shape, lambda *place: _unit(_bits(draw(), _flat(place, shape), 0, key)), "uniform"
    )


def normal(shape: Any, draw: te.Tensor, key: int) -> te.Tensor:
    """Numbers of the standard normal distribution in float32 (Box and Muller, 1958).

    Parameters
    ----------
    shape, draw, key
        See :func:`uniform`.
    """

    def number(*place: Any) -> Any:
        first, second = (_unit(_bits(draw(), _flat(place, shape), k, key)) for k in (0, 1))
        radius = te.sqrt(te.log(tirx.const(1, "float32") - first) * tirx.const(-2, "float32"))
        return radius * te.cos(second * tirx.const(2 * pi, "float32"))

    return te.compute(shape, number, "normal")


def _flat(place: Any, shape: Any) -> Any:
    number = tirx.const(0, "int64")
    for index, size in zip(place, shape, strict=True):
        number = number * size + index
    return number


def _bits(draw: Any, place: Any, which: int, key: int) -> Any:
    """32 random bits: four rounds of squaring the middle."""

    def word(value: int) -> Any:
        return tirx.const(value, "uint64")

    count = (draw.astype("uint64") << word(32)) + place.astype("uint64") * word(2) + word(which)
    first = count * word(key)
    second = first + word(key)
    found = first
    for added in (first, second, first):
        found = found * found + added
        found = (found >> word(32)) | (found << word(32))
    return (found * found + second) >> word(32)


def _unit(bits: Any) -> Any:
    """A number from 0 to 1, of as many bits as float32 has."""
    return (bits >> tirx.const(8, "uint64")).astype("int32").astype("float32") * tirx.const(
        2.0**-24, "float32"
    )
