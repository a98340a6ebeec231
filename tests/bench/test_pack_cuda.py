"""A packed folder runs, checks and times itself where a GPU is, and says what is missing elsewhere.

The GPU is an emulated one; TVM's runtime for CUDA, its VM and ``run.py`` are those that are packed.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pack_cuda
import pytest
from click.testing import CliRunner
from emulated_cuda.driver import driver_environment, driver_obstacle

pytestmark = pytest.mark.skipif(bool(driver_obstacle()), reason=driver_obstacle())

ROOT = Path(__file__).parents[2]
FORMS = ("one-by-one", "wavefront", "persistent")
#: In a process of its own, as it loads a driver that has no device.
PACK = """
import sys
import pack_cuda
from emulated_cuda.driver import emulated_machine_code

with emulated_machine_code():
    pack_cuda.main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packs") / "packed"
    path = os.pathsep.join(str(ROOT / each) for each in ("", "python", "tests/helpers"))
    command = [sys.executable, "-c", PACK, "lstm_8x8x256", "--quick", "--arch", "sm_90"]
    done = subprocess.run(
        [*command, "--num-veus", "6", "-o", str(folder)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("on the other machine: python packed/run.py\n")
    return folder


@pytest.fixture
def copied(packed, tmp_path):
    return Path(shutil.copytree(packed, tmp_path / "packed"))


def run(folder: Path, *options: str, python: tuple[str, ...] = (), **settings: object):
    """Run a packed folder where neither this package nor TVM can be imported."""
    environment = driver_environment(**settings) | {"PYTHONPATH": ""}
    command = [sys.executable, *python, str(folder / "run.py"), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_a_pack_is_small_and_holds_no_source(packed):
    assert sum(path.stat().st_size for path in packed.rglob("*") if path.is_file()) < 16e6
    assert not list(packed.rglob("libtvm_compiler*"))
    for form in FORMS:
        assert b"__global__" not in (packed / f"{form}.so").read_bytes()


def test_every_form_computes_what_was_expected_and_is_timed(packed, tmp_path):
    results = tmp_path / "results.json"
    done = run(packed, "--runs", "2", "--turns", "2", "--json", str(results))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("lstm_8x8x256 on emulated GPU (sm_90, 132 SMs, CUDA 13.0): median ")
    assert [line.split()[0] for line in lines[2:]] == list(FORMS)
    saved = json.loads(results.read_text())
    assert saved["gpu"]["capability"] == [9, 0] and saved["arch"] == "sm_90"
    for each in saved["found"].values():
        assert each["error"] < 1e-4
        assert len(each["launched"]) == len(each["captured"]) == 4
    launches = {form: each["launches"] for form, each in saved["found"].items()}
    # The counters are cleared by a launch of their own.
    assert launches["persistent"] == 2 < launches["wavefront"] < launches["one-by-one"]


def calls(folder: Path, form: str, log: Path) -> list[str]:
    """The functions of CUDA that are called while a form is captured."""
    done = run(folder, "--only", form, "--runs", "1", log=log)
    assert done.returncode == 0, done.stderr
    names = log.read_text().split()
    return names[names.index("cudaStreamBeginCapture") + 1 : names.index("cudaStreamEndCapture")]


@pytest.mark.parametrize("form", FORMS)
def test_while_a_graph_is_captured_nothing_but_launches_happens(packed, form, tmp_path):
    found = calls(packed, form, tmp_path / "log")
    assert found and set(found) == {"cuLaunchKernelEx"}


def test_a_first_run_cannot_be_captured(copied):
    """Code is loaded in it, and memory taken: the emulation refuses that as CUDA does."""
    script = copied / "run.py"
    text = script.read_text().replace("_WARM_UP = 5", "_WARM_UP = 0")
    runs = '{"error": model.error(), "launched": timed(model.run, model.sync, runs)}'
    assert runs in text
    script.write_text(text.replace(runs, "{}"))
    done = run(copied, "--only", "wavefront", "--runs", "1")
    assert done.returncode == 1
    assert "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" in done.stderr


def test_results_that_are_not_as_expected_are_a_failure(copied):
    with np.load(copied / "expected.npz") as saved:
        np.savez(copied / "expected.npz", *[saved[name] * 1.01 for name in saved.files])
    done = run(copied, "--runs", "1", "--turns", "1")
    assert done.returncode == 1
    assert (
        done.stdout.count("computes something else than was expected: relative error 0.0099") == 3
    )


def test_a_form_that_fails_leaves_the_others_alone(packed):
    done = run(packed, "--runs", "1", "--turns", "1", resident=5)
    assert done.returncode == 1
    *_, wavefront, problem = done.stdout.splitlines()
    assert wavefront.startswith("wavefront")
    assert problem.startswith("persistent: RuntimeError: CUDALaunch Error: ")
    assert problem.endswith("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE")


def test_blocks_that_do_not_fit_on_a_smaller_gpu_are_told_before(packed):
    done = run(packed, "--runs", "1", "--turns", "1", sms=2)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == (
        "persistent: its 6 blocks wait for each other, and this GPU has room for 4 at the same "
        "time: pack the model again with --num-veus 4"
    )


REFUSED = [
    (
        {"devices": 0},
        "the driver finds no GPU (CUDA error 100): run this folder on a machine with one, and look "
        "at CUDA_VISIBLE_DEVICES",
    ),
    (
        {"arch": 80},
        "this GPU, emulated GPU, is sm_80, and the libraries were built for sm_90: pack the model "
        "again with --arch sm_80",
    ),
    (
        {"version": 12040},
        "the driver here is for CUDA 12.4, and TVM's runtime needs 13.0: update the driver",
    ),
]


@pytest.mark.parametrize(("settings", "text"), REFUSED)
def test_a_gpu_that_does_not_do_is_an_error(packed, settings, text):
    done = run(packed, **settings)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {text}\n"


@pytest.mark.skipif(bool(ctypes.util.find_library("cuda")), reason="there is a driver")
def test_without_a_driver_nothing_runs(packed):
    done = subprocess.run([sys.executable, packed / "run.py"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        "error: there is no driver of NVIDIA here, libcuda.so.1 cannot be loaded: run this folder "
        "on a machine with a GPU and its driver\n",
    )


def test_another_python_than_the_runtime_is_for_is_an_error(copied):
    facts = json.loads((copied / "facts.json").read_text())
    (copied / "facts.json").write_text(json.dumps(facts | {"python": "3.7"}))
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert run(copied).stderr == (
        f"error: the runtime in this folder is for Python 3.7, and this is {here}: run it by "
        f"python3.7, or pack again with --python {here}\n"
    )


def test_without_numpy_an_error_says_what_to_do(packed):
    assert run(packed, python=("-S",)).stderr == (
        "error: numpy is not installed: pip install numpy\n"
    )


def test_without_a_runtime_an_error_says_what_to_do(copied, tmp_path):
    shutil.rmtree(copied / "runtime")
    script = copied / "run.py"
    script.write_text(script.read_text().replace('find_spec("tvm")', "None"))
    assert run(copied).stderr == (
        "error: TVM's runtime is not here: pip install apache-tvm==0.27.*, or pack again without "
        "--no-runtime\n"
    )


def test_the_installed_runtime_does_as_well(copied):
    shutil.rmtree(copied / "runtime")
    done = run(copied, "--only", "wavefront", "--runs", "1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["error"] < 1e-4


# ---- packing -------------------------------------------------------------------------------------
def refusal(*options: str) -> str:
    result = CliRunner().invoke(pack_cuda.main, options)
    assert result.exit_code
    return result.output.splitlines()[-1]


def test_an_architecture_must_be_given(tmp_path):
    assert refusal("mlp", "-o", str(tmp_path / "new")) == "Error: Missing option '--arch'."


def test_what_cannot_be_packed_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(pack_cuda.machine_code, "find_tool", lambda name: Path(name))
    new = tmp_path / "new"
    common = ("-o", str(new), "--arch")
    assert refusal("mlp", *common, "sm_42") == (
        "Error: the architecture 'sm_42' is not known: choose one of sm_70, sm_75, sm_80, sm_86, "
        "sm_87, sm_89, sm_90, sm_100"
    )
    assert refusal("mlpp", *common, "sm_90").startswith("Error: there is no model 'mlpp'")
    assert refusal("mlp.onnx", *common, "sm_90") == (
        "Error: Invalid value for MODEL: there is no file mlp.onnx"
    )
    assert refusal("mlp", *common, "sm_90", "--num-veus", "265").startswith(
        "Error: num_veus is 265, but H100 (sm_90) has 264 "
    )
    assert not new.exists()
    new.mkdir()
    assert refusal("mlp", *common, "sm_90") == (
        f"Error: {new} is there already: give another folder, or remove it"
    )


def test_without_a_compiler_nothing_is_packed(tmp_path, monkeypatch):
    monkeypatch.setattr(pack_cuda.machine_code, "find_tool", lambda name: None)
    monkeypatch.setattr(pack_cuda.tvm_ffi, "get_global_func", lambda *_, **__: None)
    assert refusal("mlp", "--arch", "sm_90", "-o", str(tmp_path / "new")) == (
        "Error: nvcc is not there: the libraries would hold CUDA C, which a machine without a "
        "compiler cannot run; install CUDA's compiler, and put it on the PATH or name its folder "
        "in CUDA_HOME"
    )


def test_a_python_for_which_there_is_no_runtime_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(pack_cuda.RammerError) as error:
        pack_cuda.copy_runtime(tmp_path / "runtime", "3.12")
    text = str(error.value)
    assert text.startswith("pip fetches no apache-tvm-ffi==")
    assert " for Python 3.12 (ERROR: " in text
