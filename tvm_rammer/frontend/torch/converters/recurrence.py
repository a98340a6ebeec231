"""LSTM, GRU and RNN, unrolled: every product of a gate at a step is an operator of its own.

The results of a layer's steps are the inputs of the next layer's as they are, so that cells of
several layers can run at the same time. Equations, and the order of the gates in the weights:
documentation of ``torch.nn.LSTM``, ``GRU`` and ``RNN``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import relax

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.torch.converters.arithmetic import clamped
from tvm_rammer.frontend.torch.converters.product import product
from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall, refusal, shape_of

#: The hidden state [batch, hidden], and for an LSTM the memory.
_State = tuple[Any, ...]


@dataclass(frozen=True)
class _Weights:
    """The weights of one direction of a layer.

    Attributes
    ----------
    inputs, hidden : tuple of relax.Expr
        For each gate a matrix [features, hidden], and one [hidden, hidden].
    input_biases, hidden_biases : tuple of relax.Expr
        For each gate [hidden], or nothing.
    projection : relax.Expr or None
        From an LSTM's result to a smaller one.
    """

    inputs: tuple[Any, ...]
    hidden: tuple[Any, ...]
    input_biases: tuple[Any, ...]
    hidden_biases: tuple[Any, ...]
    projection: Any


#: From the input and the state to the next state.
_Step = Callable[[Any, _State], _State]
#: Makes the step of a direction.
_Cell = Callable[[OperatorCall, _Weights], _Step]


def _lstm(call: OperatorCall, weights: _Weights) -> _Step:
    total = _totals(call, weights)

    def step(x: Any, state: _State) -> _State:
        previous, memory = state
        admitted, kept, candidate, shown = (total(gate, x, previous) for gate in range(4))
        added = relax.op.multiply(relax.op.sigmoid(admitted), relax.op.tanh(candidate))
        memory = relax.op.multiply(relax.op.sigmoid(kept), memory)
        memory = call.emit(relax.op.add(memory, added))
        result = call.emit(relax.op.multiply(relax.op.sigmoid(shown), relax.op.tanh(memory)))
        if weights.projection is not None:
            result = product(call, result, weights.projection)
        return result, memory

    return step


def _gru(call: OperatorCall, weights: _Weights) -> _Step:
    total = _totals(call, weights)
    candidate = 2

    def step(x: Any, state: _State) -> _State:
        (previous,) = state
        reset, updated = (call.emit(relax.op.sigmoid(total(gate, x, previous))) for gate in (0, 1))
        past = product(call, previous, weights.hidden[candidate])
        fresh = product(call, x, weights.inputs[candidate])
        if weights.hidden_biases:
            past = relax.op.add(past, weights.hidden_biases[candidate])
            fresh = relax.op.add(fresh, weights.input_biases[candidate])
        fresh = relax.op.tanh(relax.op.add(fresh, relax.op.multiply(reset, past)))
        share = relax.op.subtract(call.cast(1), updated)
        pair = relax.op.multiply(share, fresh), relax.op.multiply(updated, previous)
        return (call.emit(relax.op.add(*pair)),)

    return step


def _rnn_tanh(call: OperatorCall, weights: _Weights) -> _Step:
    total = _totals(call, weights)
    return lambda x, state: (call.emit(relax.op.tanh(total(0, x, state[0]))),)


def _rnn_relu(call: OperatorCall, weights: _Weights) -> _Step:
    total = _totals(call, weights)
    return lambda x, state: (clamped(call, call.emit(total(0, x, state[0])), 0),)


def _totals(call: OperatorCall, weights: _Weights) -> Callable[[int, Any, Any], Any]:
    """What a gate's activation is applied to, from its number, the input and the last result."""
    pairs = zip(weights.input_biases, weights.hidden_biases, strict=True)
    biases = [call.emit(relax.op.add(*pair)) for pair in pairs]

    def total(gate: int, x: Any, previous: Any) -> Any:
        products = (
            product(call, x, weights.inputs[gate]),
            product(call, previous, weights.hidden[gate]),
        )
        both = relax.op.add(*products)
        return relax.op.add(both, biases[gate]) if biases else both

    return total


