"""Preparing a model makes it call_tirs of fused PrimFuncs, and changes nothing a second time."""

import pytest
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_rammer.frontend import load_model
from tvm_rammer.relax_util import operator_name, static_shape
from tvm_rammer.testing import models
from tvm_rammer.transform.prepare import Prepare

NETWORKS = ("lstm_8x8x256", "bert_base", "nasnet_cifar", "inception_v2", "shufflenet")


def calls(mod: tvm.IRModule) -> list[Call]:
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    return [b.value for b in bindings if isinstance(b.value, Call)]


def callees(mod: tvm.IRModule) -> list[str]:
    return [call.args[0].name_hint for call in calls(mod)]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_becomes_call_tirs_and_stays_so(name):
    prepared = Prepare()(load_model(models.MODELS[name].tiny()).module)
    assert {operator_name(call) for call in calls(prepared)} == {"relax.call_tir"}
    tvm.ir.assert_structural_equal(Prepare()(prepared), prepared)


def test_an_lstm_cell_is_its_eight_products_and_little_more():
    model = models.lstm(2, 3, 16)
    cells, nodes = 2 * 3, len(model.graph.node)
    assert 8 * cells - 8 <= len(calls(Prepare()(load_model(model).module))) < 9 * cells < nodes


def test_a_convolution_takes_in_batch_norm_and_relu_and_has_its_channels_last():
    g = models.GraphBuilder("convolution")
    convolved = g.op("Conv", g.input("x", (1, 3, 8, 8)), g.weight((4, 3, 3, 3), 0.2), pads=[1] * 4)
    statistics = [g.uniform((4,), 0.5, 1.5) for _ in range(4)]
    g.output("y", g.op("Relu", g.op("BatchNormalization", convolved, *statistics)))
    prepared = Prepare()(load_model(g.build()).module)
    assert callees(prepared) == ["transpose", "fused_conv2d_add_relu", "transpose1"]
    image, weight, _ = calls(prepared)[1].args[1].fields
    assert static_shape(image) == (1, 8, 8, 3)
    assert static_shape(weight) == (4, 3, 3, 3)
    assert isinstance(weight, GenericConst)


def test_weights_stay_constants():
    model = models.lstm(1, 2, 16)
    prepared = Prepare()(load_model(model).module)
    arguments = [argument for call in calls(prepared) for argument in call.args[1].fields]
    assert len(prepared["main"].params) == len(model.graph.input)
    assert len({a.value for a in arguments if isinstance(a, GenericConst)}) >= 8 + 4


def test_a_second_run_fuses_new_operators_and_nothing_with_what_is_fused():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                y = R.tanh(R.negative(x))
                R.output(y)
            return y

    prepared = Prepare()(Module)
    (fused,) = callees(prepared)
    assert fused == "fused_tir_negative_tir_tanh"
    builder = relax.BlockBuilder(
        tvm.IRModule({g: f for g, f in prepared.functions_items() if g.name_hint != "main"})
    )
    with builder.function("main", prepared["main"].params):
        with builder.dataflow():
            old = builder.emit(calls(prepared)[0])
            y = builder.emit_output(relax.op.negative(builder.emit(relax.op.nn.relu(old))))
        builder.emit_func_output(y)
    assert callees(Prepare()(builder.get())) == [fused, "fused_relu_tir_negative"]
