"""Instances run in the stream of the caller, and inside of a CUDA graph's capture.

On the emulated driver, which refuses whatever CUDA refuses while a stream is captured.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from emulated_cuda.driver import driver_environment, driver_obstacle

pytestmark = pytest.mark.skipif(bool(driver_obstacle()), reason=driver_obstacle())

ROOT = Path(__file__).parents[3]
FORMS = ("program", "wavefront", "per-op")
#: Writes libraries whose machine code the emulated driver runs.
WRITE = """
import sys
import tvm_rammer
from emulated_cuda.driver import emulated_machine_code
from tvm_rammer.testing.models import get_model

model = get_model("lstm_8x8x256").tiny()
target = {"kind": "cuda", "arch": "sm_90"}
with emulated_machine_code():
    for form in sys.argv[2:]:
        library = tvm_rammer.build(model, target, form=form, policy="wavefront", num_veus=4)
        library.export_library(f"{sys.argv[1]}/{form}.so")
"""
#: Captures a run in a stream of its own, and replays it on other inputs.
CAPTURE = """
import sys
import numpy as np
import tvm
import tvm_ffi
import tvm_rammer
from bench.run_packed import Cudart

path, runs_before = sys.argv[1], int(sys.argv[2])
device = tvm.cuda(0)
module = tvm_rammer.load(path).create(device)
shapes, dtypes = module.get_input_info()
rng = np.random.default_rng(0)
first, second = (
    {name: rng.standard_normal(shape).astype(dtypes[name]) for name, shape in shapes.items()}
    for _ in range(2)
)

def outputs():
    return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]

module.set_input(**first)
for _ in range(runs_before):
    module.run()
stream = device.create_raw_stream()
with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), stream):
    graph = Cudart().capture(stream, module.run)
module.set_input(**second)
graph.launch(stream)
device.sync(stream)
replayed = outputs()
module.run()
device.sync()
for a, b in zip(replayed, outputs(), strict=True):
    np.testing.assert_array_equal(a, b)
module.set_input(**first)
module.run()
assert any((a != b).any() for a, b in zip(replayed, outputs(), strict=True))
print(graph.nodes)
"""


def python(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(ROOT / each) for each in ("", "python", "tests/helpers"))
    given = {**os.environ, **environment, "PYTHONPATH": path}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=given, capture_output=True, text=True)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    done = python(WRITE, str(folder), *FORMS)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_a_captured_run_computes_what_a_run_does_on_the_inputs_of_its_replay(
    libraries, form, tmp_path
):
    log = tmp_path / "log"
    given = driver_environment(log=log)
    done = python(CAPTURE, str(libraries / f"{form}.so"), "3", **given)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2
    calls = log.read_text().split()
    inside = calls[calls.index("cudaStreamBeginCapture") + 1 : calls.index("cudaStreamEndCapture")]
    assert inside == ["cuLaunchKernelEx"] * int(done.stdout)


def test_another_gpu_than_a_library_is_for_is_refused(libraries):
    done = python(CAPTURE, str(libraries / "program.so"), "3", **driver_environment(arch=80))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "tvm_rammer.errors.DeviceError: the library was compiled for sm_90, and cuda:0 is sm_80: "
        'build it with {"kind": "cuda", "arch": "sm_80"}'
    )


def test_the_first_run_loads_code_and_cannot_be_captured(libraries):
    done = python(CAPTURE, str(libraries / "program.so"), "0", **driver_environment())
    assert done.returncode == 1
    assert "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" in done.stderr
