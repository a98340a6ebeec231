"""Whether what a body for GPUs writes lies inside of its buffers, as TVM's analyzer proves it.

TVM has moved and lowered a schedule by then, and has forgotten conditions on the way: sums across
threads were written for results that do not exist. A write is proved from the ranges of the loops
and the conditions around it. Where the analyzer does not see that ``n`` rows of ``m`` elements are
``m * n``, ``m`` times a condition is taken from the index first, and its bound from what is left;
of two axes twice. Fragments of tensor cores are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx

from tvm_rammer.backend.cuda.thread_body import ThreadBody, is_thread_index
from tvm_rammer.kernel.nodes import collect

#: Conditions that are taken from an index, one after the other.
_MOST_TAKEN = 2


def writes_inside(body: ThreadBody, threads: int) -> bool:
    """Whether every write of a body to memory of the GPU is proved.

    Parameters
    ----------
    body : ThreadBody
    threads : int
        Of a resident block.
    """
    sizes = {
        declared.buffer: prod(map(int, declared.buffer.shape))
        for declared in collect(body.func.body, tirx.DeclBuffer)
    }
    return _Walk(sizes, threads, body.num_tiles).inside(body.func.body)


@dataclass
class _Walk:
    """Goes through statements with what holds around them."""

    sizes: dict[Any, int]
    threads: int
    num_tiles: int
    analyzer: Any = field(default_factory=sym.Analyzer)
    bound: dict[Any, Any] = field(default_factory=dict)
    conditions: list[Any] = field(default_factory=list)
    depth: int = 0

    def inside(self, statement: Any) -> bool:
        """Whether all writes of a statement are."""
        if isinstance(statement, tirx.SeqStmt):
            return all(self.inside(each) for each in statement)
        if isinstance(statement, tirx.Bind):
            if is_thread_index(statement.value):
                self.analyzer.bind(statement.var, tvm.ir.Range(0, self.threads))
            else:
                self.bound[statement.var] = self._of_loops(statement.value)
            return True
        if isinstance(statement, tirx.For):
            return self._loop(statement)
        if isinstance(statement, tirx.IfThenElse):
            return self._branches(statement)
        if isinstance(statement, tirx.BufferStore) and statement.buffer in self.sizes:
            return self._write(statement)
        inner = getattr(statement, "body", None)
        return inner is None or self.inside(inner)

    def _loop(self, loop: Any) -> bool:
        start, extent = self._of_loops(loop.min), self._of_loops(loop.extent)
        # Every body has one loop around all others, over the tiles that it is told.
        tiles = tvm.ir.Range(0, self.num_tiles)
        places = tvm.ir.Range.from_min_extent(start, extent) if self.depth else tiles
        self.analyzer.bind(loop.loop_var, places)
        self.depth += 1
        found = self.inside(loop.body)
        self.depth -= 1
        return found

    def _branches(self, branch: Any) -> bool:
        condition = self._of_loops(branch.condition)
        otherwise = branch.else_case
        return self._where(condition, branch.then_case) and (
            otherwise is None or self._where(tirx.Not(condition), otherwise)
        )

    def _where(self, condition: Any, statement: Any) -> bool:
        before = len(self.conditions)
        self.conditions += _parts(condition)
        with self.analyzer.constraint_scope(condition):
            found = self.inside(statement)
        del self.conditions[before:]
        return found

    def _write(self, store: Any) -> bool:
        index, size = self._of_loops(store.indices[0]), self.sizes[store.buffer]
        lanes = 1
        if isinstance(index, tirx.Ramp):
            if not isinstance(index.stride, tirx.IntImm) or int(index.stride) != 1:
                return False
            index, lanes = index.base, int(index.lanes)
        if not isinstance(index.ty, tvm.ir.PrimType) or "x" in str(index.ty):
            return False
        inside = self.analyzer.can_prove(index >= 0)
        return inside and self._is_below(index, size - lanes, _MOST_TAKEN)

    def _is_below(self, index: Any, most: int, taken: int) -> bool:
        """Whether an index is at most so much."""
        if self.analyzer.can_prove(index <= most):
            return True
        if not taken:
            return False
        for condition in self.conditions:
            for times, row, last in _rows(condition, index):
                # What is left is not negative.
                if times * last > most:
                    continue
                rest = self.analyzer.simplify(index - row * times)
                if self._is_below(rest, most - times * last, taken - 1):
                    return True
        return False

    def _of_loops(self, expression: Any) -> Any:
        """An expression without what is bound to a name."""
        if isinstance(expression, int):
            return expression
        replace = tirx.Var, lambda variable: self.bound.get(variable, variable)
        return tvm_ffi.structural_map(expression, replace)


def _parts(condition: Any) -> Iterator[Any]:
    """What a conjunction consists of."""
    if isinstance(condition, tirx.And):
        yield from _parts(condition.a)
        yield from _parts(condition.b)
    else:
        yield condition


def _rows(condition: Any, index: Any) -> Iterator[tuple[int, Any, int]]:
    """Of ``row <= last``: how many elements of an index a row may have, the row, and the last."""
    if not isinstance(condition, tirx.LT | tirx.LE) or not isinstance(condition.b, tirx.IntImm):
        return
    last = int(condition.b) - isinstance(condition, tirx.LT)
    steps = _factors(condition.a) | {1}
    widths = {of // step for of in _factors(index) for step in steps if of % step == 0}
    for times in sorted(widths, reverse=True):
        yield times, condition.a, last


def _factors(expression: Any) -> set[int]:
    """The numbers that something is multiplied by."""
    return {
        int(each.b) for each in collect(expression, tirx.Mul) if isinstance(each.b, tirx.IntImm)
    }
