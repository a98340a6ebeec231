"""Which vectors a kernel's schedule promises, and whether the generated code has them.

A schedule vectorises an innermost axis, but it is LLVM that decides: a condition inside, or a call
that has no vector form, and the lanes run one by one, ten times slower and with the same results.
So the promise is read from the rTask body, and looked for in the LLVM IR that the body became.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tvm import tirx
from tvm.ir import Call

from tvm_rammer.kernel.blocks import loads, variables
from tvm_rammer.kernel.nodes import collect, parts_of
from tvm_rammer.kernel.work import element
from tvm_rammer.rprogram import dtype_bytes

_VECTOR = r"<(\d+) x (i\d+|float|double|half|bfloat)>"
_MULTIPLY_ADD = re.compile(r"@llvm\.(?:fmuladd|fma)\.v(\d+)(f\d+)\(")
_MULTIPLY = re.compile(rf"= (?:\w+ )*fmul (?:\w+ )*{_VECTOR}")
_LOAD = re.compile(rf"= load {_VECTOR}|= call {_VECTOR} @llvm\.masked\.load")
_STORE = re.compile(rf"^\s*store {_VECTOR}|@llvm\.masked\.store\.v(\d+)([if]\d+)")
#: A function of the C library, in its own name or as LLVM knows it: of a vector, LLVM calls it for
#: one number after the other.
_CALL = re.compile(
    r"call (?:\w+ )*(?:float|double|<\d+ x (?:float|double)>) @(?:llvm\.)?"
    r"((?:a?(?:sin|cos|tan)h?|atan2|exp(?:2|10|m1)?|log(?:2|10|1p)?|pow|erfc?|cbrt)f?)[.(]"
)
#: Copies that LLVM made of loops: as wide as it gets.
_BLOCK = re.compile(r"@llvm\.mem(?:cpy|move|set)\.")
_DEFINE = re.compile(r'^define [^@]*@"?([\w.$]+)"?\(')
_BITS = {"float": 32, "double": 64, "half": 16, "bfloat": 16}
_BLOCK_BYTES = 64


@dataclass(frozen=True)
class Vectors:
    """The widest vectors of some code in bytes, by what is done with them; 0 is scalar code.

    ``calls`` are the functions that it calls for one number at a time.
    """

    multiply_add: int = 0
    load: int = 0
    store: int = 0
    calls: frozenset[str] = frozenset()

    @property
    def any(self) -> bool:
        """Whether there are vectors at all."""
        return bool(self.multiply_add or self.load or self.store)

    def __or__(self, other: Vectors) -> Vectors:
        return Vectors(
            max(self.multiply_add, other.multiply_add),
            max(self.load, other.load),
            max(self.store, other.store),
            self.calls | other.calls,
        )


@dataclass(frozen=True)
class Constraint:
    """What a schedule promises of a kernel's code.

    Attributes
    ----------
    axes : tuple of str
        The innermost axes that are vectors.
    vectors : Vectors
        The widest of each kind.
    """

    axes: tuple[str, ...]
    vectors: Vectors

    def missed(self, found: Vectors) -> str | None:
        """What the code lacks, in words; None if it keeps the promise."""
        wanted = self.vectors
        if wanted.any and not found.any:
            return "scalar code"
        lacking = [
            f"{words} of {have} bytes instead of {want}" if have else f"scalar {words}"
            for words, have, want in (
                ("multiply-adds", found.multiply_add, wanted.multiply_add),
                ("loads", found.load, wanted.load),
                ("stores", found.store, wanted.store),
            )
            if have < want
        ]
        lacking += [f"calls of {name}" for name in sorted(found.calls)]
        return ", ".join(lacking) or None


def constraint_of(body: tirx.PrimFunc) -> Constraint:
    """What the schedule of an rTask body promises."""
    found: list[tuple[str, Vectors]] = []
    _visit(body.body, None, set(), found)
    axes = tuple(dict.fromkeys(axis for axis, _ in found))
    return Constraint(axes, _widest(vectors for _, vectors in found))


def vectors_in(llvm_ir: str) -> Mapping[str, Vectors]:
    """The widest vectors in every function of a module's LLVM IR, by the function's name."""
    found: dict[str, Vectors] = {}
    name = None
    for line in llvm_ir.splitlines():
        if start := _DEFINE.match(line):
            name = start[1]
            found[name] = Vectors()
        elif line == "}":
            name = None
        elif name is not None:
            found[name] |= _of_instruction(line)
    return found


def _of_instruction(line: str) -> Vectors:
    if _BLOCK.search(line):
        return Vectors(load=_BLOCK_BYTES, store=_BLOCK_BYTES)
    call = _CALL.search(line)
    # Where the target has no multiply-add there is a multiplication, and an addition after it.
    return Vectors(
        _width(_MULTIPLY_ADD.search(line) or _MULTIPLY.search(line)),
        _width(_LOAD.search(line)),
        _width(_STORE.search(line)),
        frozenset(call.groups()) if call else frozenset(),
    )


def _width(match: re.Match[str] | None) -> int:
    if match is None:
        return 0
    lanes, element = (group for group in match.groups() if group)
    return int(lanes) * (_BITS.get(element) or int(element[1:])) // 8


def _widest(vectors: Iterable[Vectors]) -> Vectors:
    return reduce(Vectors.__or__, vectors, Vectors())


def _visit(statement: Any, lane: Any, memory: set[Any], found: list[tuple[str, Vectors]]) -> None:
    """Collect what the stores of a statement promise.

    ``lane`` is the loop around it that is vectorised, ``memory`` the views of the body's pointers:
    a local buffer may stay in registers.
    """
    if isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.VECTORIZED:
        lane = statement
    elif isinstance(statement, tirx.DeclBuffer):
        memory.add(statement.buffer)
    elif isinstance(statement, tirx.BufferStore):
        found.extend(_promises(statement, lane, memory))
    for part in parts_of(statement):
        _visit(part, lane, memory, found)


def _promises(store: Any, loop: Any, memory: set[Any]) -> Iterator[tuple[str, Vectors]]:
    """What a store of a vector, or in a vectorised loop, promises.

    A condition around a load, and what a call loads, promise nothing. Nor does a sum that is kept
    in memory, as LLVM keeps it in a register.
    """
    _, lanes = element(str(store.value.ty))
    variable = None
    if lanes == 1 and loop is not None and isinstance(loop.extent, tirx.IntImm):
        variable, lanes = loop.loop_var, int(loop.extent)
    if lanes == 1 or str(store.value.ty).startswith("bool"):
        return

    def width(buffer: Any, index: Any) -> int:
        if buffer not in memory or not _is_contiguous(index, variable):
            return 0
        return lanes * dtype_bytes(str(buffer.dtype))

    conditional = collect(store.value, Call, tirx.Select)
    products = [each for node in collect(store.value, tirx.Add) for each in _product(node)]
    others = [load for load in loads(store.value) if not load.source.same_as(store.buffer)]
    certain = [] if conditional else others
    yield (
        variable.name if variable is not None else "vector",
        Vectors(
            max((lanes * dtype_bytes(element(str(p.ty))[0]) for p in products), default=0),
            max((width(load.source, load.indices[-1]) for load in certain), default=0),
            width(store.buffer, store.indices[-1]),
        ),
    )


def _product(addition: Any) -> list[Any]:
    """The product of floats in an addition; one with a constant may become an addition."""
    return [
        part
        for part in (addition.a, addition.b)
        if isinstance(part, tirx.Mul)
        and str(part.ty).startswith("float")
        and not any(isinstance(factor, tirx.FloatImm) for factor in (part.a, part.b))
    ][:1]


def _is_contiguous(index: Any, lane: Any) -> bool:
    """Whether neighbouring lanes are neighbours in memory: the lane is added to the rest."""
    if isinstance(index, tirx.Ramp):
        return isinstance(index.stride, tirx.IntImm) and int(index.stride) == 1
    if lane is None:
        return False
    if isinstance(index, tirx.Add):
        places = [_is_contiguous(part, lane) for part in (index.a, index.b)]
        return any(places) and not all(lane in variables(part) for part in (index.a, index.b))
    return isinstance(index, tirx.Var) and index.same_as(lane)
