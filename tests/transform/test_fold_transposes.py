"""Products of few rows read a transposed operand along its rows; all others keep what they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from close import assert_close
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import relax

import tvm_rammer
from tvm_rammer.relax_util import NUM_INPUT, operator_name
from tvm_rammer.transform.fold_transposes import FoldTransposes

OP = relax.op


def numbers(shape: tuple[int, ...], seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def module(left: np.ndarray, source: np.ndarray, axes: Any, constant: bool = False, scale=None):
    """``matmul(left, permute_dims(source, axes)) * scale``, of inputs or of a constant."""
    parameters = [
        relax.Var(name, relax.TensorType(value.shape, str(value.dtype)))
        for name, value in (("left", left), ("source", source))
    ]
    taken = parameters[:1] if constant else parameters
    builder = relax.BlockBuilder()
    with builder.function("main", taken):
        with builder.dataflow():
            operand = relax.const(source) if constant else parameters[1]
            value = builder.emit(OP.matmul(parameters[0], OP.permute_dims(operand, axes)))
            if scale is not None:
                value = builder.emit(OP.multiply(value, relax.const(scale, left.dtype.name)))
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return builder.get()


def operators(mod: tvm.IRModule) -> list[str]:
    (block,) = mod["main"].body.blocks
    names = [operator_name(binding.value) for binding in block.bindings]
    return [name.removeprefix("relax.") for name in names if name]


def after(mod: tvm.IRModule) -> list[str]:
    return operators(FoldTransposes(few_rows=4)(mod))


def result(mod: tvm.IRModule, *inputs: np.ndarray) -> np.ndarray:
    graph = tvm_rammer.build(mod, policy="sequential").create()
    graph.run(**dict(zip(("left", "source"), inputs, strict=True)))
    return graph.get_output(0).numpy()


@settings(max_examples=8)
@given(
    rows=st.integers(1, 4),
    keys=st.integers(1, 40),
    width=st.integers(1, 70),
    batch=st.sampled_from([(), (3,), (2, 3)]),
)
@example(rows=1, keys=129, width=64, batch=())
@example(rows=4, keys=7, width=1, batch=(2, 3))
def test_queries_times_keys(rows, keys, width, batch):
    left, source = numbers((*batch, rows, width)), numbers((*batch, keys, width), 1)
    axes = [*range(len(batch)), len(batch) + 1, len(batch)]
    mod = module(left, source, axes, scale=0.125)
    assert after(mod) == ["call_tir", "multiply"]
    assert_close(result(mod, left, source), left @ source.swapaxes(-1, -2) * np.float32(0.125))


@pytest.mark.parametrize(
    ("left", "source", "axes"),
    [
        # Keys as models cache them: a batch of positions of heads.
        ((2, 3, 1, 32), (2, 9, 3, 32), [0, 2, 3, 1]),
        # Every query of a batch meets the same keys.
        ((4, 1, 16), (9, 16), [1, 0]),
        ((4, 1, 16), (1, 9, 16), [0, 2, 1]),
        # One query meets the keys of every batch.
        ((1, 1, 16), (5, 9, 16), [0, 2, 1]),
        ((2, 16), (9, 16), None),
    ],
)
def test_any_batch(left, source, axes):
    x, w = numbers(left), numbers(source, 1)
    mod = module(x, w, axes)
    assert after(mod) == ["call_tir"]
    assert_close(result(mod, x, w), x @ np.transpose(w, axes))


@pytest.mark.parametrize(
    ("reason", "left", "source", "axes", "constant"),
    [
        ("many rows share the operand", (5, 16), (9, 16), [1, 0], False),
        ("a batch of five shares it", (5, 1, 16), (9, 16), [1, 0], False),
        ("a constant is packed", (1, 16), (9, 16), [1, 0], True),
        ("columns do not lie along the sum", (3, 1, 16), (3, 16, 9), [0, 1, 2], False),
        ("there is nothing to sum up", (1, 0), (9, 0), [1, 0], False),
        ("another axis lies along it", (4, 1, 5), (5, 4, 9), [1, 0, 2], False),
    ],
)
def test_what_keeps_its_transposition(reason, left, source, axes, constant):
    mod = module(numbers(left), numbers(source), axes, constant)
    assert FoldTransposes(few_rows=4)(mod).same_as(mod), reason


def test_weights_among_the_parameters_are_packed():
    mod = module(numbers((1, 16)), numbers((9, 16)), [1, 0])
    mod["main"] = mod["main"].with_attr(NUM_INPUT, 1)
    assert "permute_dims" in after(mod)
    mod["main"] = mod["main"].with_attr(NUM_INPUT, 2)
    assert after(mod) == ["call_tir"]


def test_other_readers_keep_the_transposed_operand():
    left, source = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("left", (1, 16)), ("source", (9, 16)))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [left, source]):
        with builder.dataflow():
            transposed = builder.emit(OP.permute_dims(source, [1, 0]))
            product = builder.emit(OP.matmul(left, transposed))
            output = builder.emit_output(relax.Tuple([product, transposed]))
        builder.emit_func_output(output)
    assert "permute_dims" in after(builder.get())


def test_equal_products_share_a_function():
    """Heads of attention are many and alike."""
    queries, keys = (
        [relax.Var(f"{name}{k}", relax.TensorType(shape, "float32")) for k in range(3)]
        for name, shape in (("query", (1, 16)), ("key", (9, 16)))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [*queries, *keys]):
        with builder.dataflow():
            products = [
                builder.emit(OP.matmul(query, OP.permute_dims(key, [1, 0])))
                for query, key in zip(queries, keys, strict=True)
            ]
            output = builder.emit_output(relax.Tuple(products))
        builder.emit_func_output(output)
    folded = FoldTransposes(few_rows=4)(builder.get())
    assert len(folded.get_global_vars()) == 2
