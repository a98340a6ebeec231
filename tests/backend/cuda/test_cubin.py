"""nvcc compiles sources without a GPU, and says what they take."""

from __future__ import annotations

import shutil

import pytest

from tvm_rammer.backend.cuda.cubin import check_nvcc, compile_cubin, find_tool, parse_resources
from tvm_rammer.errors import DeviceError, ModelError

needs_nvcc = pytest.mark.skipif(find_tool("nvcc") is None, reason="needs CUDA's compiler, nvcc")

SOURCE = """
extern "C" __device__ __noinline__ float taken(const float* x, int n) {
  float a[40], sum = 0;
  for (int i = 0; i < 40; ++i) a[i] = x[i * n];
  for (int i = 0; i < n; ++i) sum += a[i * 7 % 40];
  return sum;
}
extern "C" __global__ void large(float* x, int n) {
  __shared__ float near[100];
  near[threadIdx.x % 100] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = taken(x + 1, n) + near[n];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* x) {
  float a[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) a[i] = x[threadIdx.x * 64 + i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) x[threadIdx.x * 64 + i] = a[i] * a[63 - i] + a[(i * 7) % 64];
}
"""


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_source_becomes_machine_code(arch):
    cubin = compile_cubin(SOURCE, arch)
    assert cubin.arch == arch and cubin.image.startswith(b"\x7fELF")
    assert sorted(cubin.kernels) == ["large", "spilling"]
    large, spilling = cubin.kernels["large"], cubin.kernels["spilling"]
    assert large.stack_bytes == 160 and 400 <= large.shared_bytes <= 1424
    assert 16 <= large.registers <= 64 and not large.spill_stores
    assert spilling.registers <= 32 and spilling.spill_stores and spilling.spill_loads
    assert cubin.spilling == ["spilling"]


@needs_nvcc
def test_an_architecture_that_nvcc_does_not_know_is_an_error():
    with pytest.raises(DeviceError) as error:
        compile_cubin(SOURCE, "sm_52000")
    text = str(error.value)
    assert text.startswith("nvcc does not compile for sm_52000: it knows sm_")
    assert text.endswith("; older and newer GPUs need another version of CUDA")


def test_what_nvcc_knows_is_asked_before_anything_is_compiled(monkeypatch, tmp_path):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho sm_80\necho sm_90\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr("tvm_rammer.backend.cuda.cubin.find_tool", lambda name: nvcc)
    check_nvcc("sm_80")
    check_nvcc("sm_90a")
    with pytest.raises(DeviceError) as error:
        check_nvcc("sm_70")
    assert str(error.value) == (
        "nvcc does not compile for sm_70: it knows sm_80, sm_90; older and newer GPUs need another "
        "version of CUDA"
    )
    monkeypatch.setattr("tvm_rammer.backend.cuda.cubin.find_tool", lambda name: None)
    check_nvcc("sm_70")


@needs_nvcc
def test_a_source_with_an_error_is_one():
    with pytest.raises(ModelError) as error:
        compile_cubin("__global__ void k() { x = 1; }", "sm_90")
    assert str(error.value) == (
        'nvcc refuses the kernels for sm_90: kernels.cu(1): error: identifier "x" is undefined'
    )


def test_without_nvcc_an_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    with pytest.raises(DeviceError) as error:
        compile_cubin(SOURCE, "sm_90")
    assert str(error.value) == (
        "nvcc is not there, which compiles kernels for GPUs: install CUDA's compiler, and put "
        "it on the PATH or name its folder in CUDA_HOME"
    )


def test_tools_are_found_below_cuda_home(monkeypatch, tmp_path):
    tool = tmp_path / "bin" / "a-tool-of-cuda"
    tool.parent.mkdir()
    tool.touch(mode=0o755)
    assert find_tool(tool.name) is None
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_tool(tool.name) == tool


def test_what_ptxas_says_is_read():
    text = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
    160 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 44 registers, used 1 barriers, 160 bytes cumulative stack size, 400 bytes smem
ptxas info    : Compile time = 20.146 ms
ptxas info    : Function properties for body
    0 bytes stack frame, 12 bytes spill stores, 0 bytes spill loads
"""
    kernel, body = parse_resources(text)
    assert (kernel.name, kernel.kernel, kernel.registers, kernel.shared_bytes) == (
        "k",
        True,
        44,
        400,
    )
    assert (kernel.stack_bytes, kernel.spill_stores, kernel.spill_loads) == (160, 4, 8)
    assert (body.name, body.kernel, body.registers, body.spill_stores) == ("body", False, 0, 12)
