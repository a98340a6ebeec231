"""Unrolled recurrent networks whose cells keep every product an operator of its own.

A published cell is one fused matrix product; Rammer's point is that a cell of eight separate ones
has parallelism to give, across the gates of a cell and across the cells of a diagonal of layer and
step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from tvm_rammer.testing.models.builder import GraphBuilder

State = tuple[str, ...]
Cell = Callable[[str, State], State]


@dataclass(frozen=True)
class Gate:
    """One gate's weights: for the input, for the hidden state, and the bias."""

    inputs: str
    hidden: str
    bias: str


def lstm(
    layers: int = 8, steps: int = 8, hidden: int = 256, batch: int = 1, seed: int = 0
) -> onnx.ModelProto:
    """An unrolled LSTM: inputs ``x0`` to ``x{steps-1}`` of [batch, hidden], output ``out``."""
    g = GraphBuilder("lstm", seed)
    inputs = [g.input(f"x{step}", (batch, hidden)) for step in range(steps)]
    outputs, _ = unrolled_lstm(g, inputs, layers, hidden)
    g.output("out", outputs[-1])
    return g.build()


def gru(
    layers: int = 8, steps: int = 8, hidden: int = 256, batch: int = 1, seed: int = 0
) -> onnx.ModelProto:
    """An unrolled GRU (reset gate after the product), each cell six separate products."""
    g = GraphBuilder("gru", seed)
    outputs = [g.input(f"x{step}", (batch, hidden)) for step in range(steps)]
    for layer in range(layers):
        with g.scope(f"layer{layer}"):
            cell = _gru_cell(g, g.shape(outputs[0])[1], hidden)
            outputs, _ = _unroll(g, cell, outputs, (_zeros(g, batch, hidden),))
    g.output("out", outputs[-1])
    return g.build()


def seq2seq(
    encoder_layers: int = 8,
    encoder_steps: int = 100,
    decoder_layers: int = 4,
    decoder_steps: int = 30,
    hidden: int = 128,
    seed: int = 0,
) -> onnx.ModelProto:
    """An LSTM encoder and a decoder that starts from the encoder's topmost states.

    The decoder reads its own previous result; ``out`` is [decoder_steps, hidden].
    """
    g = GraphBuilder("seq2seq", seed)
    inputs = [g.input(f"x{step}", (1, hidden)) for step in range(encoder_steps)]
    with g.scope("encoder"):
        outputs, states = unrolled_lstm(g, inputs, encoder_layers, hidden)
    states = states[-decoder_layers:]
    cells = [lstm_cell(g, hidden, hidden) for _ in range(decoder_layers)]
    token, tokens = outputs[-1], []
    for step in range(decoder_steps):
        for layer, cell in enumerate(cells):
            with g.scope(f"decoder/layer{layer}/step{step}"):
                states[layer] = cell(token, states[layer])
            token = states[layer][0]
        tokens.append(token)
    g.output("out", g.op("Concat", *tokens, axis=0))
    return g.build()


def unrolled_lstm(
    g: GraphBuilder, inputs: Sequence[str], layers: int, hidden: int
) -> tuple[list[str], list[State]]:
    """The topmost layer's results per step, and the final (hidden, cell) of each layer."""
    outputs, finals = list(inputs), []
    batch = g.shape(outputs[0])[0]
    for layer in range(layers):
        with g.scope(f"layer{layer}"):
            cell = lstm_cell(g, g.shape(outputs[0])[1], hidden)
            zero = _zeros(g, batch, hidden)
            outputs, final = _unroll(g, cell, outputs, (zero, zero))
            finals.append(final)
    return outputs, finals


def lstm_cell(g: GraphBuilder, features: int, hidden: int) -> Cell:
    """The function (x, (hidden, cell)) -> (hidden, cell) of eight separate products."""
    gates = [_gate(g, features, hidden) for _ in range(4)]

    def step(x: str, state: State) -> State:
        previous, memory = state
        sums = [
            g.op("Add", g.op("Add", *_products(g, x, previous, gate)), gate.bias) for gate in gates
        ]
        admit, forget, emit = (g.op("Sigmoid", value) for value in sums[:3])
        candidate = g.op("Mul", admit, g.op("Tanh", sums[3]))
        memory = g.op("Add", g.op("Mul", forget, memory), candidate)
        return g.op("Mul", emit, g.op("Tanh", memory)), memory

    return step


def _gru_cell(g: GraphBuilder, features: int, hidden: int) -> Cell:
    gates = [_gate(g, features, hidden) for _ in range(3)]
    one = g.constant(1.0)

    def step(x: str, state: State) -> State:
        (previous,) = state
        products = [_products(g, x, previous, gate) for gate in gates]
        update, reset = (
            g.op("Sigmoid", g.op("Add", g.op("Add", *pair), gate.bias))
            for pair, gate in zip(products[:2], gates[:2], strict=True)
        )
        from_input, from_hidden = products[2]
        from_hidden = g.op("Mul", reset, g.op("Add", from_hidden, gates[2].bias))
        candidate = g.op("Tanh", g.op("Add", from_input, from_hidden))
        kept = g.op("Mul", update, previous)
        return (g.op("Add", g.op("Mul", g.op("Sub", one, update), candidate), kept),)

    return step


def _unroll(
    g: GraphBuilder, cell: Cell, inputs: Sequence[str], state: State
) -> tuple[list[str], State]:
    outputs = []
    for step, x in enumerate(inputs):
        with g.scope(f"step{step}"):
            state = cell(x, state)
        outputs.append(state[0])
    return outputs, state


def _gate(g: GraphBuilder, features: int, hidden: int) -> Gate:
    return Gate(
        g.weight((features, hidden), 1.25 / math.sqrt(features)),
        g.weight((hidden, hidden), 1.25 / math.sqrt(hidden)),
        g.weight((hidden,), 0.1),
    )


def _products(g: GraphBuilder, x: str, previous: str, gate: Gate) -> tuple[str, str]:
    return g.op("MatMul", x, gate.inputs), g.op("MatMul", previous, gate.hidden)


def _zeros(g: GraphBuilder, batch: int, hidden: int) -> str:
    return g.constant(np.zeros((batch, hidden)))
