"""What is divided may fall along an axis; without the pass, TVM reads other elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from kernel_runs import legalized_func, numbers, run_prim_func
from tvm import relax, te

from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.kernel.lowering.index_divisions import PositiveDivision

COUNT = 37
X = numbers((64,))
#: Places in ``X``.
INDICES: dict[str, Callable[[Any], Any]] = {
    "quotient": lambda i: (36 - i) // 3,
    "remainder": lambda i: (36 - i) % 5,
    "both": lambda i: (40 - i) // 4 * 4 + (40 - i) % 4,
    "of a quotient": lambda i: (20 - i // 2) // 3,
    "a multiple": lambda i: (36 - i) // 3 * 4 + 2,
    "below zero": lambda i: 20 + (3 - i) // 3 + (2 - i) % 3,
    "falls twice": lambda i: (50 - i - i % 3) // 2,
}


def reading(index: Callable[[Any], Any]) -> tvm.IRModule:
    x = te.placeholder(X.shape, "float32", name="x")
    return tvm.IRModule(
        {"main": te.create_prim_func([x, te.compute((COUNT,), lambda i: x[index(i)])])}
    )


@pytest.mark.parametrize("name", INDICES)
def test_an_operator_in_no_region(name):
    index, found = INDICES[name], tvm.runtime.tensor(np.zeros(COUNT, "float32"))
    pipeline, target = lowering_pipeline(), resolve_target(None)
    tvm.tirx.build(reading(index), target, pipeline=pipeline)(tvm.runtime.tensor(X), found)
    np.testing.assert_array_equal(found.numpy(), X[index(np.arange(COUNT))])


@pytest.mark.parametrize("name", INDICES)
def test_an_rtask(name):
    index = INDICES[name]
    run = run_prim_func(reading(index)["main"], [X])
    np.testing.assert_array_equal(run.outputs[0], X[index(np.arange(COUNT))])


@pytest.mark.parametrize("shape", [(1, 21, 3), (2, 7, 16)])
def test_rows_that_are_reversed_as_one(shape):
    x = numbers(shape)
    flat = (shape[0], shape[1] * shape[2])
    op = relax.op
    func = legalized_func(lambda x: op.flip(op.reshape(op.nn.relu(x), flat), 1), x)
    expected = np.maximum(x, 0).reshape(flat)[:, ::-1]
    np.testing.assert_array_equal(run_prim_func(func, [x]).outputs[0], expected)


@pytest.mark.parametrize("index", [lambda i: (i + 5) // 3, lambda i: i * 4 % 3, lambda i: 36 - i])
def test_what_grows_stays_as_it_is(index):
    module = reading(index)
    assert tvm_ffi.structural_equal(PositiveDivision()(module), module)
