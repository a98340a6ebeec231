"""``while_loop`` and ``scan`` of PyTorch, whose steps only the run counts, or are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.relax import op

from tvm_rammer.frontend.run_time_steps import LEVELS, MOST_OPERATORS, RunTimeSteps, number

#: Computes what a graph inside of a program does, of its operands.
Translate = Callable[[Any, Sequence[Any]], list[Any]]


class _GraphSteps(RunTimeSteps):
    """States, and what a graph makes of them and of what it reads besides.

    Parameters
    ----------
    builder : relax.BlockBuilder
    translate : callable
    body : torch.fx.GraphModule
        Of the states and then of what it reads.
    states, read : sequence of relax.Expr
        Tensors of known shapes; constants are read by the loop's functions as they are.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        translate: Translate,
        body: Any,
        states: Sequence[Any],
        read: Sequence[Any],
    ) -> None:
        super().__init__(builder)
        self.translate, self.body, self.states, self.read = translate, body, states, read

    def inside(self) -> tuple[list[Any], list[Any]]:
        values = [
            relax.Var(each.name, each.ty) if isinstance(each, relax.Var) else each
            for each in self.read
        ]
        return values, [each for each in values if isinstance(each, relax.Var)]

    def state_variables(self) -> list[relax.Var]:
        return [relax.Var(f"state_{place}", each.ty) for place, each in enumerate(self.states)]

    def state_types(self) -> list[Any]:
        return [each.ty for each in self.states]

    def slices(self) -> list[tuple[Sequence[int | None], str]]:
        return []

    def levels(self, inside: Any) -> int:
        return LEVELS

    def joined(self, place: int, first: Any, second: Any) -> relax.Expr:
        shape, dtype = self.slices()[place]
        parts = [
            self.bb.match_cast(each, relax.TensorType([tirx.Var(name, "int64"), *shape], dtype))
            for each, name in ((first, "steps"), (second, "more_steps"))
        ]
        return self.bb.emit(op.concat(parts, 0))

    def run(self, begins: Any) -> list[Any]:
        """The results of the loop, as variables."""
        passed = [each for each in self.read if isinstance(each, relax.Var)]
        return self.convert(passed, begins, self.states)


class WhileLoop(_GraphSteps):
    """Steps as long as a graph of the states says so."""

    def __init__(self, condition: Any, *rest: Any) -> None:
        super().__init__(*rest)
        self.condition = condition

    def one_step(self, inside: Any, step: Any, after: Any, states: Sequence[Any]) -> list[Any]:
        found = self.translate(self.body, [*states, *inside])
        return [self.goes_on(found, inside), *found]

    def goes_on(self, states: Sequence[Any], read: Sequence[Any]) -> Any:
        """Whether there is a step that begins with these states."""
        (going,) = self.translate(self.condition, [*states, *read])
        return self.bb.emit(op.reshape(going, ()))


class Scan(_GraphSteps):
    """A step for each slice of some tensors, which writes slices.

    Parameters
    ----------
    scanned : int
        How many of what is read, from the first on, are read a slice at a time.
    count : int
        Slices, one or more.
    """

    def __init__(self, scanned: int, count: int, results: Sequence[Any], *rest: Any) -> None:
        super().__init__(*rest)
        self.scanned, self.count, self.results = scanned, count, results

    def slices(self) -> list[tuple[Sequence[int | None], str]]:
        return [(shape[1:], dtype) for shape, dtype in self.results]

    def levels(self, inside: Any) -> int:
        return max(self.count - 1, 0).bit_length()

    def one_step(self, inside: Any, step: Any, after: Any, states: Sequence[Any]) -> list[Any]:
        going = self.bb.emit(op.less(after, number(self.count)))
        return [going, *self._step(inside, step, states)]

    def _step(self, inside: Any, step: Any, states: Sequence[Any]) -> list[Any]:
        at = [self.bb.emit(op.take(each, step, 0)) for each in inside[: self.scanned]]
        found = self.translate(self.body, [*states, *at, *inside[self.scanned :]])
        count = len(states)
        written = [self.bb.emit(op.expand_dims(each, 0)) for each in found[count:]]
        return [*found[:count], *written]

    def _unrolled(self) -> list[Any]:
        """The operators of all steps, one after the other, which can be planned together."""
        states, written = list(self.states), []
        count = len(states)
        for step in range(self.count):
            found = self._step(self.read, number(step), states)
            states = found[:count]
            written.append(found[count:])
        return [*states, *(self.bb.emit(op.concat(each, 0)) for each in zip(*written, strict=True))]

    def stacked(self) -> list[Any]:
        """The states after the last step, and all that steps have written."""
        if self.count * len(self.body.graph.nodes) <= MOST_OPERATORS:
            return self._unrolled()
        found = self.run(relax.const(True, "bool"))
        count = len(self.states)
        whole = [
            self.bb.match_cast(each, relax.TensorType(shape, dtype))
            for each, (shape, dtype) in zip(found[count:], self.results, strict=True)
        ]
        return [*found[:count], *whole]
