"""Blocks of networks at real sizes for sm_90: equal to numpy, and no spills."""

from __future__ import annotations

from functools import partial

import pytest
from cuda_models import run_onnx
from emulated_cuda import run_emulated

from tvm_rammer.backend.cuda.cubin import compile_cubin, find_tool
from tvm_rammer.testing.models.inception import inception_v3
from tvm_rammer.testing.models.mlp import mixture_of_experts
from tvm_rammer.testing.models.nasnet import nasnet_cifar
from tvm_rammer.testing.models.recurrent import lstm
from tvm_rammer.testing.models.resnext import resnext29
from tvm_rammer.testing.models.transformer import bert

#: Whole cells and blocks of full width; of Inception v3 all blocks, thinner, on a smaller image.
BLOCKS = {
    "lstm": partial(lstm, 8, 8, 256),
    "inception": partial(inception_v3, 79, 8),
    "resnext": partial(resnext29, 16, 64, False, 1),
    "nasnet": partial(nasnet_cifar, 1, 32, 16),
    "transformer": partial(bert, 1, 12, 768, 32),
    "experts": mixture_of_experts,
}


def compiled_and_run(name: str, form: str) -> tuple[float, int]:
    """The worst error, and the bytes that spill."""
    run = run_onnx(BLOCKS[name](), form=form, policy="wavefront", num_veus=8)
    cubin = compile_cubin(run.source, "sm_90")
    spilled = max(each.spill_stores for each in cubin.functions)
    return max(run.errors.values()), spilled


@pytest.mark.slow
@pytest.mark.skipif(find_tool("nvcc") is None, reason="nvcc is not there")
@pytest.mark.parametrize("form", ["wavefront", "program"])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_networks_compile_and_compute_what_numpy_does(name, form):
    error, spilled = run_emulated(compiled_and_run, name, form)
    assert error < 1e-4
    assert not spilled
