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
#: Seconds after which a process counts as hanging; those of a tool that slows kernels down.
PATIENCE, LONG = 300, 1200
START = """
import sys
import numpy as np
import tvm
import tvm_rammer
from close import assert_outputs_close
from onnx.reference import ReferenceEvaluator
from tvm_rammer.testing.models import get_model
from tvm_rammer.testing.reference import random_inputs

device = tvm.cuda(0)
arch = "sm_" + str(device.compute_version).replace(".", "")
name, form = sys.argv[1:3]
model = get_model(name).tiny()
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
    assert_outputs_close(got, ReferenceEvaluator(model).run(None, inputs))
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
blocks, place = 100_000, -2 - len(module._outputs)
arguments = list(module._arguments)
arguments[place] = tvm.runtime.tensor(np.zeros((1, blocks, 8), "int32"), device)
arguments[-1] = tvm.runtime.tensor(np.zeros(64 * blocks, "uint8"), device)
module._kernel(*arguments)
device.sync()
"""


def python(
    script: str, *arguments: str, tool: tuple[str, ...] = (), patience: int = PATIENCE
) -> subprocess.CompletedProcess[str]:
    ours = [str(ROOT / each) for each in ("", "python", "tests/helpers")]
    path = os.pathsep.join([*ours, os.environ.get("PYTHONPATH", "")])
    command = [*tool, sys.executable, "-c", START + script, *arguments]
    given = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=patience)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", MODELS)
def test_results_are_numpys_every_time(model, form):
    done = python(RUN, model, form, "20")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(find_tool("compute-sanitizer") is None, reason="no compute-sanitizer is here")
@pytest.mark.parametrize("check", ["racecheck", "memcheck", "synccheck", "initcheck"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", ["lstm_8x8x256", "squeezenet"])
def test_sanitizers_find_nothing(model, form, check):
    tool = (str(find_tool("compute-sanitizer")), "--tool", check, "--error-exitcode", "9")
    done = python(RUN, model, form, "1", tool=tool, patience=LONG)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("form", FORMS)
def test_a_captured_run_computes_what_numpy_does(form):
    done = python(CAPTURE, "lstm_8x8x256", form)
    assert done.returncode == 0, done.stderr


def test_a_wait_that_nobody_ends_is_an_error_and_no_hang():
    done = python(NO_SIGNAL, "lstm_8x8x256", "program")
    assert done.returncode == 1
    assert "CUDA" in done.stderr.splitlines()[-1]


def test_more_blocks_than_the_gpu_keeps_are_an_error_and_no_hang():
    done = python(TOO_LARGE, "lstm_8x8x256", "program")
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
