"""The order of a convolution's tasks: vEUs that divide them write rows of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernel_runs import HOST, TARGET, legalized_func, numbers
from tvm import relax

from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.backend.cpu.templates.winograd.channels import Channels
from tvm_rammer.backend.cpu.templates.winograd.choice import ConvolutionSize, choose_tiling
from tvm_rammer.kernel.bodies import compile_bodies
from tvm_rammer.region.kernel_library import KernelLibrary

PIXELS, WEIGHT = numbers((1, 16, 12, 40)), numbers((256, 1, 1, 40), seed=1)


def first_half(l2_bytes: int, build: Any, *inputs: np.ndarray) -> np.ndarray:
    """Which elements of the result the first half of a kernel's tiles write."""
    func = legalized_func(build, *inputs)
    library = KernelLibrary(replace(HOST, l2_bytes=l2_bytes))
    with TARGET:
        kernel = library.get(func, frozenset([1]))
    (stage,) = kernel.stages
    packings = dict(kernel.packings)
    given = [packings[k](a) if k in packings else a for k, a in enumerate(inputs)]
    shape = tuple(int(extent) for extent in func.params[-1].shape)
    arrays = [*given, np.full(shape, np.nan, "float32")]
    body = compile_bodies(library.bodies, TARGET, lowering_pipeline())[stage.kernel.name]
    body(0, stage.kernel.num_tiles // 2, [arrays[number] for number in stage.arguments])
    return np.isfinite(arrays[-1])


def one_by_one(x: Any, weight: Any) -> Any:
    return relax.op.nn.conv2d(x, weight, data_layout="NHWC", kernel_layout="OHWI")


def test_rows_of_its_own_for_each_veu_while_the_weights_stay_in_a_cache():
    written = first_half(2 * WEIGHT.nbytes, one_by_one, PIXELS, WEIGHT)
    assert written[:, :8].all()
    assert not written[:, 8:].any()


def test_columns_of_its_own_for_each_veu_if_the_weights_are_too_large_to_be_read_for_each_row():
    written = first_half(2 * WEIGHT.nbytes - 1, one_by_one, PIXELS, WEIGHT)
    assert written[..., 0].all()
    assert not written[..., -1].any()


@pytest.mark.parametrize("l2_bytes", [1 << 20, 1])
def test_products_of_a_batch_have_weights_of_their_own(l2_bytes):
    """The first half of the tiles computes the first half of the products."""
    left, right = numbers((4, 8, 16)), numbers((4, 16, 32), seed=1)
    written = first_half(l2_bytes, relax.op.matmul, left, right)
    assert written[:2].all()
    assert not written[2:].any()


@pytest.mark.parametrize(
    ("size", "rows_first"),
    [
        # DenseNet: 0.6 MB of weights and 1 MB of transformed inputs.
        (ConvolutionSize(1, 28, 28, Channels(128, 32)), True),
        # SqueezeNet: 2.4 MB of weights for 0.15 MB.
        (ConvolutionSize(1, 13, 13, Channels(64, 256)), False),
        # VGG-19: 2.4 MB that would be read for every block of a large image.
        (ConvolutionSize(1, 56, 56, Channels(128, 256)), False),
    ],
)
def test_staged_winograd_is_divided_by_what_is_cheaper_to_share(size, rows_first):
    assert choose_tiling(size, HOST, 1.0).rows_first is rows_first
