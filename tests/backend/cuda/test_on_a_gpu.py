"""On a GPU: results, races and wrong addresses, hangs, capture. Run with ``-m gpu``.

Every run is a process of its own with a time limit: after an error of a kernel a process can do
nothing more with a GPU, and a hang must not be one of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

from tvm_rammer.backend.cuda.cubin import find_tool

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not tvm.cuda(0).exist, reason="no GPU of NVIDIA is here"),
]

ROOT = Path(__file__).parents[3]
FORMS = ("program", "wavefront", "per-op")
MODELS = ("mlp", "lstm_8x8x256", "mixture_of_experts", "bert_base", "squeezenet", "inception_v1")
#: Of the emulation's tests: volumes, and choices of the largest.
MODELS += ("branches", "volumes", "router")
#: Of `test_tensor_cores.CASES`.
PRODUCTS = ("sums_of_float32", "sums_of_float16", "by_columns", "ragged", "batches", "followed")
PRODUCTS += ("convolution_1x1", "convolution_3x3")
#: Seconds after which a process counts as hanging; those of a tool that slows kernels down.
PATIENCE, LONG = 300, 1200
START = """
import sys
import numpy as np
import tvm
import tvm_rammer
from close import assert_outputs_close
from cuda_models import branches, router, volumes
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing.models import get_model
from tvm_rammer.testing.reference import random_inputs

device = tvm.cuda(0)
arch = "sm_" + str(device.compute_version).replace(".", "")
name, form = sys.argv[1:3]
made = {"branches": branches, "router": router, "volumes": volumes}
model = made[name]() if name in made else get_model(name).tiny()
inputs = random_inputs(model)
policy = "sequential" if form == "per-op" else "wavefront"

def instance(**options):
    target = {"kind": "cuda", "arch": arch}
    module = tvm_rammer.build(model, target, form=form, policy=policy, **options).create(device)
    module.set_input(**inputs)
    return module

def check(module):
    device.sync()
    got = [module.get_output(k).numpy() for k in range(module.get_num_outputs())]
    assert_outputs_close(got, run_onnxruntime(model, inputs))
"""
RUN = """
module = instance()
for _ in range(int(sys.argv[3])):
    module.run()
    check(module)
"""
CAPTURE = """
import tvm_ffi
from bench.run_packed import Cudart

module = instance()
for _ in range(3):
    module.run()
device.sync()
stream = device.create_raw_stream()
with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), stream):
    graph = Cudart().capture(stream, module.run)
for _ in range(10):
    for k in range(module.get_num_outputs()):
        module.get_output(k).copyfrom(np.zeros_like(module.get_output(k).numpy()))
    # Those are copied in another stream.
    device.sync()
    graph.launch(stream)
    device.sync(stream)
    check(module)
"""
#: Products of float16, on tensor cores where a plan takes them, as numpy has them in float64.
PRODUCT = """
import sys
import numpy as np
import tvm
import tvm_rammer
from test_tensor_cores import CASES, model_of
from tvm_rammer.testing.reference import relative_error

device = tvm.cuda(0)
target = {"kind": "cuda", "arch": "sm_" + str(device.compute_version).replace(".", "")}
case, form = CASES[sys.argv[1]], sys.argv[2]
rng = np.random.default_rng(0)
given = {f"x{k}": rng.standard_normal(s).astype("float16") for k, s in enumerate(case.shapes)}
module = tvm_rammer.build(model_of(case), target, form=form, policy="wavefront").create(device)
module.set_input(**given)
for _ in range(20):
    module.run()
    device.sync()
    known = case.known(*(value.astype("float64") for value in given.values()))
    assert relative_error(module.get_output(0).numpy(), known) < case.limit
"""
#: One library for inputs of two shapes, with a sum that both keep between runs.
SHAPES = """
import sys
import numpy as np
import tvm
import tvm_rammer
from tvm_rammer.testing.models.builder import GraphBuilder

device = tvm.cuda(0)
target = {"kind": "cuda", "arch": "sm_" + str(device.compute_version).replace(".", "")}
graph = GraphBuilder("sums")
x, total = graph.input("x", ("rows", 64)), graph.input("total", (1, 96))
rng = np.random.default_rng(0)
weights = rng.standard_normal((64, 96)).astype("float32")
product = graph.op("Tanh", graph.op("MatMul", x, graph.initialiser(weights)))
added = graph.op("ReduceSum", product, graph.constant([0], "int64"), keepdims=1)
graph.output("totalN", graph.op("Add", total, added))
graph.output("y", graph.op("Sigmoid", product))
library = tvm_rammer.build(
    graph.build(),
    target,
    form=sys.argv[1],
    policy="wavefront",
    shapes=[{"x": (rows, 64)} for rows in (1, 40)],
    states={"total": "totalN"},
)
module = library.create(device)
expected = np.zeros((1, 96))
for rows in (40, 1, 1, 40):
    value = rng.standard_normal((rows, 64)).astype("float32")
    module.set_input(x=value)
    module.run()
    device.sync()
    tanh = np.tanh(value.astype("float64") @ weights)
    expected += tanh.sum(0, keepdims=True)
    np.testing.assert_allclose(module.state["total"].numpy(), expected, rtol=1e-4, atol=1e-4)
    last = module.get_output(module.get_num_outputs() - 1).numpy()
    np.testing.assert_allclose(last, 1 / (1 + np.exp(-tanh)), rtol=1e-4, atol=1e-4)
