"""The benchmark on GPUs: its contenders compute the same, and without a GPU it says so."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import bench_cuda
import numpy as np
import onnx
import pytest
import tvm
from bench import cuda_contenders
from bench.cuda_contenders import GPU_CONTENDERS, gpu_contender
from click.testing import CliRunner
from emulated_cuda import run_emulated
from rich.console import Console

from tvm_rammer.testing.models import get_model
from tvm_rammer.testing.reference import random_inputs, relative_error
from tvm_rammer.testing.timing_results import Outcome

#: TVM calls the driver for CUDA graphs, and PyTorch always.
EMULATED = ("tvm", "per-op", "wavefront", "persistent")


@pytest.mark.skipif(tvm.cuda(0).exist, reason="a GPU is here")
def test_without_a_gpu_it_says_so_in_one_line():
    result = CliRunner().invoke(bench_cuda.main, [])
    assert result.exit_code == 1
    assert result.output == "Error: no GPU of NVIDIA is here, so nothing can be timed\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--models", "lstm"], "Invalid value for --models: there is no 'lstm'"),
        (["--contenders", "torches"], "Invalid value for --contenders: there is no 'torches'"),
    ],
)
def test_what_is_not_there(options, message):
    result = CliRunner().invoke(bench_cuda.main, options)
    assert result.exit_code == 2
    assert message in result.output


def outputs_of(name: str, model: Path, inputs: Path) -> list[np.ndarray]:
    """What a contender computes, as its process would ask."""
    made = gpu_contender(name, model, inputs, "sm_90")
    function = getattr(cuda_contenders, made.function.partition(":")[2])
    run, outputs = function(**made.arguments)
    run()
    run()
    return outputs()


def test_contenders_compute_the_same(tmp_path):
    model = get_model("mlp").tiny()
    saved, inputs = tmp_path / "model.onnx", tmp_path / "inputs.npz"
    onnx.save(model, saved)
    np.savez(inputs, **random_inputs(model))
    found = [run_emulated(outputs_of, name, saved, inputs) for name in EMULATED]
    for other in found[1:]:
        for got, want in zip(other, found[0], strict=True):
            assert relative_error(got, want) < 1e-5


def test_the_table_has_medians_and_gains():
    def outcome(name: str, ns: int) -> Outcome:
        return Outcome(name, "ok", blocks_ns=((ns, ns, ns),))

    names = ["per-op", "persistent", "torch"]
    missing = Outcome("torch", "missing", "No module named 'torch'")
    found = {"net": [outcome("per-op", 3_000_000), outcome("persistent", 1_500_000), missing]}
    console = Console(width=120, file=StringIO())
    console.print(bench_cuda.table("H100", names, found))
    text = console.file.getvalue()
    assert "3.000 (1.00x)" in text and "1.500 (2.00x)" in text and "missing" in text
    assert bench_cuda.reasons(found) == ["net, torch: missing: No module named 'torch'"]
    assert set(names) <= set(GPU_CONTENDERS)
