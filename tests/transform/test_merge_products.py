"""Products that share a weight and are ready together become one with more rows."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import tvm
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from tvm import relax

import tvm_rammer
from tvm_rammer.frontend import load_model
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.vdevice import OversubscriptionWarning
from tvm_rammer.relax_util import operator_name, static_shape
from tvm_rammer.testing import models
from tvm_rammer.testing.models.mlp import mlp
from tvm_rammer.transform.merge_products import Mergeable, MergeProducts

OP = relax.op
RNG = np.random.default_rng(0)

ONE = VDevice("test")


def weight(columns=16):
    return relax.const(RNG.standard_normal((16, columns)).astype("float32") / 4)


def module(rows, body):
    """A function of inputs that have so many rows of 16 numbers each."""
    params = [
        relax.Var(f"x{k}", relax.TensorType((count, 16), "float32")) for k, count in enumerate(rows)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            outputs = [builder.emit_output(result) for result in body(builder, params)]
        builder.emit_func_output(outputs)
    return builder.get()


def products(mod):
    """How many products there are of each number of rows."""
    block = mod["main"].body.blocks[0]
    calls = [b.value for b in block.bindings if operator_name(b.value) == "relax.matmul"]
    return Counter(static_shape(call)[0] for call in calls)


def assert_stays(mod):
    assert Mergeable.of(mod) is None
    tvm.ir.assert_structural_equal(MergeProducts(8)(mod), mod)


def test_inputs_times_one_weight_are_rows_of_one_product():
    shared = weight()
    before = module([1] * 11, lambda builder, xs: [builder.emit(OP.matmul(x, shared)) for x in xs])
    assert Mergeable.of(before) is not None
    assert products(MergeProducts(8)(before)) == {8: 1, 3: 1}
    assert products(MergeProducts(4)(before)) == {4: 2, 3: 1}
    tvm.ir.assert_structural_equal(MergeProducts(1)(before), before)


def test_the_next_step_waits_for_nobody():
    """A chain of products with one weight stays."""
    shared = weight()

    def body(builder, xs):
        (x,) = xs
        for _ in range(40):
            x = builder.emit(OP.matmul(x, shared))
        return [x]

    assert_stays(module([1], body))


def test_a_recurrent_network_merges_what_its_layers_read_and_not_their_states():
    mod = load_model(models.lstm(8, 32, 16)).module
    # The states before the first step are constants, and so are their products.
    assert products(MergeProducts(8)(mod)) == {
        1: 4 * 8 * 31,
        8: 4 * 8 * 4,
    }


def test_few_veus_merge_and_many_do_not():
    """Of many, each has little to read; what waits for the rows of others is all that counts."""
    lstm = Mergeable.of(load_model(models.lstm(8, 8, 128)).module)
    rows = [lstm.best_rows(replace(ONE, num_veus=n)) for n in (1, 2, 4, 64)]
    assert rows == [4, 4, 4, 1]


def test_handing_on_that_takes_long_keeps_products_apart():
    """Merged, the eight layers no longer run beside each other: their path is longer."""
    lstm = Mergeable.of(load_model(models.lstm(8, 8, 128)).module)
    slow = replace(ONE, num_veus=2, point_to_point_seconds=1e-3)
    assert lstm.best_rows(slow) == 1


def test_weights_that_are_read_at_once_are_no_reason():
    lstm = Mergeable.of(load_model(models.lstm(8, 8, 128)).module)
    fast = replace(ONE, num_veus=2, speeds=replace(ONE.speeds, cache_bandwidth=1e15))
    assert lstm.best_rows(fast) == 1


def test_many_rows_stay():
    """They fill a core's registers already."""
    assert_stays(load_model(models.lstm(8, 8, 16, batch=5)).module)


def test_products_with_weights_of_their_own_stay():
    assert_stays(
        module([1] * 20, lambda builder, xs: [builder.emit(OP.matmul(x, weight())) for x in xs])
    )


@settings(max_examples=6)
@given(
    rows=st.lists(st.integers(1, 4), min_size=2, max_size=9),
    weights=st.integers(1, 4),
    seed=st.integers(0, 999),
)
def test_merged_products_compute_the_same(rows, weights, seed):
    """Products of random earlier results; a result may be read by later products."""
    rng = np.random.default_rng(seed)
    shared = [weight() for _ in range(weights)]

    def body(builder, xs):
        found = list(xs)
        for _ in range(12):
            x = found[rng.integers(len(found))]
            y = builder.emit(OP.matmul(x, shared[rng.integers(weights)]))
            found.append(builder.emit(OP.tanh(y)))
        return found[len(xs) :]

    before = module(rows, body)
    after = MergeProducts(8)(before)
    relax.analysis.well_formed(after)
    inputs = [RNG.standard_normal((count, 16)).astype("float32") for count in rows]
    wanted, found = (run(mod, inputs) for mod in (before, after))
    for one, other in zip(wanted, found, strict=True):
        assert_close(one, other)


def run(mod, inputs):
    executable = tvm.compile(relax.transform.LegalizeOps()(mod), "llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return [r.numpy() for r in machine["main"](*map(tvm.runtime.tensor, inputs))]


def test_a_build_merges_and_another_plan_takes_it_back():
    """The library has products of four rows, and computes what the plain graph does."""
    model = models.lstm(2, 8, 16)
    inputs = {f"x{k}": RNG.standard_normal((1, 16)).astype("float32") for k in range(8)}
    (wanted,) = ReferenceEvaluator(model).run(None, inputs)

    def merged(library):
        (found,) = library.create()(*inputs.values())
        assert_close(found.numpy(), wanted)
        (program,) = library.programs.values()
        shapes = {buffer.shape for buffer in program.buffers}
        assert ((4, 16) in shapes) == (library.description.merged_rows == 4)
        assert ("up to 4 rows" in str(library.report)) == (library.report.merged_rows == 4)
        return library.description.merged_rows

    with warnings.catch_warnings(action="ignore", category=OversubscriptionWarning):
        alone = tvm_rammer.build(model, policy="sequential", num_veus=1)
        several = alone.replan(num_veus=4, oversubscribe=True)
        assert [merged(library) for library in (alone, several)] == [4, 1]
        # And back, from either; a plan for as many vEUs leaves the operators as they are.
        back = several.replan(num_veus=1)
        assert merged(back) == 4
        assert back.source is alone.source
        assert several.replan("wavefront").source is several.source
        assert merged(alone.replan("wavefront")) == 4
    assert merged(alone) == 4


def test_a_model_without_such_products_keeps_no_second_copy():
    library = tvm_rammer.build(mlp(), policy="sequential", num_veus=1)
    assert Mergeable.of(load_model(mlp()).module) is None
    assert library.replan(num_veus=2, oversubscribe=True).source is library.source
