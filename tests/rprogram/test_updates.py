"""Outputs in the memory of inputs: no interleaving tells, where the rule says that they may be."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.rprogram import (
    Buffer,
    RKernel,
    ROperator,
    RProgram,
    RTask,
    Wait,
    legal_interleavings,
    updated_in_place,
    verify,
)
from tvm_rammer.rprogram.interpret import NumericInterpreter

ROWS, COLUMNS = 4, 8
SHAPE = (ROWS, COLUMNS)


def _replace(start, stop, arrays):
    mask, new, old, out = arrays
    here = slice(start, stop)
    out[here] = np.where(mask, new[here], old[here])


def _double(start, stop, arrays):
    x, out = arrays
    out[start:stop] = 2 * x[start:stop]


BODIES = {"replace": _replace, "double": _double}


def decoder() -> RProgram:
    """``out, left = 2 * left, left``, where ``left = where(mask, 2 * new, past)``."""
    halves = ((0, 2), (2, 4))
    return RProgram(
        name="decoder",
        policy="by hand",
        buffers=(
            Buffer("mask", (COLUMNS,), "bool", "input", 0),
            Buffer("new", SHAPE, "float32", "input", 1),
            Buffer("past", SHAPE, "float32", "input", 2),
            Buffer("doubled", SHAPE, "float32", "arena"),
            Buffer("out", SHAPE, "float32", "output", 0),
            Buffer("left", SHAPE, "float32", "output", 1),
        ),
        kernels=(
            RKernel("double", ROWS, ("read", "write")),
            RKernel("replace", ROWS, ("read", "read", "read", "write"), in_place=(2, 3)),
        ),
        operators=(
            ROperator("new", 0, (1, 3)),
            ROperator("replace", 1, (0, 3, 2, 5)),
            ROperator("out", 0, (5, 4)),
        ),
        veus=tuple(
            tuple(
                RTask(op, *half, () if op == 0 else (Wait(1 - veu, op),), wave=op)
                for op in range(3)
            )
            for veu, half in enumerate(halves)
        ),
        arena_bytes=128,
    )


def run(program: RProgram, order, inputs, together: bool) -> list[np.ndarray]:
    interpreter = NumericInterpreter(program, BODIES, inputs)
    if together:
        for result, source in updated_in_place(program).items():
            places = {(b.space, b.index): number for number, b in enumerate(program.buffers)}
            own = interpreter._views[places["input", source]]
            interpreter._views[places["output", result]] = own
            interpreter.outputs[result] = own
    interpreter.run(order)
    return interpreter.outputs


@given(seed=st.integers(0, 2**32 - 1))
def test_every_interleaving_computes_the_same(seed):
    generator = np.random.default_rng(seed)
    inputs = [
        generator.integers(0, 2, COLUMNS).astype(bool),
        generator.standard_normal(SHAPE).astype("float32"),
        generator.standard_normal(SHAPE).astype("float32"),
    ]
    program = decoder()
    assert updated_in_place(program) == {1: 2}
    verify(program)
    left = np.where(inputs[0], 2 * inputs[1], inputs[2])
    for order in islice(legal_interleavings(program, seed), 5):
        for together in (False, True):
            out, found = run(program, order, inputs, together)
            np.testing.assert_array_equal(found, left)
            np.testing.assert_array_equal(out, 2 * left)


def _with_operator(program: RProgram, number: int, arguments: tuple[int, ...]) -> RProgram:
    operators = list(program.operators)
    operators[number] = replace(operators[number], arguments=arguments)
    return replace(program, operators=tuple(operators))


def _with_buffer(program: RProgram, number: int, **changes) -> RProgram:
    buffers = list(program.buffers)
    buffers[number] = replace(buffers[number], **changes)
    return replace(program, buffers=tuple(buffers))


@pytest.mark.parametrize(
    "changed",
    [
        # Another operator reads what is replaced, and may do so afterwards.
        _with_operator(decoder(), 0, (2, 3)),
        # The operator itself does, elsewhere.
        _with_operator(decoder(), 1, (0, 2, 2, 5)),
        # So does who reads a part of it.
        replace(
            decoder(),
            buffers=(*decoder().buffers, Buffer("row", (1, 8), "float32", "part", 2, 0, 128)),
        ),
        # What is replaced, or the result, is the plan's own.
        _with_buffer(decoder(), 2, space="arena"),
        _with_operator(decoder(), 1, (0, 3, 2, 3)),
        # They are not of one size.
        _with_buffer(decoder(), 2, shape=(2 * ROWS, COLUMNS)),
        # The kernel does not say so.
        replace(decoder(), kernels=tuple(replace(k, in_place=None) for k in decoder().kernels)),
    ],
)
def test_where_it_would_be_wrong_it_is_not_done(changed):
    assert updated_in_place(changed) == {}
