"""Libraries for GPUs that are written where no driver is hold machine code, if nvcc is there."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tvm
from cuda_models import run_model
from emulated_cuda import run_emulated

from tvm_rammer.backend.cuda.cubin import find_tool

ELF = b"\x7fELF"
SCRIPT = """
import sys
import tvm_rammer
from tvm_rammer.testing.models import get_model

model = get_model("lstm_8x8x256").tiny()
for form in ("program", "per-op"):
    library = tvm_rammer.build(model, {"kind": "cuda", "arch": "sm_90"}, form=form)
    library.export_library(f"{sys.argv[1]}/{form}.so")
    try:
        library.create()
    except tvm_rammer.errors.DeviceError as error:
        print(error)
"""


@pytest.mark.skipif(find_tool("nvcc") is None, reason="nvcc is not there")
@pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a GPU, whose own runtime compiles")
def test_written_libraries_hold_machine_code_and_no_source(tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for form in ("program", "per-op"):
        content = (tmp_path / f"{form}.so").read_bytes()
        # The library itself, and what is inside.
        assert content.count(ELF) == 2
        assert b"__global__" not in content
    assert done.stdout.count("there is no cuda:0 here") == 2


def source_of_an_lstm() -> str:
    return run_model("lstm_8x8x256", policy="wavefront", num_veus=4).source


@pytest.mark.skipif(find_tool("nvcc") is None, reason="nvcc is not there")
def test_bodies_read_what_other_blocks_wrote_through_coherent_caches(tmp_path):
    (tmp_path / "kernels.cu").write_text(run_emulated(source_of_an_lstm))
    command = [
        str(find_tool("nvcc")),
        "-w",
        "-arch=sm_90",
        "-ptx",
        "kernels.cu",
        "-o",
        "kernels.ptx",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    ptx = (tmp_path / "kernels.ptx").read_text()
    assert "ld.global.nc" not in ptx
    assert "ld.global.f32" in ptx and "ld.f32" not in ptx
    assert "ld.acquire.gpu" in ptx and "st.release.gpu" in ptx
