from __future__ import annotations

import numpy as np
import onnx
import pytest

from tvm_rammer.errors import ModelError
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing.models import (
    MODELS,
    GraphBuilder,
    before_softmax,
    get_model,
    light,
    lstm,
    statistics,
)
from tvm_rammer.testing.models.light import LIGHT
from tvm_rammer.testing.models.randwire import watts_strogatz
from tvm_rammer.testing.reference import random_inputs, relative_error


@pytest.mark.parametrize("name", MODELS)
def test_a_tiny_model_is_valid_and_its_outputs_are_sane_and_depend_on_the_inputs(name: str) -> None:
    pytest.importorskip("onnxruntime")
    model = before_softmax(MODELS[name].tiny())
    onnx.checker.check_model(model, full_check=True)
    outputs, others = (run_onnxruntime(model, random_inputs(model, seed)) for seed in (1, 2))
    assert all(np.isfinite(value).all() for value in outputs)
    assert all(1e-3 < np.abs(value).max() < 1e3 for value in outputs)
    assert max(map(relative_error, outputs, others)) > 0.01


@pytest.mark.parametrize(
    ("name", "million_parameters", "giga_macs"),
    [
        ("nasnet_mobile", 5.29, 0.576),
        ("nasnet_cifar", 3.3, None),
        ("squeezenet", 1.235, 0.352),
        ("inception_v3", 23.83, 5.73),
        ("resnet50", 25.557, 4.10),
        ("densenet121", 7.98, 2.85),
        ("resnext29_16x64d_paper", 68.1, None),
        ("randwire", 31.9, 4.0),
        pytest.param("alexnet", 61.101, 0.714, marks=pytest.mark.slow),
        pytest.param("bert_base", 85.054, 11.2, marks=pytest.mark.slow),
        pytest.param("resnext101_64x4d", 83.455, 15.5, marks=pytest.mark.slow),
        pytest.param("nasnet_large", 88.75, 23.9, marks=pytest.mark.slow),
        pytest.param("vgg19", 143.667, 19.6, marks=pytest.mark.slow),
    ],
)
def test_parameters_and_work_are_the_published_ones(
    name: str, million_parameters: float, giga_macs: float | None
) -> None:
    counted = statistics(MODELS[name].build())
    assert counted.parameters / 1e6 == pytest.approx(million_parameters, rel=0.012)
    if giga_macs:
        assert counted.flops / 2e9 == pytest.approx(giga_macs, rel=0.012)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_full_model_has_sane_outputs_that_depend_on_the_inputs(name: str) -> None:
    model = before_softmax(MODELS[name].build())
    outputs, others = (run_onnxruntime(model, random_inputs(model, seed)) for seed in (1, 2))
    assert all(np.isfinite(value).all() and value.any() for value in outputs)
    assert max(np.abs(value).max() for value in outputs) < 1e3
    assert max(map(relative_error, outputs, others)) > 0.01


def test_an_lstm_cell_is_eight_products() -> None:
    model = lstm(layers=2, steps=3, hidden=4, batch=5)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("MatMul") == 2 * 3 * 8
    assert [info.name for info in model.graph.input] == ["x0", "x1", "x2"]
    assert [info.name for info in model.graph.output] == ["out"]
    # Weights, biases, and the zero state that all layers share.
    assert statistics(model).parameters == 2 * (8 * 4 * 4 + 4 * 4) + 5 * 4


def test_the_branches_of_resnext29_are_separate_convolutions() -> None:
    model = MODELS["resnext29_16x64d"].build()
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    # The stem, nine blocks of sixteen branches and one join, three shortcuts that change channels.
    assert len(convolutions) == 1 + 9 * (16 * 2 + 1) + 3
    assert statistics(model).width >= 16


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again, other = (lstm(1, 1, 4, seed=seed).SerializeToString() for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_model_as_shipped_keeps_its_constant_weights(name: str) -> None:
    kinds = {node.op_type for node in light(name, random_weights=False).graph.node}
    assert "ConstantOfShape" in kinds


def test_a_randomised_light_model_has_only_its_image_as_an_input() -> None:
    model = light("squeezenet")
    assert [info.name for info in model.graph.input] == ["data_0"]
    assert "ConstantOfShape" not in {node.op_type for node in model.graph.node}


def test_the_tensor_before_the_final_softmax_becomes_an_output() -> None:
    g = GraphBuilder("two")
    logits = g.op("Relu", g.input("x", (2, 3)))
    g.output("probabilities", g.op("Softmax", logits, axis=-1))
    model = g.build()
    looked = before_softmax(model)
    assert [info.name for info in looked.graph.output] == ["probabilities", logits]
    assert [info.name for info in model.graph.output] == ["probabilities"]
    onnx.checker.check_model(looked, full_check=True)


def test_statistics_count_work_width_depth_and_parallelism() -> None:
    g = GraphBuilder("diamond")
    x = g.input("x", (1, 8))
    branches = [g.op("MatMul", x, g.weight((8, 8), 1.0)) for _ in range(2)]
    g.output("out", g.op("Add", *branches))
    counted = statistics(g.build())
    assert (counted.operators, counted.parameters, counted.flops) == (3, 128, 2 * 128 + 8)
    assert (counted.width, counted.depth) == (2, 2)
    assert counted.parallelism == (256 + 8) / (128 + 8)


def test_watts_strogatz_keeps_the_number_of_edges() -> None:
    wiring = watts_strogatz(32, 4, 0.75, np.random.default_rng(0))
    assert sum(map(len, wiring)) == 32 * 4 // 2
    assert all(producer < node for node, producers in enumerate(wiring) for producer in producers)


def test_an_unknown_model_suggests_the_nearest() -> None:
    with pytest.raises(ModelError) as error:
        get_model("squeznet")
    assert str(error.value) == "there is no model 'squeznet'; did you mean 'squeezenet'?"


def test_an_unknown_light_model_lists_what_there_is() -> None:
    with pytest.raises(ModelError) as error:
        light("lenet")
    assert str(error.value) == (
        "the onnx package has no light model 'lenet'; it has bvlc_alexnet, densenet121,"
        " inception_v1, inception_v2, resnet50, shufflenet, squeezenet, vgg19, zfnet512"
    )


def test_a_value_that_nothing_makes_is_refused() -> None:
    with pytest.raises(ModelError) as error:
        GraphBuilder("g").op("Relu", "y")
    assert str(error.value) == "relu_1 reads 'y', which nothing has made"