def _unrolled(
    gates: int,
    cell: _Cell,
    call: OperatorCall,
    x: Any,
    start: Any,
    params: list[Any],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Any]:
    """The results of the last layer's steps, and of every layer the state after its last step."""
    if train and dropout and layers > 1:
        advice = "call model.eval() before the export"
        raise ModelError(refusal(call.node, "dropout between layers is random", advice))
    states = start if isinstance(start, list) else [start]
    starts = list(zip(*(_parts(call, state, 0) for state in states), strict=True))
    count = len(params) // len(starts)
    orders = [slice(None), slice(None, None, -1)][: 2 if bidirectional else 1]
    results = [_parts(call, x, int(batch_first))]
    finals: list[_State] = []
    for _ in range(layers):
        inputs = [_concatenated(call, parts, 1) for parts in zip(*results, strict=True)]
        results = []
        for order in orders:
            number = len(finals)
            own = params[number * count : (number + 1) * count]
            step = cell(call, _weights(call, gates, own, has_biases))
            found, final = _run(step, inputs[order], starts[number])
            results.append(found[order])
            finals.append(final)
    whole = _whole(call, results, batch_first)
    return [whole, *(_stacked(call, state, 0) for state in zip(*finals, strict=True))]


def _run(step: _Step, inputs: list[Any], state: _State) -> tuple[list[Any], _State]:
    """The result of every step, and the state after the last one."""
    results = []
    for x in inputs:
        state = step(x, state)
        results.append(state[0])
    return results, state


def _weights(call: OperatorCall, gates: int, params: list[Any], has_biases: bool) -> _Weights:
    """From PyTorch's: the gates of a weight are its neighbouring rows."""
    inputs, hidden, *rest = params
    biases = [rest.pop(0), rest.pop(0)] if has_biases else []
    inputs, hidden = (
        tuple(call.permute(part, [1, 0]) for part in _split(call, weight, 0, gates))
        for weight in (inputs, hidden)
    )
    of_inputs, of_hidden = [tuple(_split(call, bias, 0, gates)) for bias in biases] or [(), ()]
    projection = call.permute(rest[0], [1, 0]) if rest else None
    return _Weights(inputs, hidden, of_inputs, of_hidden, projection)


def _parts(call: OperatorCall, x: Any, axis: int) -> list[Any]:
    """The slices along one of three axes, without it."""
    shape = shape_of(x)
    sizes = (*shape[:axis], *shape[axis + 1 :])
    return [call.reshape(part, sizes) for part in _split(call, x, axis, shape[axis])]


def _split(call: OperatorCall, x: Any, axis: int, count: int) -> list[Any]:
    if count == 1:
        return [x]
    parts = call.emit(relax.op.split(x, count, axis))
    return [call.emit(parts[number]) for number in range(count)]


def _whole(call: OperatorCall, results: list[list[Any]], batch_first: bool) -> Any:
    """The steps of a layer's directions in one tensor."""
    parts = [part for step in zip(*results, strict=True) for part in step]
    if len(results) == 1:
        return _stacked(call, parts, int(batch_first))
    # One concatenation, where one for each step would be as many operators as steps.
    batch, features = shape_of(parts[0])
    sizes = (batch, len(results[0]), len(results) * features)
    joined = call.reshape(_stacked(call, parts, 1), sizes)
    return joined if batch_first else call.permute(joined, [1, 0, 2])


def _stacked(call: OperatorCall, parts: Sequence[Any], axis: int) -> Any:
    """Matrices along a new axis."""
    rows, columns = shape_of(parts[0])
    one = (rows, 1, columns) if axis else (1, rows, columns)
    return _concatenated(call, [call.reshape(part, one) for part in parts], axis)


def _concatenated(call: OperatorCall, parts: Sequence[Any], axis: int) -> Any:
    return call.emit(relax.op.concat(list(parts), axis)) if len(parts) > 1 else parts[0]


CONVERTERS: dict[str, Converter] = {
    name: partial(_unrolled, gates, cell)
    for name, gates, cell in (
        ("lstm.input", 4, _lstm),
        ("gru.input", 3, _gru),
        ("rnn_tanh.input", 1, _rnn_tanh),
        ("rnn_relu.input", 1, _rnn_relu),
    )
}
