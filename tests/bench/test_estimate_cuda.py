"""Estimates for GPUs: fewer launches are faster, and the page says that nothing was measured."""

from __future__ import annotations

import json

import estimate_cuda
import pytest
from bench.cuda_estimate import CudaEstimate, estimate, page, with_registers
from click.testing import CliRunner

from tvm_rammer.backend.cuda.cubin import Cubin, FunctionResources, find_tool, known_architectures
from tvm_rammer.backend.cuda.occupancy import blocks_per_sm
from tvm_rammer.errors import DeviceError
from tvm_rammer.testing.models import get_model


@pytest.mark.parametrize("arch", ["sm_70", "sm_90"])
def test_fewer_launches_of_small_operators_are_faster(arch):
    found = estimate(get_model("lstm_8x8x256").tiny(), arch)
    assert found.operators > 20
    assert found.per_op > 2 * found.wavefront > 2 * found.persistent > 0


def test_the_page_says_that_nothing_was_measured():
    text = page({"nasnet_cifar": {"V100": CudaEstimate(900, 4e-3, 2e-3, 1e-3)}})
    assert text.startswith("Nothing on this page was measured on a GPU")
    row = "| nasnet_cifar | 900 | V100 | 4.000 | 2.000 (2.0x) | 1.000 (4.0x) "
    row += "| 2.97, 1.74 (1.7x) |  |  |"
    assert row in text.splitlines()
    assert "over what the authors measured of theirs: nasnet_cifar 1.3.\n" in text


def test_the_page_has_what_ptxas_reports():
    known = CudaEstimate(900, 4e-3, 2e-3, 1e-3, 72, 8, 3, 2, "sm_80")
    row = (
        "| mlp | 900 | A100 | 4.000 | 2.000 (2.0x) | 1.000 (4.0x) |  | 72 (8 B spilled) | 2 of 3 |"
    )
    assert row in page({"mlp": {"A100": known}}).splitlines()


@pytest.mark.skipif(find_tool("nvcc") is None, reason="nvcc is not there")
def test_registers_are_those_of_the_compiled_kernel():
    model = get_model("lstm_8x8x256").tiny()
    found = with_registers(CudaEstimate(40, 3e-3, 2e-3, 1e-3), model, "sm_90")
    assert found.registers and 16 <= found.registers <= 128
    assert (found.spilled, found.kept, found.code) == (0, 2, "sm_90")
    assert 2 <= found.room <= blocks_per_sm("sm_90", 256, found.registers, 0)
    # What this version of CUDA does not compile for is taken from the oldest that it does.
    assert with_registers(found, model, "sm_70").code in known_architectures()


def test_a_plan_that_keeps_more_blocks_than_there_is_room_for_is_an_error(monkeypatch):
    monkeypatch.setattr("bench.cuda_estimate.blocks_per_sm", lambda *_: 1)
    monkeypatch.setattr("bench.cuda_estimate.kernel_sources", lambda *_: [""])
    kernel = FunctionResources("k", True, 255)
    monkeypatch.setattr(
        "bench.cuda_estimate.compile_cubin", lambda _, arch, *__: Cubin(arch, b"", (kernel,))
    )
    with pytest.raises(DeviceError) as error:
        with_registers(CudaEstimate(1, 1, 1, 1), get_model("mlp").tiny(), "sm_90")
    assert str(error.value) == (
        "an SM of sm_90 has room for 1 blocks of the kernel, and the plan keeps 2"
    )


def test_what_is_in_the_file_is_not_simulated_again(tmp_path):
    saved = tmp_path / "estimate.json"
    known = {"operators": 7, "per_op": 3e-3, "wavefront": 2e-3, "persistent": 1e-3}
    known |= {"registers": 40, "spilled": 0, "room": 6, "kept": 2, "code": "sm_75"}
    saved.write_text(json.dumps({"mlp": {"V100": known}}))
    options = ["--models", "mlp", "--gpus", "V100,A100", "--quick", "--json", str(saved)]
    result = CliRunner().invoke(estimate_cuda.main, options)
    assert result.exit_code == 0, result.output
    found = json.loads(saved.read_text())["mlp"]
    assert found["V100"] == known and found["A100"]["operators"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpus", "K80"], "there is no 'K80': choose of V100, A100, H100"),
        (["--models", "lstm_8x8x25"], "there is no model 'lstm_8x8x25'; did you mean 'lstm_8x8x2"),
    ],
)
def test_what_is_not_there(options, message):
    result = CliRunner().invoke(estimate_cuda.main, options)
    assert result.exit_code in (1, 2) and message in result.output
