"""Writes LLVM IR functions on vectors of float32, from arithmetic on Python objects.

A function is described once, as Python code on :class:`Value`, and written out for every number of
lanes that a program uses. Products and sums carry the ``contract`` flag: they become fused
multiply-adds where the target has them, and stay two instructions where it does not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tvm_rammer.backend.cpu.llvm import llvm_ir

_FLOATS = ("float", "double")
#: The integer type with the bits of a floating-point type.
_BITS = {"float": "i32", "double": "i64"}


@dataclass
class _Lines:
    """The body of the function that is being written."""

    lanes: int
    lines: list[str]
    #: The texts of what it calls.
    called: set[str]

    def type(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def emit(self, instruction: str, element: str) -> Value:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return Value(self, name, element)

    def number(self, value: float, element: str) -> str:
        """A constant in every lane, to the last bit."""
        text = str(value)
        if element in _FLOATS:
            exact = float(np.float32(value)) if element == "float" else float(value)
            text = f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"
        return text if self.lanes == 1 else f"splat ({element} {text})"


@dataclass(frozen=True)
class Value:
    """A vector (or a scalar) while a function is written; ``element`` is the type of a lane."""

    _lines: _Lines
    name: str
    element: str

    def __add__(self, other: Value | float) -> Value:
        return self._arithmetic("add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._arithmetic("sub", other)

    def __mul__(self, other: Value | float) -> Value:
        return self._arithmetic("mul", other)

    def __radd__(self, other: float) -> Value:
        return self + other

    def __rmul__(self, other: float) -> Value:
        return self * other

    def __rsub__(self, other: float) -> Value:
        return self.number(other) - self

    def __truediv__(self, other: Value) -> Value:
        return self._binary("fdiv", other)

    def __rtruediv__(self, other: float) -> Value:
        return self.number(other) / self

    def __neg__(self) -> Value:
        return self._lines.emit(f"fneg {self._typed()}", self.element)

    def __and__(self, other: Value | int) -> Value:
        return self._binary("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary("xor", other)

    def __lshift__(self, bits: int) -> Value:
        return self._binary("shl", bits)

    def __rshift__(self, bits: int) -> Value:
        """Arithmetic; :meth:`logical_shift` moves zeros in."""
        return self._binary("ashr", bits)

    def logical_shift(self, bits: int) -> Value:
        return self._binary("lshr", bits)

    def __lt__(self, other: Value | float) -> Value:
        return self._compare("lt", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._compare("gt", other)

    def equals(self, other: Value | float) -> Value:
        """Lanes that are equal: none where either is NaN."""
        return self._compare("eq", other)

    def where(self, chosen: Value | float, other: Value | float) -> Value:
        """``chosen`` in the lanes that hold, ``other`` elsewhere."""
        known = chosen if isinstance(chosen, Value) else other
        assert isinstance(known, Value)
        texts = [self._typed(), known._typed(chosen), known._typed(other)]
        return self._lines.emit(f"select {', '.join(texts)}", known.element)

    def at_least(self, bound: float) -> Value:
        """The larger one; NaN stays NaN."""
        limit = self.number(bound)
        return (limit > self).where(limit, self)

    def at_most(self, bound: float) -> Value:
        """The smaller one; NaN stays NaN."""
        limit = self.number(bound)
        return (limit < self).where(limit, self)

    def clamped(self, low: float, high: float) -> Value:
        """Within bounds; NaN becomes one of them."""
        below = (self < high).where(self, high)
        return (below > low).where(below, low)

    def unless(self, apart: Value, function: str, x: Value) -> Value:
        """This, but libm's ``function(x)`` in the lanes where ``apart`` holds; once a function.

        Only where there is such a lane it is called, for one lane after the other.
        """
        lines = self._lines
        some = apart.name
        if lines.lanes > 1:
            reduce = f"@llvm.vector.reduce.or.v{lines.lanes}i1"
            lines.called.add(f"declare i1 {reduce}({lines.type('i1')})")
            some = lines.emit(f"call i1 {reduce}({apart._typed()})", "i1").name
        lines.called.add(f"declare float @llvm.{function}.f32(float)")
        vector, count = lines.type("float"), lines.lanes
        values = {"some": some, "vector": vector, "x": x.name, "count": count}
        lines.lines += [llvm_ir("lanes_apart", function=function, **values).rstrip()]
        other = lines.emit(f"load {vector}, ptr %lanes", "float")
        mixed = apart.where(other, self)
        lines.lines += ["  br label %done", "done:"]
        return lines.emit(f"phi {vector} [ {self.name}, %entry ], [ {mixed.name}, %mix ]", "float")

    def absolute(self) -> Value:
        return self._intrinsic("fabs")

    def square_root(self) -> Value:
        return self._intrinsic("sqrt")

    def rounded(self) -> Value:
        """The nearest integer, of two the even one."""
        return self._intrinsic("nearbyint")

    def bits(self) -> Value:
        """The bits of a floating-point number as an integer."""
        return self._convert("bitcast", _BITS[self.element])

    def as_float(self) -> Value:
        """The floating-point number that has these bits."""
        return self._convert("bitcast", next(f for f, i in _BITS.items() if i == self.element))

    def truncated(self) -> Value:
        """To int32; the value must fit."""
        return self._convert("fptosi", "i32")

    def converted(self) -> Value:
        """From int32 to float32."""
        return self._convert("sitofp", "float")

    def widened(self) -> Value:
        """From float32 to float64."""
        return self._convert("fpext", "double")

    def narrowed(self) -> Value:
        """From float64 to float32."""
        return self._convert("fptrunc", "float")

    def number(self, value: float) -> Value:
        """A constant of the same type."""
        return Value(self._lines, self._lines.number(value, self.element), self.element)

    def polynomial(self, *coefficients: float) -> Value:
        """Horner's scheme, the constant term first."""
        *lower, result = (self.number(c) for c in coefficients)
        for coefficient in reversed(lower):
            result = result * self + coefficient
        return result

    def _typed(self, other: Value | float | None = None) -> str:
        """An operand with its type: this one, or one of this one's type."""
        return f"{self._lines.type(self.element)} {self._operand(self if other is None else other)}"

    def _operand(self, other: Value | float) -> str:
        if isinstance(other, Value):
            return other.name
        return self._lines.number(other, self.element)

    def _binary(self, instruction: str, other: Value | float) -> Value:
        text = f"{instruction} {self._typed()}, {self._operand(other)}"
        return self._lines.emit(text, self.element)

    def _arithmetic(self, name: str, other: Value | float) -> Value:
        return self._binary(f"f{name} contract" if self.element in _FLOATS else name, other)

    def _compare(self, relation: str, other: Value | float) -> Value:
        if self.element in _FLOATS:
            kind = f"fcmp o{relation}"
        else:
            kind = f"icmp {relation}" if relation == "eq" else f"icmp s{relation}"
        return self._lines.emit(f"{kind} {self._typed()}, {self._operand(other)}", "i1")

    def _convert(self, instruction: str, element: str) -> Value:
        text = f"{instruction} {self._typed()} to {self._lines.type(element)}"
        return self._lines.emit(text, element)

    def _intrinsic(self, name: str) -> Value:
        short = {"float": "f32", "double": "f64"}[self.element]
        suffix = short if self._lines.lanes == 1 else f"v{self._lines.lanes}{short}"
        type_, symbol = self._lines.type(self.element), f"@llvm.{name}.{suffix}"
        self._lines.called.add(f"declare {type_} {symbol}({type_})")
        return self._lines.emit(f"call {type_} {symbol}({self._typed()})", self.element)


def function_text(
    symbol: str, describe: Callable[..., Value], arguments: int, lanes: int
) -> tuple[str, set[str]]:
    """A function of float32 vectors, and the texts of what it calls.

    Parameters
    ----------
    symbol : str
    describe : Callable
        From one :class:`Value` per argument to the result.
    arguments : int
        How many it has.
    lanes : int
        Of the arguments and of the result; with 1 they are scalars.
    """
    lines = _Lines(lanes, [], set())
    result = describe(*(Value(lines, f"%x{k}", "float") for k in range(arguments)))
    vector = lines.type("float")
    head = ", ".join(f"{vector} %x{k}" for k in range(arguments))
    body = "\n".join(["entry:", *lines.lines, f"  ret {vector} {result.name}"])
    return f"define {vector} @{symbol}({head}) alwaysinline {{\n{body}\n}}\n", lines.called
