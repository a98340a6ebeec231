"""Loops whose steps only the run counts, as functions that call themselves; for both importers.

At level 0 such a function takes one step. At level n it calls itself at level n - 1, and then once
more if there is a next step: what is under way at once are n calls, for 2^n steps, where a
function that called itself for each next step would end with the stack. What steps write is joined
in pairs, so that a slice is copied as many times as there are levels, and not steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call
from tvm.relax import op

#: Of all steps together, up to which a loop becomes these operators, which can be planned.
MOST_OPERATORS = 10_000

#: Levels where nothing limits the steps.
LEVELS = 62

_FLAG = relax.TensorType((), "bool")
_NUMBER = relax.TensorType((), "int64")


class RunTimeSteps(ABC):
    """A loop: states that each step changes, and slices that it writes.

    Parameters
    ----------
    builder : relax.BlockBuilder
        The loop's functions go to its module.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.bb = builder

    @abstractmethod
    def inside(self) -> tuple[Any, list[Any]]:
        """What steps read of the graph around, in a function, and which of it are parameters."""

    @abstractmethod
    def state_variables(self) -> list[relax.Var]:
        """A parameter for each state."""

    @abstractmethod
    def state_types(self) -> list[Any]:
        """What states are after any step."""

    @abstractmethod
    def slices(self) -> list[tuple[Sequence[int | None], str]]:
        """Shapes, as far as they are the same in all steps, and types of what a step writes."""

    @abstractmethod
    def levels(self, inside: Any) -> int:
        """For how many steps there is a limit: 2 to that power."""

    @abstractmethod
    def one_step(self, inside: Any, step: Any, after: Any, states: Sequence[Any]) -> list[Any]:
        """Whether there is the step ``after`` this one; states; slices, one along a first axis."""

    @abstractmethod
    def joined(self, place: int, first: Any, second: Any) -> relax.Expr:
        """What some steps have written as their slice of a number, and the steps behind them."""

    def sized(self, value: Any) -> Any:
        """A tensor whose sizes are known, or have names."""
        return value

    def convert(self, passed: Sequence[Any], begins: Any, states: Sequence[Any]) -> list[Any]:
        """The results of the loop, its states and then what steps have written.

        Parameters
        ----------
        passed : sequence of relax.Expr
            For the parameters of ``inside``.
        begins : relax.Expr
            Whether there is a first step.
        states : sequence of relax.Expr
            Before it.
        """
        found = self.bb.emit(Call(self._whole(), [*passed, begins, *states]))
        return self.fields(found)

    def _whole(self) -> Any:
        """The function of the loop; nothing is done where there is no first step."""
        inside, passed = self.inside()
        begins, states = relax.Var("begins", _FLAG), self.state_variables()
        results = relax.TupleType([*self.state_types(), *self._stacked_types()])
        many = self._many()
        levels = number(self.levels(inside))
        first = number(0)

        def all_steps() -> relax.Expr:
            found = self.bb.emit(Call(many, [levels, *passed, first, *states]))
            return relax.Tuple(self.fields(found)[2:])

        def no_step() -> relax.Expr:
            return relax.Tuple([*states, *self._nothing()])

        def either() -> relax.Expr:
            return relax.If(begins, self.block(all_steps), self.block(no_step))

        params = [*passed, begins, *states]
        return self.bb.add_func(self._function(params, results, either), "loop")

    def _many(self) -> Any:
        """The function of some steps: whether there is a next one, its number, states, slices."""
        inside, passed = self.inside()
        level, step = relax.Var("level", _NUMBER), relax.Var("step", _NUMBER)
        states = self.state_variables()
        params = [level, *passed, step, *states]
        results = relax.TupleType([_FLAG, _NUMBER, *self.state_types(), *self._stacked_types()])
        # What is called before it is there has a name of its own: equal functions become one.
        own = self.bb.get_unique_name("loop_steps")
        empty = relax.Function.create_empty(params, results).with_attr("will_be", own)
        symbol = self.bb.add_func(empty, "loop_steps")

        def two_halves() -> relax.Expr:
            below = self.bb.emit(op.subtract(level, number(1)))
            found = self.bb.emit(Call(symbol, [below, *passed, step, *states]))
            going, *rest = first = self.fields(found)

            def second_half() -> relax.Expr:
                count = 1 + len(states)
                given = [self.sized(each) for each in rest[:count]]
                more = self.fields(self.bb.emit(Call(symbol, [below, *passed, *given])))
                pairs = zip(rest[count:], more[1 + count :], strict=True)
                written = [self.joined(place, *pair) for place, pair in enumerate(pairs)]
                return relax.Tuple([*more[: 1 + count], *written])

            parts = [self.block(second_half), self.block(lambda: relax.Tuple(first))]
            return self.bb.emit(relax.If(going, *parts))

        def either() -> relax.Expr:
            is_last = self.bb.emit(op.equal(level, number(0)))
            one = self.block(lambda: self._one_step(inside, step, states))
            return relax.If(is_last, one, self.block(two_halves))

        self.bb.update_func(symbol, self._function(params, results, either))
        return symbol

    def _one_step(self, inside: Any, step: Any, states: Sequence[Any]) -> relax.Expr:
        after = self.bb.emit(op.add(step, number(1)))
        going, *found = self.one_step(inside, step, after, states)
        return relax.Tuple([going, after, *found])

    def _stacked_types(self) -> list[relax.TensorType]:
        return [loose([None, *shape], dtype) for shape, dtype in self.slices()]

    def _nothing(self) -> list[relax.Expr]:
        """What no steps have written."""
        shapes = (([0, *(size or 0 for size in shape)], dtype) for shape, dtype in self.slices())
        return [relax.const(np.empty(shape, dtype), dtype) for shape, dtype in shapes]

    def fields(self, found: relax.Var) -> list[relax.Expr]:
        """The parts of a tuple."""
        count = len(found.ty.fields)
        return [self.bb.emit(relax.TupleGetItem(found, place)) for place in range(count)]

    def block(self, make: Callable[[], relax.Expr]) -> relax.SeqExpr:
        """What is computed in a branch, or in a function."""
        self.bb._begin_binding_block()
        try:
            result = make()
        finally:
            block = self.bb._end_block()
        return relax.SeqExpr([block], result)

    def _function(
        self, params: Sequence[Any], results: Any, make: Callable[[], relax.Expr]
    ) -> relax.Function:
        self.bb.begin_scope(list(params))
        try:
            body = self.block(lambda: self.bb.emit(make()))
        finally:
            self.bb.end_scope()
        return relax.Function(list(params), body, results)


def number(value: int) -> relax.Expr:
    """A scalar of int64."""
    return relax.const(np.array(value), "int64")


def loose(shape: Sequence[int | None], dtype: str) -> relax.TensorType:
    """A type that says no more than what all steps have in common."""
    known = [size for size in shape if size is not None]
    if len(known) == len(shape):
        return relax.TensorType(known, dtype)
    return relax.TensorType(dtype=dtype, ndim=len(shape))
