"""Whole networks agree with ONNX Runtime under every policy and vEU count, however they are run."""

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

import tvm_rammer
from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE
from tvm_rammer.machine.vdevice import OversubscriptionWarning
from tvm_rammer.runtime.library import Library
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing.models import before_softmax, get_model, light, lstm
from tvm_rammer.testing.reference import random_inputs, relative_error

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


RUN_EXPORTED = """
import sys
import numpy as np
import tvm_rammer

library, inputs, outputs = sys.argv[1:]
module = tvm_rammer.load(library).create()
for name, value in np.load(inputs).items():
    module.set_input(name, value)
module.run()
np.savez(outputs, *(module.get_output(k).numpy() for k in range(module.get_num_outputs())))
"""


def by_exported_library(library: Library, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """In a process of its own: TVM never frees the constants of a library that it has loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = library.export_library(Path(folder) / "library.so")
        given, found = Path(folder) / "inputs.npz", Path(folder) / "outputs.npz"
        np.savez(given, **inputs)
        subprocess.run([sys.executable, "-c", RUN_EXPORTED, path, given, found], check=True)
        with np.load(found) as outputs:
            return [outputs[f"arr_{k}"] for k in range(len(outputs))]


WAYS: tuple[Run, ...] = (by_graph_module, by_virtual_machine, by_exported_library)


def check(model: onnx.ModelProto, plans: list[tuple[str, int]]) -> None:
    """Compile once, plan again and again, run every plan in every way."""
    inputs = random_inputs(model)
    wanted = run_onnxruntime(model, inputs)
    built = tvm_rammer.build(model)
    for policy, veus in plans:
        library = built.replan(policy=policy, num_veus=veus, oversubscribe=True)
        for run in WAYS:
            for got, want in zip(run(library, inputs), wanted, strict=True):
                error = relative_error(got, want)
                assert error < TOLERANCE, f"{policy}, {veus} vEUs, {run.__name__}: {error:.1e}"


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_network(name):
    check(before_softmax(light(name)), [("sequential", 2), ("wavefront", 4)])


def test_lstm():
    check(lstm(layers=8, steps=8, hidden=256), [("sequential", 2), ("wavefront", 4)])


@pytest.mark.slow
def test_lstm_with_every_plan():
    check(lstm(layers=8, steps=8, hidden=256), PLANS)


@pytest.mark.parametrize("name", ["gru_8x8x256", "bert_base"])
def test_other_models(name):
    check(get_model(name).tiny(), [("wavefront", host_cpu().cores)])


@pytest.mark.slow
@pytest.mark.parametrize("random_weights", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_with_every_plan(name, random_weights):
    model = before_softmax(light(name, random_weights=random_weights))
    check(model, PLANS)


def errors(model: onnx.ModelProto, winograd_tolerance: float) -> list[float]:
    """How far the outputs of a plan of one vEU are from ONNX Runtime's."""
    inputs = random_inputs(model)
    options = {"policy": "sequential", "num_veus": 1, "winograd_tolerance": winograd_tolerance}
    got = tvm_rammer.build(model, **options).create()(*inputs.values())
    wanted = run_onnxruntime(model, inputs)
    return [relative_error(g.numpy(), w) for g, w in zip(got, wanted, strict=True)]


def test_winograd_costs_some_exactness():
    """The beginning of vgg19 is four convolutions of 3 x 3."""
    model = get_model("vgg19").tiny()
    (direct,), (fast,) = errors(model, 0), errors(model, DEFAULT_TOLERANCE)
    assert direct < TOLERANCE / 10
    assert direct < fast < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_without_winograd_a_network_is_eight_times_as_exact(name):
    """ONNX Runtime itself is up to 9e-6 away from vgg19's layers in double precision."""
    assert max(errors(before_softmax(light(name)), 0)) < TOLERANCE / 8


@pytest.mark.slow
def test_long_lstm():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(get_model("lstm_10x100x256").build(), PLANS)
