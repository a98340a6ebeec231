"""Operators are fused as TVM's FuseOps fuses them, whatever the graph, until it is too much."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import tvm
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from stress.compiled_regions import tiny_model
from tvm import relax

import tvm_rammer
from tvm_rammer.kernel.inlined_size import inlined_sizes
from tvm_rammer.transform import fusion_ends
from tvm_rammer.transform.fuse_operators import FuseOperators
from tvm_rammer.transform.legalize_operators import LegalizeOperators

OP = relax.op
SIDE = 4
UNARY = (
    OP.tanh,
    OP.nn.relu,
    OP.permute_dims,
    lambda x: OP.reshape(x, (SIDE, SIDE)),
    lambda x: OP.sum(x, axis=0, keepdims=True),
    lambda x: OP.broadcast_to(OP.max(x, axis=[1], keepdims=True), (SIDE, SIDE)),
    OP.nn.softmax,
)
BINARY = (OP.add, OP.multiply, OP.matmul, lambda x, y: OP.concat([x, y], axis=0))


@st.composite
def graphs(draw):
    """A module of operators of all patterns on each other's results, with any outputs."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{k}", relax.TensorType((SIDE, SIDE), "float32")) for k in range(2)]
    with builder.function("main", params):
        with builder.dataflow():
            # The latest results are read most, so that there are long chains.
            results = list(params)
            for _ in range(draw(st.integers(1, 24))):
                near = st.integers(1, min(6, len(results)))
                x, y = (results[-draw(near)] for _ in range(2))
                if draw(st.integers(0, 9)) == 0:
                    value = OP.split(x, 2, axis=1)
                    pieces = builder.emit(value)
                    value = OP.concat([builder.emit(pieces[k]) for k in (1, 0)], axis=1)
                elif draw(st.booleans()):
                    value = draw(st.sampled_from(UNARY))(x)
                else:
                    value = draw(st.sampled_from(BINARY))(x, y)
                value = builder.emit(value)
                if tuple(map(int, value.ty.shape.values)) != (SIDE, SIDE):
                    value = builder.emit(OP.broadcast_to(OP.max(value), (SIDE, SIDE)))
                results.append(value)
            wanted = draw(st.lists(st.sampled_from(results[2:]), max_size=2, unique=True))
            outputs = [builder.emit_output(result) for result in (results[-1], *wanted)]
        builder.emit_func_output(outputs)
    return builder.get()


def legalized(mod):
    passes = [
        LegalizeOperators(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.DeadCodeElimination(),
    ]
    with tvm.target.Target("llvm"):
        return tvm.transform.Sequential(passes)(mod)


def assert_fused_as_by_tvm(mod):
    want = relax.transform.FuseOps()(mod)
    tvm.ir.assert_structural_equal(FuseOperators()(mod), want)
    return want


@settings(max_examples=100)
@given(graphs())
def test_any_graph(mod):
    """With a sum of two results a link, a few links are as large as an expression may be."""
    limits = {"_MOST_NODES": 10**9, "_MOST_NODES_OF_A_TILE": 10**9}
    with mock.patch.multiple(fusion_ends, **limits):
        assert_fused_as_by_tvm(legalized(mod))


@pytest.mark.parametrize("name", ["lstm_8x8x256", "nasnet_cifar", "transformer_decoder"])
def test_networks(name):
    fused = assert_fused_as_by_tvm(legalized(tiny_model(name)))
    assert any("fused" in symbol.name_hint for symbol in fused.get_global_vars())


def test_variables_that_others_read_stay_results():
    """A value that another block reads is a result of its dataflow block, also while we fuse."""
    x = relax.Var("x", relax.TensorType((SIDE, SIDE), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit_output(OP.tanh(x))
            second = builder.emit_output(OP.matmul(first, first))
        between = builder.emit(relax.op.call_pure_packed("f", second, ty_args=second.ty))
        with builder.dataflow():
            last = builder.emit_output(OP.nn.relu(OP.matmul(between, first)))
        builder.emit_func_output(last)
    assert_fused_as_by_tvm(legalized(builder.get()))


def chain(links, weight=None):
    """``x * x / 2 + x`` again and again, perhaps behind a product: ``x`` is read three times."""
    x = relax.Var("x", relax.TensorType((3, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x if weight is None else builder.emit(OP.matmul(x, relax.const(weight)))
            for _ in range(links):
                square = builder.emit(OP.multiply(y, y))
                half = builder.emit(OP.multiply(square, relax.const(0.5, "float32")))
                y = builder.emit(OP.add(half, y))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("weight", [None, np.eye(8, dtype="float32")], ids=["alone", "behind"])
def test_a_chain_that_reads_each_link_more_than_once(weight):
    """Fused whole it would have 3 ** 16 loads; cut up, each function is of bounded size."""
    fused = relax.transform.FuseTIR()(FuseOperators()(legalized(chain(16, weight))))
    funcs = [func for _, func in fused.functions_items() if isinstance(func, tvm.tirx.PrimFunc)]
    calls = [b for block in fused["main"].body.blocks for b in block.bindings]
    nodes = [size.nodes for func in funcs for size in inlined_sizes(func).values()]
    assert max(nodes) <= 2000
    assert 2 <= len(calls) <= 8
    x = np.random.default_rng(0).uniform(-1, 0, (3, 8)).astype("float32")
    want = x.astype("float64")
    for _ in range(16):
        want = want * want / 2 + want
    (got,) = tvm_rammer.build(chain(16, weight), policy="sequential").create()(x)
    assert_close(got.numpy(), want)


def test_a_larger_result_that_repeats_a_product_is_an_operator_of_its_own():
    """The bias is of the product's shape and fused with it; the gate multiplies a whole image."""
    x = relax.Var("x", relax.TensorType((1, 8), "float32"))
    image = relax.Var("image", relax.TensorType((5, 8), "float32"))
    weight, bias = (relax.const(np.ones(shape, "float32")) for shape in ((8, 8), (8,)))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, image]):
        with builder.dataflow():
            gate = builder.emit(OP.add(builder.emit(OP.matmul(x, weight)), bias))
            gate = builder.emit(OP.sigmoid(gate))
            result = builder.emit_output(OP.nn.relu(builder.emit(OP.multiply(gate, image))))
        builder.emit_func_output(result)
    fused = FuseOperators()(legalized(builder.get()))
    symbols = [b.value.op.name_hint for block in fused["main"].body.blocks for b in block.bindings]
    assert symbols == ["fused_matmul_add_tir_sigmoid", "fused_multiply_relu"]
