"""Products that are padded to whole tiles, on GPUs: padding is written over nothing."""

from __future__ import annotations

import pytest
from cuda_models import TARGET, outputs
from emulated_cuda import run_emulated
from tvm import te, tirx, topi

import tvm_rammer
from tvm_rammer.backend.cuda.block_tilings import leaves_out_results, moves_what_is_padded
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.reference import random_inputs, relative_error


def error(
    shape: tuple[int, ...], channels: int, kernel: int, num_veus: int, strides: tuple[int, ...]
) -> float:
    """Of a transposed convolution: a product of phases, each of which is every other result."""
    graph = GraphBuilder("transposed")
    x = graph.input("x", shape)
    size = len(shape) - 2
    weights = graph.weight((shape[1], channels, *[kernel] * size), 0.3)
    pads = [(kernel - 2) // 2] * 2 * size
    bias = graph.weight((channels,), 1.0)
    y = graph.op("ConvTranspose", x, weights, bias, strides=list(strides), pads=pads)
    graph.output("y", graph.op("Relu", y))
    graph.output("z", graph.op("Tanh", x))
    model = graph.build()
    inputs = random_inputs(model)
    library = tvm_rammer.build(model, TARGET, policy="wavefront", num_veus=num_veus)
    got, expected = outputs(library, inputs), run_onnxruntime(model, inputs)
    return max(relative_error(*each) for each in zip(got, expected, strict=True))


@pytest.mark.parametrize(
    ("shape", "channels", "kernel", "num_veus", "strides"),
    [
        # Two phases of 16 channels are half a tile of dlight's.
        ((1, 32, 2560), 16, 4, 4, (2,)),
        ((1, 32, 640), 16, 4, 1, (2,)),
        ((1, 32, 600), 64, 4, 4, (2,)),
        # A thread for each result would be more blocks than so few vEUs want, and no other fits.
        ((1, 32, 32, 32), 16, 2, 4, (2, 2)),
        # The first axis of phases has one place, and TVM drops it.
        ((2, 2, 4, 17), 8, 4, 3, (1, 2)),
    ],
)
def test_transposed_convolutions_are_onnx_runtimes(shape, channels, kernel, num_veus, strides):
    assert run_emulated(error, shape, channels, kernel, num_veus, strides) < 1e-5


def product(columns: int, after: str) -> tirx.PrimFunc:
    a, b = te.placeholder((40, 64), "float32"), te.placeholder((64, columns), "float32")
    result = topi.nn.matmul(a, b)
    kinds = {
        "relu": topi.nn.relu,
        "shape": lambda x: topi.reshape(x, (40, columns // 2, 2)),
        "phases": lambda x: te.compute(
            (40 * columns,), lambda i: x[i // columns, i % columns], name="phases"
        ),
    }
    return te.create_prim_func([a, b, kinds[after](result)])


@pytest.mark.parametrize(
    ("columns", "after", "moves"),
    [(48, "relu", False), (48, "shape", False), (48, "phases", True), (128, "phases", False)],
)
def test_a_remainder_of_what_is_padded_is_known(columns, after, moves):
    assert moves_what_is_padded(product(columns, after)) is moves


def of_one_phase() -> float:
    """Of a transposed convolution whose result is the first of three phases alone."""
    graph = GraphBuilder("one_phase")
    x = graph.input("x", (1, 1, 1, 1))
    weights = graph.weight((1, 8, 5, 4), 0.3)
    options = {"strides": [3, 2], "pads": [2, 1, 2, 1]}
    graph.output("y", graph.op("ConvTranspose", x, weights, **options))
    graph.output("z", graph.op("Tanh", x))
    model = graph.build()
    inputs = random_inputs(model)
    library = tvm_rammer.build(model, TARGET, policy="wavefront", num_veus=1)
    got, expected = outputs(library, inputs), run_onnxruntime(model, inputs)
    return max(relative_error(*each) for each in zip(got, expected, strict=True))


def test_what_reads_a_part_of_a_sum_is_launched_behind_it():
    assert run_emulated(of_one_phase) < 1e-5


def total(rows: int, place: int | None) -> tirx.PrimFunc:
    x = te.placeholder((rows, 64), "float32")
    sums = topi.sum(x, 1)
    after = topi.tanh(sums) if place is None else te.compute((4,), lambda i: sums[place] + i, "one")
    return te.create_prim_func([x, after])


@pytest.mark.parametrize(
    ("rows", "place", "leaves_out"), [(5, 2, True), (5, None, False), (1, 0, False)]
)
def test_a_part_of_a_sum_is_known(rows, place, leaves_out):
    assert leaves_out_results(total(rows, place)) is leaves_out
