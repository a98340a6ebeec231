"""One step of an LSTM, a GRU or a plain RNN (the equations of the ONNX operators).

Every product of a gate is an operator of its own: they are what runs at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm_rammer.frontend.onnx.recurrent.activations import Activation, Operators, Value
from tvm_rammer.frontend.onnx.recurrent.node import RecurrentOperator

#: The hidden state, and for an LSTM the memory.
State = tuple[Value, ...]
#: From rows [batch, features] to their product with a matrix of a gate, [batch, hidden].
Product = Callable[[Value], Value]
#: From the input and the state [batch, hidden] to the next state.
Cell = Callable[[Value, State], State]


@dataclass(frozen=True)
class Weights:
    """The weights of one direction.

    Attributes
    ----------
    inputs, hidden : tuple of callable
        For each gate the product with a matrix [features, hidden], and with one [hidden, hidden].
    input_biases, hidden_biases : tuple
        For each gate [1, hidden], or nothing.
    peepholes : tuple
        From the memory to the gates input, output and forget, each [1, hidden], or nothing.
    """

    inputs: tuple[Product, ...]
    hidden: tuple[Product, ...]
    input_biases: tuple[Value, ...]
    hidden_biases: tuple[Value, ...]
    peepholes: tuple[Value, ...]


def cell(
    nodes: Operators, node: RecurrentOperator, weights: Weights, activations: tuple[Activation, ...]
) -> Cell:
    """The step of a node in one direction."""
    return {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}[node.kind](nodes, node, weights, activations)


def _lstm(
    nodes: Operators, node: RecurrentOperator, weights: Weights, activations: tuple[Activation, ...]
) -> Cell:
    gate, to_cell, to_hidden = activations
    coupled = bool(node.attributes.get("input_forget", 0))
    biases = _biases(nodes, weights)
    admit, emit, forget, candidate = range(4)

    def step(x: Value, state: State) -> State:
        previous, memory = state

        def peek(number: int, of: Value) -> list[Value]:
            return [nodes.op("Mul", weights.peepholes[number], of)] if weights.peepholes else []

        def total(number: int, more: Sequence[Value] = ()) -> Value:
            return _sum(nodes, _products(weights, number, x, previous), biases(number), more)

        admitted = gate(total(admit, peek(admit, memory)))
        if coupled:
            kept = nodes.op("Sub", nodes.constant(1, node.dtype), admitted)
        else:
            kept = gate(total(forget, peek(forget, memory)))
        added = nodes.op("Mul", admitted, to_cell(total(candidate)))
        memory = nodes.op("Add", nodes.op("Mul", kept, memory), added)
        emitted = gate(total(emit, peek(emit, memory)))
        return nodes.op("Mul", emitted, to_hidden(memory)), memory

    return step


def _gru(
    nodes: Operators, node: RecurrentOperator, weights: Weights, activations: tuple[Activation, ...]
) -> Cell:
    gate, to_hidden = activations
    biases = _biases(nodes, weights)
    update, reset, candidate = range(3)

    def step(x: Value, state: State) -> State:
        (previous,) = state
        updated, kept = (
            gate(_sum(nodes, _products(weights, number, x, previous), biases(number)))
            for number in (update, reset)
        )
        if node.resets_after_product:
            product = weights.hidden[candidate](previous)
            inner = nodes.op("Mul", kept, _sum(nodes, [product], weights.hidden_biases[candidate:]))
            bias = weights.input_biases[candidate:]
        else:
            past = nodes.op("Mul", kept, previous)
            inner = weights.hidden[candidate](past)
            bias = biases(candidate)
        fresh = to_hidden(_sum(nodes, [weights.inputs[candidate](x), inner], bias))
        share = nodes.op("Sub", nodes.constant(1, node.dtype), updated)
        pair = nodes.op("Mul", share, fresh), nodes.op("Mul", updated, previous)
        return (nodes.op("Add", *pair),)

    return step


def _rnn(
    nodes: Operators, node: RecurrentOperator, weights: Weights, activations: tuple[Activation, ...]
) -> Cell:
    biases = _biases(nodes, weights)

    def step(x: Value, state: State) -> State:
        products = _products(weights, 0, x, state[0])
        return (activations[0](_sum(nodes, products, biases(0))),)

    return step


def _products(weights: Weights, gate: int, x: Value, previous: Value) -> list[Value]:
    return [weights.inputs[gate](x), weights.hidden[gate](previous)]


def _biases(nodes: Operators, weights: Weights) -> Callable[[int], tuple[Value, ...]]:
    """Both biases of a gate in one."""
    pairs = zip(weights.input_biases, weights.hidden_biases, strict=True)
    sums = [nodes.op("Add", *pair) for pair in pairs]
    return lambda gate: tuple(sums[gate : gate + 1])


def _sum(nodes: Operators, *terms: Sequence[Value]) -> Value:
    first, *rest = (term for part in terms for term in part)
    for term in rest:
        first = nodes.op("Add", first, term)
    return first
