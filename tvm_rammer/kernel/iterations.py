"""How often the statements inside of loops and conditions run, counted by evaluating the bounds.

Tiles at an edge are smaller and guarded by conditions; to count all as full would make a kernel
look faster than it is. So the conditions are evaluated over all values of the loop variables that
they mention.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir import Call

from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.loops import USUAL_TRIPS
from tvm_rammer.kernel.nodes import all_of, conjuncts

#: Beyond this many combinations of values a condition is evaluated on an evenly spread part.
_MOST_POINTS = 1 << 16

_BINARY = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Div: np.floor_divide,
    tirx.Mod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}


class _UnknownError(Exception):
    """An expression depends on more than loop variables."""


@dataclass(frozen=True)
class Iterations:
    """The loops and conditions around a statement.

    Attributes
    ----------
    values : dict of Var to int or array
        What a variable may be: a parameter's value, or all values of a loop variable.
    bound : dict of Var to expression
        Variables that stand for an expression.
    conditions : tuple of expression
        What must hold for the statement to run.
    count : float
        How often it would run if all conditions held.
    """

    values: dict[Any, Any] = field(default_factory=dict)
    bound: dict[Any, Any] = field(default_factory=dict)
    conditions: tuple[Any, ...] = ()
    count: float = 1.0

    @property
    def times(self) -> float:
        """How often the statement runs; a condition that depends on data counts as true."""
        share = prod(self._share(group) for group in self._related())
        return self.count * share

    def inside(self, loop: tirx.For) -> Iterations:
        """The body of a loop."""
        try:
            first, extent = self._evaluate(loop.min), self._evaluate(loop.extent)
            start, stop = int(np.min(first)), int(np.max(first + extent))
            trips = float(np.mean(np.maximum(extent, 0)))
        except _UnknownError:
            start, stop, trips = 0, 1, 1.0
        trips = float(loop.annotations.get(USUAL_TRIPS, trips))
        values = {**self.values, loop.loop_var: np.arange(start, max(stop, start + 1))}
        return Iterations(values, self.bound, self.conditions, self.count * trips)

    def where(self, condition: Any) -> Iterations:
        """A branch that runs where a condition holds."""
        conditions = (*self.conditions, *conjuncts(condition))
        return Iterations(self.values, self.bound, conditions, self.count)

    def let(self, variable: Any, value: Any) -> Iterations:
        """What follows the binding of a variable."""
        return Iterations(self.values, {**self.bound, variable: value}, self.conditions, self.count)

    def values_of(self, expression: Any, given: dict[Any, Any], most: int) -> Any:
        """What an expression can be: an axis for each loop variable in it that is not ``given``.

        Parameters
        ----------
        expression : Expr
        given : dict of Var to int or array
            Values of loop variables, instead of all that they take.
        most : int
            Combinations of the values of all others.

        Returns
        -------
        array or None
            ``None`` if there are more, or it depends on data.
        """
        loops = [variable for variable in self._loops(expression) if variable not in given]
        points = [self.values[variable] for variable in loops]
        if prod(map(len, points)) > most:
            return None
        try:
            grid = dict(zip(loops, np.ix_(*points), strict=True))
            return self._value(expression, {**grid, **given})
        except _UnknownError:
            return None

    def _related(self) -> list[list[Any]]:
        """The conditions in groups that share no loop variable: these hold independently."""
        groups: list[tuple[set[Any], list[Any]]] = []
        for condition in self.conditions:
            mine, together = self._loops(condition), [condition]
            apart = []
            for loops, group in groups:
                if loops & mine:
                    mine |= loops
                    together = group + together
                else:
                    apart.append((loops, group))
            groups = [*apart, (mine, together)]
        return [group for _, group in groups]

    def _share(self, conditions: list[Any]) -> float:
        """The part of all iterations in which these conditions hold."""
        try:
            return float(np.mean(self._evaluate(all_of(conditions))))
        except _UnknownError:
            return 1.0

    def _loops(self, expression: Any) -> set[Any]:
        """The loop variables that an expression depends on."""
        found: set[Any] = set()
        for variable in variables(expression):
            if variable in self.bound:
                found |= self._loops(self.bound[variable])
            elif isinstance(self.values.get(variable), np.ndarray):
                found.add(variable)
        return found

    def _evaluate(self, expression: Any) -> Any:
        """The values of an expression, one axis for each loop variable in it."""
        loops = list(self._loops(expression))
        points = [self.values[variable] for variable in loops]
        while prod(map(len, points)) > _MOST_POINTS:
            longest = max(range(len(points)), key=lambda k: len(points[k]))
            points[longest] = points[longest][:: 2 + len(points[longest]) % 2]
        grid = dict(zip(loops, np.ix_(*points), strict=True))
        return self._value(expression, grid)

    def _value(self, node: Any, grid: dict[Any, Any]) -> Any:
        operation = _BINARY.get(type(node))
        if operation is not None:
            return operation(self._value(node.a, grid), self._value(node.b, grid))
        if isinstance(node, tirx.IntImm):
            return np.int64(int(node.value))
        if isinstance(node, tirx.Not):
            return np.logical_not(self._value(node.a, grid))
        if isinstance(node, tirx.Cast):
            return self._value(node.value, grid)
        if isinstance(node, Call) and getattr(node.op, "name", "").endswith(".likely"):
            return self._value(node.args[0], grid)
        if isinstance(node, tirx.Var):
            if node in self.bound:
                return self._value(self.bound[node], grid)
            if node in grid:
                return grid[node]
            if node in self.values:
                return self.values[node]
        raise _UnknownError
