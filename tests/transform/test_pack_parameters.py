"""Weights that are parameters are packed once, by TVM's own lifting of what depends on them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from close import assert_close
from tvm import relax

import tvm_rammer
from tvm_rammer.backend import resolve_target
from tvm_rammer.transform.pack_parameters import PackParameters

OP = relax.op
TARGET = resolve_target(None)


def linear(x, w, v):
    """Two layers whose weights are [output, input], as PyTorch keeps them."""
    hidden = OP.nn.relu(OP.matmul(x, OP.permute_dims(w)))
    return OP.matmul(hidden, OP.permute_dims(v))


def convolutions(x, w, v):
    hidden = OP.nn.relu(OP.nn.conv2d(x, w, padding=1))
    return OP.nn.conv2d(hidden, v, padding=1)


MODELS = {
    "linear": (linear, [(8, 64), (96, 64), (40, 96)]),
    "row": (linear, [(1, 64), (96, 64), (37, 96)]),
    "convolutions": (convolutions, [(1, 5, 9, 9), (24, 5, 3, 3), (19, 24, 3, 3)]),
}


def module_of(build, shapes, num_input=1):
    params = [relax.Var(f"p{k}", relax.TensorType(s, "float32")) for k, s in enumerate(shapes)]
    attrs = {} if num_input is None else {"num_input": num_input}
    builder = relax.BlockBuilder()
    with builder.function("main", params, attrs=attrs):
        with builder.dataflow():
            result = builder.emit_output(build(*params))
        builder.emit_func_output(result)
    return builder.get()


def called(mod, name):
    """The PrimFuncs that a function calls, in order."""
    bindings = [b for block in mod[name].body.blocks for b in block.bindings]
    calls = [b.value for b in bindings if isinstance(b.value, tvm.ir.Call)]
    return [call.args[0].name_hint for call in calls]


def values(shapes):
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype("float32") for shape in shapes]


def run(mod, *inputs):
    library = relax.build(mod, TARGET, relax_pipeline=tvm_rammer.pipeline())
    machine = relax.VirtualMachine(library, tvm.cpu())
    data, *weights = map(tvm.runtime.tensor, inputs)
    if "main_transform_params" in {symbol.name_hint for symbol in mod.get_global_vars()}:
        weights = machine["main_transform_params"](weights)
    return machine["main"](data, *weights).numpy()


@pytest.mark.parametrize("name", MODELS)
def test_packing_is_lifted(name):
    build, shapes = MODELS[name]
    mod = module_of(build, shapes)
    packed = PackParameters(TARGET)(mod)
    lifted = relax.transform.LiftTransformParams()(packed)
    assert sum(call.startswith("pack") for call in called(lifted, "main_transform_params")) == 2
    assert sum(call.endswith("_packed") for call in called(lifted, "main")) == 2
    assert not any(call.startswith("pack") for call in called(lifted, "main"))
    inputs = values(shapes)
    want = run(mod, *inputs)
    assert_close(run(packed, *inputs), want)
    assert_close(run(lifted, *inputs), want)


def test_lifted_before_the_pipeline():
    """Without our pass, TVM's lifts the transpositions, and the results are the same."""
    build, shapes = MODELS["linear"]
    mod = module_of(build, shapes)
    lifted = relax.transform.LiftTransformParams()(mod)
    inputs = values(shapes)
    assert_close(run(lifted, *inputs), run(mod, *inputs))


def test_without_num_input_nothing_is_packed():
    packed = PackParameters(TARGET)(module_of(*MODELS["linear"], num_input=None))
    assert not any("pack" in call for call in called(packed, "main"))


def test_a_weight_that_two_products_use_is_packed_once():
    def build(x, w):
        return OP.add(OP.matmul(x, w), OP.nn.relu(OP.matmul(OP.nn.relu(x), w)))

    packed = PackParameters(TARGET)(module_of(build, [(8, 32), (32, 32)]))
    assert sum(call.startswith("pack") for call in called(packed, "main")) == 1
