"""An operator belongs to the heaviest family that its names speak of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from timelines import two_branches

from tvm_rammer.rprogram import RProgram
from tvm_rammer.view import FAMILIES, family_of


def named(kernel: str, operator: str = "", origin: str = "") -> RProgram:
    program = two_branches()
    return replace(
        program,
        kernels=(replace(program.kernels[0], name=kernel, origin=origin), *program.kernels[1:]),
        operators=(replace(program.operators[0], name=operator), *program.operators[1:]),
    )


@pytest.mark.parametrize(
    ("kernel", "family"),
    [
        ("conv2d", "convolution"),
        ("fused_conv2d12_add3_relu", "convolution"),
        ("depthwise_conv2d", "convolution"),
        ("Conv", "convolution"),
        ("matmul", "matmul"),
        ("NT_matmul7", "matmul"),
        ("fused_matmul_add_add_tir_sigmoid_tir_tanh_multiply", "matmul"),
        ("max_pool2d", "pool"),
        ("adaptive_avg_pool2d", "pool"),
        ("softmax", "reduce"),
        ("layer_norm", "reduce"),
        ("max", "reduce"),
        ("mean1", "reduce"),
        ("maximum", "elementwise"),
        ("fused_add_relu", "elementwise"),
        ("fused_squeeze_multiply_add_power_divide", "elementwise"),
        ("transpose", "layout"),
        ("fused_concatenate_transpose", "layout"),
        ("strided_slice", "layout"),
        ("converted", "other"),
        ("body3", "other"),
        ("", "other"),
    ],
)
def test_of_a_kernel_by_its_name(kernel, family):
    assert family_of(named(kernel), 0).name == family


def test_the_kernel_says_more_than_the_operator_and_the_operator_more_than_the_rule():
    assert family_of(named("fused_add_relu", "conv1/relu", "matmul"), 0).name == "elementwise"
    assert family_of(named("body3", "conv1", "matmul"), 0).name == "convolution"
    assert family_of(named("body3", "node7", "matmul"), 0).name == "matmul"


def test_families_can_be_told_apart():
    for attribute in ("name", "colour", "terminal", "glyph"):
        assert len({getattr(family, attribute) for family in FAMILIES}) == len(FAMILIES)
