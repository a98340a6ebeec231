"""The steps of a recurrent operator as one loop, as many as the run finds.

Inputs are multiplied before, all in one product: inside is what hangs on the step before. Sequences
and directions go their own ways, beside each other. The weights of all gates of some elements of a
state lie together, in the order in which they are read, and elements are computed with as soon as
their sums are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_rammer.frontend.onnx.recurrent.activations import activations
from tvm_rammer.frontend.onnx.recurrent.cells import Product, State, Weights, cell
from tvm_rammer.frontend.onnx.recurrent.expressions import Expressions, Vector
from tvm_rammer.frontend.onnx.recurrent.node import RecurrentOperator

#: Sums of a sequence that are under way at once, in registers.
_SUMS = 64
#: Sequences that read weights together, where there are so many of them that threads have work.
_TOGETHER, _MANY = 2, 8
#: The gates of a GRU: how much of the state stays, how much of it counts, and what is new.
_UPDATE, _RESET, _CANDIDATE = range(3)


@dataclass(frozen=True)
class StepsKernel:
    """What the loop computes.

    Attributes
    ----------
    operator : RecurrentOperator
    given : tuple of str
        Its tensors, of these, in order: ``products`` [steps, batch, directions * gates * width] of
        the inputs, with all biases that may be there; ``weights`` and ``late weights``
        [directions, blocks, hidden, gates, lanes]; ``bias`` [directions, width] of a state's
        product; ``lengths`` [batch]; ``state`` and ``memory`` [directions, batch, hidden];
        ``peepholes`` [directions, 3 * width].
    """

    operator: RecurrentOperator
    given: tuple[str, ...] = ()

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """Gates whose products are computed together, and then those that wait for them."""
        if self.operator.kind == "GRU" and not self.operator.resets_after_product:
            return (_UPDATE, _RESET), (_CANDIDATE,)
        return (tuple(range(self.operator.gates)),)

    @property
    def lanes(self) -> int:
        """Elements of a state that are computed together."""
        most = _SUMS // len(self.phases[0])
        return 1 << min(most.bit_length() - 1, (self.operator.hidden - 1).bit_length())

    @property
    def blocks(self) -> int:
        """Parts of a state."""
        return -(-self.operator.hidden // self.lanes)

    @property
    def width(self) -> int:
        """Of a state whose last block is full."""
        return self.blocks * self.lanes

    def computed(self, *tensors: te.Tensor) -> list[te.Tensor]:
        """What all steps give, then the state after the last one, and the memory of an LSTM."""
        steps, batch = self.in_order(*tensors[0].shape[:2])
        directions, hidden = len(self.operator.directions), self.operator.hidden
        state = (*self.in_order(directions, batch), hidden)
        shapes = [self.place(steps, directions, batch, hidden)]
        shapes += [state] * (2 if self.operator.kind == "LSTM" else 1)
        kinds = [str(self.operator.dtype)] * len(shapes)
        return list(te.extern(shapes, tensors, self._loops, name="steps", dtype=kinds))

    def in_order(self, first: Any, batch: Any) -> tuple[Any, Any]:
        """Time, or the direction of a state, and the batch, or the other way round."""
        return (batch, first) if self.operator.batch_first else (first, batch)

    def place(self, time: Any, direction: Any, batch: Any, element: Any) -> tuple[Any, ...]:
        """Of an element in what all steps give."""
        if self.operator.batch_first:
            return batch, time, direction, element
        return time, direction, batch, element

    def _loops(self, read: Sequence[Any], written: Sequence[Any]) -> Any:
        tensors = dict(zip(self.given, map(T.buffer_proxy, read), strict=True))
        results = tuple(map(T.buffer_proxy, written))
        _, batch = self.in_order(*read[0].shape[:2])
        are_many = batch >= _MANY
        groups = tirx.Select(are_many, (batch + (_TOGETHER - 1)) // _TOGETHER, batch)
        directions = range(len(self.operator.directions))
        with IRBuilder() as builder, T.parallel(0, groups * len(directions)) as each:
            first = tirx.Select(are_many, each % groups * _TOGETHER, each % groups)
            together = tirx.all(are_many, first + _TOGETHER <= batch)
            for direction, count in product(directions, (_TOGETHER, 1)):
                is_own = together if count > 1 else tirx.Not(together)
                with T.If(tirx.all(each // groups == direction, is_own)), T.Then():
                    _Sequences(self, tensors, results, (direction, first, count)).run()
        return builder.get()


class _Sequences:
    """All steps of some sequences in one direction.

    Parameters
    ----------
    kernel : StepsKernel
    tensors : mapping of str to tirx.Buffer
        What the kernel is given.
    results : sequence of tirx.Buffer
        What it writes.
    place : tuple of (int, tirx.Expr, int)
        The number of the direction, the first sequence, and how many there are.
    """

    def __init__(
        self,
        kernel: StepsKernel,
        tensors: Mapping[str, Any],
        results: Sequence[Any],
        place: tuple[int, Any, int],
    ) -> None:
        self.kernel, self.operator, self.tensors = kernel, kernel.operator, tensors
        self.every, *self.last = results
        self.direction, self.first, self.count = place
        self.vectors = Expressions(kernel.lanes, self.operator.dtype)
        self.activations = activations(self.vectors, self.operator)[self.direction]
        #: The state before a step and after it; an LSTM's memory changes in place.
        self.before, self.after, self.memory, self.past, self.update = (
            self._buffer(self.count, kernel.width) for _ in range(5)
        )
        self.kept = [self.before, self.memory][: len(self.last)]
        self.sums = self._buffer(self.count, len(kernel.phases[0]), kernel.lanes)

    def run(self) -> None:
        """Begin, take all steps, and write down where they end."""
        steps, _ = self.kernel.in_order(*self.tensors["products"].shape[:2])
        for name, state in zip(("state", "memory"), self.kept, strict=False):
            self._begin(name, state)
        is_forward = self.operator.directions[self.direction] == "forward"
        with T.serial(0, steps) as step:
            time = step if is_forward else steps - 1 - step
            for phase in range(len(self.kernel.phases)):
                self._phase(phase, time)
            self._write(time)
        for result, state in zip(self.last, self.kept, strict=True):
            for row in range(self.count):
                with self._each_element() as element:
                    result[self._of_state(row, element)] = state[row, element]

    def _begin(self, name: str, state: Any) -> None:
        """With a state that is given, or with zeros; what fills its last block is 0."""
        given = self.tensors.get(name)
        for row in range(self.count):
            with self._each_place() as place:
                state[row, place] = self.vectors.number(0)
            if given is not None:
                with self._each_element() as element:
                    state[row, element] = given[self._of_state(row, element)]

    def _phase(self, phase: int, time: Any) -> None:
        """Sums of products with the state, and what is computed from them."""
        weights = self.tensors["late weights" if phase else "weights"]
        source, gates = self.past if phase else self.before, self.kernel.phases[phase]
        sums = [(row, gate) for row in range(self.count) for gate in range(len(gates))]
        with T.serial(0, self.kernel.blocks) as block:
            for row, gate in sums:
                with self.vectors.each_lane() as lane:
                    self.sums[row, gate, lane] = self.vectors.number(0)
            with T.serial(0, self.operator.hidden) as k:
                for row, gate in sums:
                    with self.vectors.each_lane() as lane:
                        weight = weights[self.direction, block, k, gate, lane]
                        more = self.sums[row, gate, lane] + source[row, k] * weight
                        self.sums[row, gate, lane] = more
            for row in range(self.count):
                found = [self._vector(self.sums, row, gate) for gate in range(len(gates))]
                self._cell(phase, time, row, block * self.kernel.lanes, found)

    def _cell(self, phase: int, time: Any, row: int, first: Any, sums: list[Vector]) -> None:
        """Some elements of the next state, from the first one on."""
        is_last = phase == len(self.kernel.phases) - 1
        if len(self.kernel.phases) > 1:
            sums = self._with_other_phase(phase, row, first, sums)
        hidden = [_known(self._with_bias(gate, each, first)) for gate, each in enumerate(sums)]
        if not is_last:
            hidden.append(partial(self._let_through, row, first))
        gates = range(self.operator.gates)
        inputs = tuple(_known(self._input(time, row, gate, first)) for gate in gates)
        weights = Weights(inputs, tuple(hidden), (), (), self._peepholes(first))
        state = tuple(self._vector(each, row, first=first) for each in self.kept)
        after: State = cell(self.vectors, self.operator, weights, self.activations)(None, state)
        if not is_last:
            # Nothing else is used of it: the last phase computes it again, with all sums.
            return
        self._set(self.after, row, first, after[0])
        if len(after) > 1:
            self._remember(time, row, first, after[1])

    def _remember(self, time: Any, row: int, first: Any, memory: Vector) -> None:
        """Keep an LSTM's memory, which stays where the sequence is over."""
        going, before = self._goes_on(time, row), self._vector(self.memory, row, first=first)
        self._set(self.memory, row, first, lambda lane: _either(going, memory(lane), before(lane)))

    def _with_other_phase(
        self, phase: int, row: int, first: Any, sums: list[Vector]
    ) -> list[Vector]:
        """The sums of a GRU whose last one waits for what others let through of the state."""
        if phase == 0:
            self._set(self.update, row, first, sums[_UPDATE])
            return sums
        nothing = self.vectors.constant(0, self.operator.dtype)
        return [self._vector(self.update, row, first=first), nothing, *sums]

    def _let_through(self, row: int, first: Any, past: Vector) -> Vector:
        """Keep what the last phase multiplies."""
        self._set(self.past, row, first, past)
        return self.vectors.constant(0, self.operator.dtype)

    def _write(self, time: Any) -> None:
        """What a step gives: nothing but 0 where the sequence is over, whose state stays."""
        zero = self.vectors.number(0)
        for row in range(self.count):
            going = self._goes_on(time, row)
            with self._each_element() as element:
                place = self.kernel.place(time, self.direction, self.first + row, element)
                self.every[place] = _either(going, self.after[row, element], zero)
            with self._each_place() as place:
                after = _either(going, self.after[row, place], self.before[row, place])
                self.before[row, place] = after

    def _goes_on(self, time: Any, row: int) -> Any:
        """Whether a sequence has such a step; ``None`` if all have all."""
        lengths = self.tensors.get("lengths")
        return None if lengths is None else time < lengths[self.first + row].astype("int64")

    def _input(self, time: Any, row: int, gate: int, first: Any) -> Vector:
        """A gate's product with the input."""
        place = self.kernel.in_order(time, self.first + row)
        column = (self.direction * self.operator.gates + gate) * self.kernel.width + first
        return lambda lane: self.tensors["products"][(*place, column + lane)]

    def _with_bias(self, gate: int, product: Vector, first: Any) -> Vector:
        bias = self.tensors.get("bias")
        if bias is None or gate != _CANDIDATE:
            return product
        return lambda lane: product(lane) + bias[self.direction, first + lane]

    def _peepholes(self, first: Any) -> tuple[Vector, ...]:
        if "peepholes" not in self.tensors:
            return ()
        starts = (number * self.kernel.width + first for number in range(3))
        peepholes = self.tensors["peepholes"]
        return tuple(self._vector(peepholes, self.direction, first=start) for start in starts)

    def _vector(self, buffer: Any, *place: int, first: Any = 0) -> Vector:
        return lambda lane: buffer[(*place, first + lane)]

    def _set(self, buffer: Any, row: int, first: Any, value: Vector) -> None:
        with self.vectors.each_lane() as lane:
            buffer[row, first + lane] = value(lane)

    def _of_state(self, row: int, element: Any) -> tuple[Any, ...]:
        return (*self.kernel.in_order(self.direction, self.first + row), element)

    def _buffer(self, *shape: int) -> Any:
        return T.buffer_proxy(T.alloc_buffer(shape, str(self.operator.dtype), scope="local"))

    @contextmanager
    def _each_place(self) -> Iterator[Any]:
        """Those of a state whose last block is full."""
        with T.serial(0, self.kernel.blocks) as block, self.vectors.each_lane() as lane:
            yield block * self.kernel.lanes + lane

    @contextmanager
    def _each_element(self) -> Iterator[Any]:
        if self.kernel.width == self.operator.hidden:
            with self._each_place() as place:
                yield place
        else:
            with T.serial(0, self.operator.hidden) as element:
                yield element


def _either(condition: Any, one: Any, other: Any) -> Any:
    return one if condition is None else tirx.Select(condition, one, other)


def _known(found: Vector) -> Product:
    """A product that is there, whatever it is asked for."""
    return lambda _: found
