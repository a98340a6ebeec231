"""Merged kernels are written as HIP, which a compiler for gfx90a takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import generate_hip
import pytest
from bench.hip_text import hip_text
from click.testing import CliRunner

from tvm_rammer.errors import ModelError

STAND_IN = Path(__file__).parents[1] / "helpers" / "hip_stand_in"
#: All kinds of kernels: products, convolutions, softmax and norms, with shuffles.
MODELS = ("lstm_8x8x256", "bert_base", "squeezenet")
PREAMBLE = "#define uint unsigned int\n  #define uchar x\n  #define ushort y\n#endif\n"


def compiler() -> str | None:
    """A clang that makes code for AMD's GPUs: ``$HIP_CLANG``, or one on the ``PATH``."""
    for name in (os.environ.get("HIP_CLANG", ""), "amdclang++", "clang"):
        found = shutil.which(name) if name else None
        if found:
            told = subprocess.run([found, "--print-targets"], capture_output=True, text=True)
            if "amdgcn" in told.stdout:
                return found
    return None


@pytest.fixture(scope="module", params=MODELS)
def written(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("hip") / "kernels.hip.cpp"
    options = [request.param, "--quick", "-o", str(path)]
    result = CliRunner().invoke(generate_hip.main, options)
    assert result.exit_code == 0, result.output
    assert result.output.endswith("hipcc --offload-arch=gfx90a -c kernels.hip.cpp\n")
    return path


def test_nothing_of_cuda_is_left(written):
    text = written.read_text()
    assert text.startswith("#include <hip/hip_runtime.h>\n")
    assert "asm" not in text and "cuda.h" not in text
    assert text.count("__hip_atomic_load") == text.count("__hip_atomic_store") == 1
    assert 'extern "C" __global__' in text and "rammer_walk" in text


@pytest.mark.skipif(compiler() is None, reason="no clang for GPUs of AMD is here")
def test_it_compiles_for_gfx90a(written):
    made = written.with_suffix(".s")
    command = [str(compiler()), "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib"]
    command += ["--offload-arch=gfx90a", "-std=c++17", "-O2", "-S", f"-I{STAND_IN}"]
    done = subprocess.run([*command, str(written), "-o", str(made)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assembly = made.read_text()
    assert 'amdgcn_target "amdgcn-amd-amdhsa--gfx90a' in assembly
    assert "s_barrier" in assembly and re.search(
        r"global_store_dword .*|flat_store_dword", assembly
    )
    spills = re.findall(r"\.vgpr_spill_count: +(\d+)", assembly)
    assert spills and set(spills) == {"0"}


REFUSED = {
    'asm volatile("mma.sync;");': 'asm volatile("mma.sync;");',
    "nvcuda::wmma::fragment<int> x;": "nvcuda",
    "cooperative_groups::this_grid().sync();": "cooperative_groups",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_counterpart_is_an_error(text):
    with pytest.raises(ModelError) as error:
        hip_text(PREAMBLE + text)
    assert str(error.value) == f"no HIP is known for this part of a kernel: {REFUSED[text]}"


def test_another_text_is_an_error():
    with pytest.raises(ModelError) as error:
        hip_text("int main() {}")
    assert str(error.value) == (
        "this is no source of merged kernels: TVM's first lines are missing"
    )


def test_a_model_that_is_not_there_is_an_error(tmp_path):
    result = CliRunner().invoke(generate_hip.main, ["none.onnx", "-o", str(tmp_path / "x.cpp")])
    assert result.exit_code == 2 and "there is no file none.onnx" in result.output
