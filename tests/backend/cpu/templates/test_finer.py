"""Finer tilings are compiled where a device would wait for large tiles, and agree with those."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import HOST, TARGET, constant, legalized_func, numbers, run_prim_func
from tvm import relax

from tvm_rammer.backend.cpu.templates.finer import Option, finer_tilings
from tvm_rammer.region.kernel_library import KernelLibrary

OP = relax.op
WIDE = replace(HOST, vector_bytes=64, vector_registers=32)
SMALL = Option("small", 32, 1.2)


def test_one_large_tile_leaves_veus_idle():
    assert finer_tilings(Option("large", 1, 20.0), [SMALL], 2) == ["small"]


def test_many_tiles_are_fine_enough():
    assert finer_tilings(Option("large", 64, 1.0), [Option("small", 128, 0.6)], 2) == []


def test_small_tiles_that_take_too_long_are_left_out():
    assert finer_tilings(Option("large", 8, 1.0), [Option("small", 32, 1.0)], 8) == []


def test_each_device_gets_its_own():
    """Two halves for the two vEUs that there are, and small tiles for a larger device."""
    options = [Option("halves", 2, 10.0), SMALL, Option("quarters", 4, 6.0)]
    assert finer_tilings(Option("large", 1, 20.0), options, 2) == ["halves", "small"]


@settings(max_examples=50, deadline=None)
@given(
    tasks=st.lists(st.tuples(st.integers(1, 200), st.floats(0.1, 10)), min_size=1, max_size=8),
    num_veus=st.integers(1, 64),
)
def test_what_is_compiled_pays(tasks, num_veus):
    """Each is the best of all on the device, or on a larger one."""
    efficient, *options = [Option(number, *task) for number, task in enumerate(tasks)]
    found = finer_tilings(efficient, options, num_veus)
    sizes = {num_veus, max(16, num_veus)}
    assert len(found) <= len(sizes)
    kept = [efficient, *(options[number - 1] for number in found)]
    for option in kept[1:]:
        others = [other for other in kept if other is not option]
        assert any(option.cost(size) < min(other.cost(size) for other in others) for size in sizes)


def convolution(height: int, inner: int, outer: int):
    x, w = numbers((1, height, height, inner)), numbers((outer, 3, 3, inner), seed=1)
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    return legalized_func(
        lambda x: OP.nn.conv2d(x, constant(w), padding=(1, 1, 1, 1), **layouts), x
    ), [x, w]


@pytest.mark.parametrize("seed", range(4))
def test_all_variants_agree(seed):
    """Any stage may be run by any of its kernels: they use the same buffers in the same layout."""
    func, inputs = convolution(14, 64, 32)
    run = run_prim_func(func, inputs, [1], replace(HOST, num_veus=2), seed=seed)
    first, second = run.kernel.stages
    assert len(first.candidates) == 1
    assert len(second.candidates) > 1
    whole = run_prim_func(func, inputs, [1], replace(HOST, num_veus=2), seed=seed + 100)
    assert_close(run.outputs[0], whole.outputs[0])


@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [(1, 256, 256), (1, 257, 64), (2, 1030, 64), (3, 40, 320), (8, 700, 136), (1, 15, 512)],
)
def test_all_cuts_of_a_product_agree(rows, depth, columns):
    """Long sums are taken in blocks."""
    x, w = numbers((rows, depth)), numbers((depth, columns), seed=1)
    func = legalized_func(lambda x: OP.matmul(x, constant(w)), x)
    for seed in range(4):
        run = run_prim_func(func, [x, w], [1], replace(HOST, num_veus=2), seed=seed)
        assert_close(run.outputs[0], (x.astype(np.float64) @ w).astype(np.float32))


def test_a_product_has_more_tasks_for_a_larger_device():
    """Half as many rows at a time are twice as many tasks, which read the weights once more."""
    x, w = numbers((12, 256)), numbers((256, 64), seed=1)
    func = legalized_func(lambda x: OP.matmul(x, constant(w)), x)
    with TARGET:
        kernel = KernelLibrary(replace(WIDE, num_veus=2)).get(func, frozenset([1]))
    tilings = [(c.num_tiles, c.tiling) for c in kernel.stages[0].candidates]
    assert tilings == [(4, "6 x 2 vectors of 16"), (8, "3 x 2 vectors of 16")]


def test_a_single_row_is_cut_as_finely_as_a_large_device_likes():
    """Reading weights takes the time: small tiles take as long together, if their sums are chains.

    A run must add in the same order on every device, so that the large tile has these chains too.
    """
    x, w = numbers((1, 256)), numbers((256, 256), seed=1)
    func = legalized_func(lambda x: OP.matmul(x, constant(w)), x)
    with TARGET:
        kernel = KernelLibrary(replace(WIDE, num_veus=2)).get(func, frozenset([1]))
    candidates = kernel.stages[0].candidates
    assert [(c.num_tiles, c.tiling) for c in candidates] == [
        (4, "1 x 4 vectors of 16 in 2 chains"),
        (16, "1 x 1 vectors of 16 in 2 chains"),
    ]


def test_a_single_row_has_the_same_bits_on_any_device():
    x, w = numbers((1, 300)), numbers((300, 256), seed=1)
    func = legalized_func(lambda x: OP.matmul(x, constant(w)), x)
    outputs = {
        run_prim_func(func, [x, w], [1], replace(WIDE, num_veus=n), seed=n).outputs[0].tobytes()
        for n in (1, 2, 5, 16, 64)
    }
    assert len(outputs) == 1


def test_an_image_has_the_same_bits_on_any_device():
    x, w = numbers((1, 13, 13, 480)), numbers((16, 1, 1, 480), seed=1)
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    func = legalized_func(lambda x: OP.nn.conv2d(x, constant(w), **layouts), x)
    outputs = {
        run_prim_func(func, [x, w], [1], replace(WIDE, num_veus=n), seed=n).outputs[0].tobytes()
        for n in (2, 3, 16, 17, 64)
    }
    assert len(outputs) == 1


def test_candidates_have_smaller_and_more_tiles():
    func, _ = convolution(14, 128, 32)
    with TARGET:
        kernel = KernelLibrary(replace(WIDE, num_veus=2)).get(func, frozenset([1]))
    tilings = [(c.num_tiles, c.tiling.split(", ", 1)[1]) for c in kernel.stages[1].candidates]
    assert tilings == [
        (1, "blocks of 16, 8 x 2 vectors of 16"),
        (2, "blocks of 8, 8 x 2 vectors of 16"),
        (8, "blocks of 4, 4 x 1 vectors of 16"),
    ]
    variants = list(kernel.scheduled.variants())
    assert all(variant.packings == kernel.packings for variant in variants)


def test_the_products_of_a_convolution_are_cut_for_a_very_large_device():
    """On 64 vEUs sixteen tasks take as long as on sixteen."""
    func, _ = convolution(14, 64, 256)
    with TARGET:
        kernel = KernelLibrary(replace(WIDE, num_veus=2)).get(func, frozenset([1]))
    assert [candidate.num_tiles for candidate in kernel.stages[1].candidates] == [8, 16, 64]


@pytest.mark.parametrize(
    ("num_veus", "groups", "tiles"),
    [(1, 1, [13]), (2, 1, [13]), (3, 1, [13, 39]), (16, 1, [13, 39]), (16, 16, [26])],
)
def test_images_are_cut_as_finely_as_a_large_device_likes_where_there_are_some_veus(
    num_veus, groups, tiles
):
    """13 rows of pixels leave most of 64 vEUs waiting; two vEUs compile nothing for those.

    Neither do many for a depthwise convolution.
    """
    depth = 480 if groups == 1 else 1
    x, w = numbers((1, 13, 13, depth * groups)), numbers((16, 1, 1, depth), seed=1)
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "groups": groups}
    func = legalized_func(lambda x: OP.nn.conv2d(x, constant(w), **layouts), x)
    with TARGET:
        kernel = KernelLibrary(replace(WIDE, num_veus=num_veus)).get(func, frozenset([1]))
    assert [candidate.num_tiles for candidate in kernel.stages[0].candidates] == tiles


@pytest.mark.parametrize(("num_veus", "tasks"), [(8, 70), (16, 140)])
def test_a_large_device_gets_more_tasks(num_veus, tasks):
    """70 rows of pixels would leave 16 vEUs waiting for the last six; each row is two tiles."""
    x, w = numbers((1, 70, 14, 16)), numbers((32, 1, 1, 16), seed=1)
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    func = legalized_func(lambda x: OP.nn.conv2d(x, constant(w), **layouts), x)
    run = run_prim_func(func, [x, w], [1], replace(WIDE, num_veus=num_veus))
    assert_close(run.outputs[0], np.einsum("nyxi,oi->nyxo", x, w[:, 0, 0]))
    assert run.tiles == [tasks]
