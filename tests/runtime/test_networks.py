"""Whole networks agree with ONNX Runtime under every policy and vEU count, however they are run."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

import tvm_rammer
from tvm_rammer.runtime.library import Library
from tvm_rammer.testing.models import before_softmax, get_model, light, lstm
from tvm_rammer.testing.reference import random_inputs, relative_error, run_onnxruntime
from tvm_rammer.vdevice import host_cpu
from tvm_rammer.vdevice.vdevice import OversubscriptionWarning

pytestmark = pytest.mark.filterwarnings(
    f"ignore::{OversubscriptionWarning.__module__}.{OversubscriptionWarning.__name__}"
)

TOLERANCE = 1e-4
NETWORKS = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
)
PLANS = [(policy, veus) for policy in ("sequential", "wavefront") for veus in (1, 2, 4)]

Run = Callable[[Library, dict[str, np.ndarray]], list[np.ndarray]]


def by_graph_module(library: Library, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    module = library.create()
    for name, value in inputs.items():
        module.set_input(name, value)
    module.run()
    return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


def by_virtual_machine(library: Library, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    machine = relax.VirtualMachine(library.executable, tvm.cpu())
    names = [info.name for info in library.description.inputs]
    machine.set_input("main", *(tvm.runtime.tensor(inputs[name]) for name in names))
    machine.invoke_stateful("main")
    outputs = machine.get_outputs("main")
    outputs = [outputs] if isinstance(outputs, tvm.runtime.Tensor) else list(outputs)
    return [output.numpy() for output in outputs]


def check(model: onnx.ModelProto, folder: Path, plans: list[tuple[str, int]]) -> None:
    """Compile once, plan again and again, run every plan in every way."""
    inputs = random_inputs(model)
    wanted = run_onnxruntime(model, inputs)
    built = tvm_rammer.build(model)
    for policy, veus in plans:
        library = built.replan(policy=policy, num_veus=veus, oversubscribe=True)
        exported = tvm_rammer.load(library.export_library(folder / f"{policy}{veus}.so"))
        runs: list[tuple[str, Run, Library]] = [
            ("GraphModule", by_graph_module, library),
            ("Relax VM", by_virtual_machine, library),
            ("exported", by_graph_module, exported),
        ]
        for name, run, subject in runs:
            for got, want in zip(run(subject, inputs), wanted, strict=True):
                error = relative_error(got, want)
                assert error < TOLERANCE, f"{policy}, {veus} vEUs, {name}: error {error:.1e}"


@pytest.mark.parametrize("name", ["squeezenet", "inception_v1", "shufflenet"])
def test_network(name, tmp_path):
    check(before_softmax(light(name)), tmp_path, [("sequential", 2), ("wavefront", 4)])


def test_lstm(tmp_path):
    check(lstm(layers=8, steps=8, hidden=256), tmp_path, PLANS)


@pytest.mark.parametrize(
    "name", ["gru_8x8x256", "recommender", "mixture_of_experts", "bert_base", "nasnet_cifar"]
)
def test_other_models(name, tmp_path):
    check(get_model(name).tiny(), tmp_path, [("wavefront", host_cpu().cores)])


@pytest.mark.slow
@pytest.mark.parametrize("random_weights", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_with_every_plan(name, random_weights, tmp_path):
    model = before_softmax(light(name, random_weights=random_weights))
    check(model, tmp_path, PLANS)


@pytest.mark.slow
def test_long_lstm(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(get_model("lstm_10x100x256").build(), tmp_path, PLANS)
