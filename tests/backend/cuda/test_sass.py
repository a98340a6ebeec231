"""Instructions are counted from machine code by the loops around them."""

from __future__ import annotations

import pytest

from tvm_rammer.backend.cuda.cubin import Cubin, compile_cubin, find_tool
from tvm_rammer.backend.cuda.operation_counts import Operations
from tvm_rammer.backend.cuda.sass import Issued, issued_for, machine_code, parse_sass
from tvm_rammer.errors import DeviceError

TEXT = """	.target	sm_90

//--------------------- .nv.info                  --------------------------
	.section	.nv.info,"",@"SHT_CUDA_INFO"

//--------------------- .text.k                   --------------------------
	.section	.text.k,"ax",@progbits
k:
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   FADD R0, R0, R1 ;
.L_x_1:
        /*0020*/                   LDS R2, [R3] ;
        /*0030*/                   FFMA R0, R2, R4, R0 ;
.L_x_2:
        /*0040*/                   FFMA R0, R2, R4, R0 ;
        /*0050*/              @P1  BRA `(.L_x_2) ;
        /*0060*/              @!P0 BRA `(.L_x_1) ;
        /*0070*/                   EXIT ;
.L_x_0:
        /*0080*/                   BRA `(.L_x_0);
        /*0090*/                   NOP;
.L_x_12:
"""


def test_loops_are_found_by_their_jumps():
    (code,) = parse_sass(TEXT)
    assert code.name == "k"
    assert code.depths == (Issued(3, 1), Issued(3, 1), Issued(2, 1))


def test_loops_run_as_often_as_the_arithmetic_needs():
    (code,) = parse_sass(TEXT)
    # Once for 2 warps: 3 instructions, one of arithmetic; then 98 by loops that need 2.5 for each.
    work = Operations(float32=32 * 100)
    assert issued_for(code, work, 2, 0) == 2 * 3 + 98 * 2.5
    # With a loop around the tile, what is in it alone runs once as well.
    assert issued_for(code, work, 2, 1) == 2 * 6 + 96 * 2


SOURCE = """
extern "C" __global__ void product(const float* x, float* y, int n) {
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < n; ++i) sum += x[i] * x[i + 1];
  y[threadIdx.x] = sum;
}
"""
needs_tools = pytest.mark.skipif(
    find_tool("nvcc") is None or find_tool("nvdisasm") is None, reason="needs nvcc and nvdisasm"
)


@needs_tools
def test_compiled_code_is_read():
    code = machine_code(compile_cubin(SOURCE, "sm_90"))["product"]
    assert len(code.depths) == 2
    assert code.depths[1].arithmetic == 1 and 3 < code.depths[1].all < 20


def test_without_the_tool_an_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr("tvm_rammer.backend.cuda.sass.find_tool", lambda name: None)
    with pytest.raises(DeviceError) as error:
        machine_code(Cubin("sm_90", b"", ()))
    assert str(error.value) == (
        "nvdisasm is not there, which shows the machine code of GPUs: install CUDA's tools or "
        "the package nvidia-cuda-nvdisasm"
    )
