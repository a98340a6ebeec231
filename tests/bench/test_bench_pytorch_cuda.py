"""The benchmark of networks of PyTorch on GPUs: ours compute the same; what is missing is said."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import bench_pytorch_cuda
import pytest
import tvm
from click.testing import CliRunner
from emulated_cuda import run_emulated
from rich.console import Console
from rich.progress import Progress

from tvm_rammer.backend.cuda.cubin import find_tool
from tvm_rammer.testing.timing_results import Outcome


def test_a_network_that_is_not_there():
    result = CliRunner().invoke(bench_pytorch_cuda.main, ["--models", "lstm"])
    assert result.exit_code == 2
    assert "there is no 'lstm'; known are lstm_8x8x256, experts_16x256, " in result.output


@pytest.mark.skipif(tvm.cuda(0).exist, reason="a GPU is here")
def test_without_a_gpu_it_says_so_in_one_line():
    pytest.importorskip("torch")
    result = CliRunner().invoke(bench_pytorch_cuda.main, [])
    assert result.exit_code == 1
    assert result.output == "Error: no GPU of NVIDIA is here, so nothing can be timed\n"


def error(network: str, folder: Path) -> float:
    """Of this project's library, as its process would compute; PyTorch's stays on the CPU."""
    from bench import pytorch_on_gpu

    from tvm_rammer.testing.reference import relative_error

    library = str(pytorch_on_gpu.library_file(network, folder))
    launch, outputs = pytorch_on_gpu.rammer(network, "sm_90", library)
    launch()
    module, inputs = pytorch_on_gpu._network(network)
    (got,) = outputs()
    return float(relative_error(got, module(*inputs).detach().numpy()))


def test_ours_compute_what_pytorch_does(tmp_path):
    pytest.importorskip("torch")
    assert run_emulated(error, "experts_16x256", tmp_path) < 1e-5


@pytest.mark.skipif(find_tool("nvcc") is None, reason="nvcc is not there")
def test_libraries_are_built_before_and_what_cannot_be_is_left_out(tmp_path):
    pytest.importorskip("torch")
    with Progress(disable=True) as progress:
        names = ["experts_16x256", "lstm_8x8x256"]
        bench_pytorch_cuda.build_libraries(names[:1], "sm_90", tmp_path, 2, progress)
        bench_pytorch_cuda.build_libraries(names[1:], "sm_1", tmp_path, 2, progress)
    assert [path.name for path in tmp_path.iterdir()] == ["experts_16x256.so"]


def test_medians_stand_beside_ours():
    def outcome(name: str, ns: int) -> Outcome:
        return Outcome(name, "ok", blocks_ns=((ns,) * 4,))

    found = {"net": [outcome("eager", 3_000_000), outcome("rammer-graph", 1_500_000)]}
    console = Console(file=StringIO(), width=120)
    console.print(bench_pytorch_cuda.table("H100", found))
    text = console.file.getvalue()
    assert "3.000 (2.00x)" in text and "1.500 (1.00x)" in text