"""
#: A profile of it, too, is an ordinary run.
PROFILE = """
module = instance()
module.run()
profile = module.profile(5)
check(module)
times = {(span.veu, span.position): span for span in profile.timeline.spans}
assert sorted(times) == [(veu, position) for veu, position, _ in profile.program.tasks()]
for veu, position, task in profile.program.tasks():
    span = times[veu, position]
    assert 0 <= span.start <= span.stop <= profile.seconds, span
    assert not position or times[veu, position - 1].stop <= span.start, span
    # The timer of another processor may be a step behind.
    for wait in task.waits:
        assert times[wait.veu, wait.count - 1].stop <= span.start + 2e-6, (span, wait)
"""
#: Blocks that are never told that what they need is done.
NO_SIGNAL = """
signal = "rammer_release(rammer_counter(blockIdx.x), signal);"
seen = []

def without_signals(text, target):
    seen.append(signal in str(text))
    return str(text).replace(signal, ";")

tvm.register_global_func("tvm_callback_cuda_postproc", without_signals)
module = instance(wait_limit=1.0)
assert any(seen)
module.run()
device.sync()
"""
#: A table for more blocks than any GPU keeps.
TOO_LARGE = """
module = instance()
function = module._chosen()
blocks, place = 100_000, -2 - len(function.outputs)
arguments = list(function.arguments)
arguments[place] = tvm.runtime.tensor(np.zeros((1, blocks, 8), "int32"), device)
arguments[-1] = tvm.runtime.tensor(np.zeros(64 * blocks, "uint8"), device)
function.kernel(*arguments)
device.sync()
"""


def python(
    script: str, *arguments: str, tool: tuple[str, ...] = (), patience: int = PATIENCE
) -> subprocess.CompletedProcess[str]:
    places = ("", "python", "tests/helpers", "tests/backend/cuda")
    path = os.pathsep.join(
        [*(str(ROOT / each) for each in places), os.environ.get("PYTHONPATH", "")]
    )
    command = [*tool, sys.executable, "-c", script, *arguments]
    given = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=patience)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", MODELS)
def test_results_are_onnx_runtimes_every_time(model, form):
    done = python(START + RUN, model, form, "20")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_of_float16_are_numpys(product, form):
    done = python(PRODUCT, product, form)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", FORMS)
def test_one_library_serves_several_shapes_and_keeps_states(form):
    done = python(SHAPES, form)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(find_tool("compute-sanitizer") is None, reason="no compute-sanitizer is here")
@pytest.mark.parametrize("check", ["racecheck", "memcheck", "synccheck", "initcheck"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", ["lstm_8x8x256", "squeezenet"])
def test_sanitizers_find_nothing(model, form, check):
    tool = (str(find_tool("compute-sanitizer")), "--tool", check, "--error-exitcode", "9")
    done = python(START + RUN, model, form, "1", tool=tool, patience=LONG)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("form", ("program", "wavefront"))
def test_a_profile_shows_every_rtask_when_it_may_run(form):
    done = python(START + PROFILE, "lstm_8x8x256", form)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", FORMS)
def test_a_captured_run_computes_what_numpy_does(form):
    done = python(START + CAPTURE, "lstm_8x8x256", form)
    assert done.returncode == 0, done.stderr


def test_a_wait_that_nobody_ends_is_an_error_and_no_hang():
    done = python(START + NO_SIGNAL, "lstm_8x8x256", "program")
    assert done.returncode == 1
    assert "CUDA" in done.stderr.splitlines()[-1]


def test_more_blocks_than_the_gpu_keeps_are_an_error_and_no_hang():
    done = python(START + TOO_LARGE, "lstm_8x8x256", "program")
    assert done.returncode == 1
    assert "COOPERATIVE_LAUNCH_TOO_LARGE" in done.stderr


def test_a_packed_model_runs_by_itself(tmp_path):
    version = str(tvm.cuda(0).compute_version).replace(".", "")
    pack = [sys.executable, str(ROOT / "python" / "pack_cuda.py"), "lstm_8x8x256", "--quick"]
    folder = tmp_path / "packed"
    subprocess.run([*pack, "--arch", f"sm_{version}", "-o", str(folder)], check=True)
    run = [sys.executable, str(folder / "run.py"), "--runs", "20"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
