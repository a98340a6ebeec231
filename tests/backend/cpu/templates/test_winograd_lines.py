"""Convolutions filtered along one axis agree with numpy, and only long filters are taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from close import assert_close
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from kernel_runs import (
    HOST,
    VDEVICES,
    Run,
    constant,
    legalized_func,
    numbers,
    run_prim_func,
    run_relax,
)
from tvm import relax, tirx
from winograd_runs import conv2d, convolution, convolve, run_packed

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile
from tvm_rammer.backend.cpu.templates.winograd import line_choice as choice
from tvm_rammer.backend.cpu.templates.winograd.accuracy import line_error
from tvm_rammer.backend.cpu.templates.winograd.line_kernel import line_function
from tvm_rammer.backend.cpu.templates.winograd.line_rule import WinogradLines
from tvm_rammer.backend.cpu.templates.winograd.line_tiling import Lines, LineTiling
from tvm_rammer.backend.cpu.templates.winograd.matrices import LINES
from tvm_rammer.region.kernel_library import KernelLibrary

OP = relax.op
#: Large enough to be worthwhile.
X, W = numbers((1, 24, 24, 32)), numbers((32, 5, 5, 32), seed=1)
NAME = WinogradLines().name


def run_tiling(func: tirx.PrimFunc, inputs: list[np.ndarray], tiling: LineTiling) -> Run:
    """Run a convolution, whose weights are parameter 1, in a given tiling."""
    conv = convolution(func)
    return run_packed(line_function(conv, tiling), inputs, tiling.packing(conv.channels))


@settings(max_examples=12)
@given(
    axis=st.sampled_from([1, 2]),
    size=st.tuples(st.integers(1, 2), st.integers(1, 7), st.integers(1, 20)),
    taps=st.tuples(st.integers(1, 3), st.integers(1, 8)),
    stride=st.integers(1, 3),
    padding=st.tuples(*[st.integers(0, 3)] * 4),
    inner=st.integers(1, 2),
    outer=st.integers(1, 4),
    groups=st.sampled_from([1, 2, 4]),
    lanes=st.sampled_from([4, 8, 16]),
    register=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    together=st.integers(1, 4),
    short=st.booleans(),
)
@example(2, (1, 5, 13), (3, 7), 2, (1, 3, 1, 3), 1, 2, 1, 16, (2, 2), 2, False)
@example(1, (2, 3, 20), (1, 7), 1, (3, 0, 3, 0), 2, 2, 1, 8, (4, 1), 3, False)
@example(2, (1, 6, 11), (5, 5), 2, (2, 2, 2, 2), 1, 2, 1, 16, (2, 2), 2, True)
@example(2, (1, 5, 13), (3, 7), 2, (1, 3, 1, 3), 1, 2, 4, 16, (2, 2), 2, False)
@example(1, (2, 6, 11), (5, 5), 1, (2, 2, 2, 2), 2, 2, 2, 8, (2, 2), 2, True)
def test_every_tiling(
    axis, size, taps, stride, padding, inner, outer, groups, lanes, register, together, short
):
    """Ragged lines, tiles and tasks; padding beyond the tile; strides across; both axes; groups."""
    batch, across, along = size
    shape = (batch, across, along) if axis == 2 else (batch, along, across)
    taps = taps if axis == 2 else taps[::-1]
    strides = (stride, 1) if axis == 2 else (1, stride)
    padded = [n + padding[k] + padding[k + 2] for k, n in enumerate(shape[1:])]
    assume(all(n >= tap for n, tap in zip(padded, taps, strict=True)))
    assume(outer % register[1] == 0)
    x = numbers((*shape, inner * lanes))
    w = numbers((groups * outer * lanes, *taps, inner * lanes // groups), seed=1)
    attrs = {"strides": strides, "padding": padding, "groups": groups}
    func = legalized_func(lambda x: conv2d(x, w, **attrs), x)
    transform = LINES[short and taps[axis - 1] <= 5]
    tiling = LineTiling(transform, axis, lanes, RegisterTile(*register, lanes), together)
    run = run_tiling(func, [x, w], tiling)
    assert_close(run.outputs[0], convolve(x, w, **attrs), 2e-5)
    assert len(run.kernel.stages) == 2


@pytest.mark.parametrize(("taps", "axis"), [((1, 7), 2), ((7, 1), 1), ((5, 5), 2), ((3, 11), 2)])
@pytest.mark.parametrize("vdevice", VDEVICES, ids=lambda vdevice: str(vdevice.vector_bytes))
def test_the_tiling_that_is_chosen(taps, axis, vdevice):
    weight = numbers((32, *taps, 32), seed=1)
    padding = [taps[0] // 2, taps[1] // 2] * 2
    (out,), origins = run_relax(lambda x: conv2d(x, weight, padding=padding), X, vdevice=vdevice)
    assert_close(out, convolve(X, weight, padding=padding), 2e-5)
    assert origins == [NAME]


@pytest.mark.parametrize(("taps", "groups"), [((5, 5), 2), ((5, 5), 4), ((7, 7), 2)])
def test_groups_of_channels(taps, groups):
    """One group of taps and several."""
    x, weight = numbers((1, 28, 28, 64)), numbers((64, *taps, 64 // groups), seed=1)
    (out,), origins = run_relax(lambda x: conv2d(x, weight, groups=groups), x)
    assert_close(out, convolve(x, weight, groups=groups), 2e-5)
    assert origins == [NAME]


@pytest.mark.parametrize(
    ("inputs", "outputs", "groups"), [(12, 12, 1), (20, 28, 1), (36, 20, 1), (24, 40, 2)]
)
@pytest.mark.parametrize("vdevice", VDEVICES, ids=lambda vdevice: str(vdevice.vector_bytes))
def test_vectors_overlap_where_they_do_not_divide_the_channels(
    inputs, outputs, groups, vdevice, monkeypatch
):
    monkeypatch.setattr(choice, "WORTHWHILE", 9.0)
    x, weight = numbers((1, 9, 20, inputs)), numbers((outputs, 3, 7, inputs // groups), seed=1)
    (out,), origins = run_relax(lambda x: conv2d(x, weight, groups=groups), x, vdevice=vdevice)
    assert_close(out, convolve(x, weight, groups=groups), 2e-5)
    assert origins == [NAME]


@pytest.mark.parametrize(("taps", "transform"), [((5, 5), "F(4,5)"), ((1, 9), "F(6,3)")])
def test_filters_that_one_group_of_taps_covers_get_its_transform(taps, transform):
    func = legalized_func(lambda x: conv2d(x, numbers((32, *taps, 32))), X)
    made = WinogradLines().apply(func, frozenset([1]), VDEVICES[0])
    assert made is not None
    assert made.tiling.startswith(transform)


def test_a_stride_keeps_the_axis_from_being_transformed():
    weight = numbers((32, 7, 7, 32), seed=1)
    for axis, strides in ((2, (2, 1)), (1, (1, 2))):
        func = legalized_func(lambda x, s=strides: conv2d(x, weight, strides=s), X)
        run = run_prim_func(func, [X, weight], [1], VDEVICES[0])
        assert run.origin == NAME
        assert ("rows" if axis == 2 else "columns") in run.kernel.scheduled.tiling
        assert_close(run.outputs[0], convolve(X, weight, strides=strides), 2e-5)


def test_avx2_code():
    target = resolve_target({"kind": "llvm", "mcpu": "core-avx2"})
    weight = numbers((32, 5, 5, 32), seed=1)
    func = legalized_func(lambda x: conv2d(x, weight), X)
    run = run_prim_func(func, [X, weight], [1], vdevice_for(target))
    assert_close(run.outputs[0], convolve(X, weight), 2e-5)
    assert run.origin == NAME
    assert run.kernel.scheduled.tiling.endswith("vectors of 8")


def test_epilogue():
    """Padding, convolution, bias, residual and an activation."""
    weight, bias, residual = (
        numbers((32, 1, 7, 32), seed=1),
        numbers((32,), seed=2),
        numbers(X.shape),
    )

    def block(x, residual):
        total = OP.add(OP.add(conv2d(x, weight, padding=(0, 3, 0, 3)), constant(bias)), residual)
        return OP.nn.relu(total)

    (out,), origins = run_relax(block, X, residual)
    want = convolve(X, weight, padding=(0, 3, 0, 3)) + bias + residual
    assert_close(out, np.maximum(want, 0), 2e-5)
    assert origins == [NAME]


def test_slice_of_the_results():
    """Behind a slice only some lines, and some places of them, are computed."""
    weight = numbers((32, 5, 5, 32), seed=1)

    def block(x):
        return relax.op.strided_slice(conv2d(x, weight), [1, 2], (0, 0), (13, 17))

    (out,), origins = run_relax(block, X)
    assert_close(out, convolve(X, weight)[:, :13, :17], 2e-5)
    assert origins == [NAME]


def test_finer_tilings_have_the_same_weights():
    weight = numbers((64, 5, 5, 32), seed=1)
    func = legalized_func(lambda x: conv2d(x, weight), X)
    made = WinogradLines().apply(func, frozenset([1]), replace(HOST, num_veus=16))
    assert made is not None
    first, *others = made.variants()
    assert others
    assert all(other.packings == first.packings for other in others)


@pytest.mark.parametrize("transform", LINES, ids=lambda t: f"{t.outputs},{t.taps}")
def test_the_error_is_what_was_tried_out(transform):
    """Of one kernel, within a factor of the other data's luck."""
    x, w = numbers((1, 4, 40, 64)), numbers((32, 1, 5, 64), seed=1)
    func = legalized_func(lambda x: conv2d(x, w), x)
    out = run_tiling(func, [x, w], LineTiling(transform, 2, 16, RegisterTile(4, 2, 16), 2))
    want = convolve(x, w)
    error = np.abs(out.outputs[0] - want).max() / np.sqrt(np.mean(want**2))
    steps = Lines.of(convolution(func), transform, 2).steps
    assert 0.2 < error / line_error(transform, steps) < 5


def test_the_tolerance_decides():
    func = legalized_func(lambda x: conv2d(x, numbers((32, 1, 7, 32))), X)

    def taken(tolerance: float) -> bool:
        return WinogradLines(tolerance).apply(func, frozenset([1]), VDEVICES[0]) is not None

    error = line_error(LINES[0], 3 * 32)
    assert [taken(t) for t in (2 * error, error / 2, 0)] == [True, False, False]


def test_taps_across_lines_count_for_the_tolerance():
    func = legalized_func(lambda x: conv2d(x, numbers((32, 5, 5, 32))), X)
    one, all_of_them = line_error(LINES[1], 32), line_error(LINES[1], 5 * 32)
    assert one < all_of_them
    assert WinogradLines((one + all_of_them) / 2).apply(func, frozenset([1]), VDEVICES[0]) is None
    assert WinogradLines(2 * all_of_them).apply(func, frozenset([1]), VDEVICES[0]) is not None


def test_transformed_inputs_that_are_too_large_are_declined(monkeypatch):
    func = legalized_func(lambda x: conv2d(x, W), X)
    monkeypatch.setattr(choice, "MAX_SCRATCH_BYTES", 1 << 10)
    assert WinogradLines().apply(func, frozenset([1]), VDEVICES[0]) is None


def test_no_tolerance_leaves_them_direct():
    func = legalized_func(lambda x: conv2d(x, W), X)
    kernel = KernelLibrary(VDEVICES[0], winograd_tolerance=0).get(func, frozenset([1]))
    assert kernel.scheduled.origin == "convolution"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spoils_its_channel_or_the_tiles_around(value):
    weight = numbers((32, 1, 7, 32), seed=1)
    func = legalized_func(lambda x: conv2d(x, weight), X)
    spoilt, x = weight.copy(), X.copy()
    spoilt[5, 0, 2, 7] = value
    out = run_prim_func(func, [X, spoilt], [1], VDEVICES[0]).outputs[0]
    assert np.isnan(out[..., 5]).all()
    assert np.isfinite(np.delete(out, 5, axis=3)).all()
    x[0, 6, 12, 3] = value
    out = run_prim_func(func, [x, weight], [1], VDEVICES[0]).outputs[0]
    assert not np.isfinite(out[0, 6, 6:13]).any()
    assert np.isfinite(np.delete(out, 6, axis=1)).all()


@pytest.mark.parametrize(
    ("reason", "attrs", "inputs"),
    [
        ("strides along both axes", {"strides": (2, 2)}, [X, W]),
        ("dilation", {"dilation": (2, 2)}, [X, W]),
        ("groups of two", {"groups": 16}, [X, numbers((32, 5, 5, 2))]),
        ("depthwise", {"groups": 32}, [X, numbers((32, 5, 5, 1))]),
        ("a promise that is not kept", {}, [X[:, :14, :14], numbers((32, 7, 7, 32))]),
        ("short filters", {}, [X, numbers((32, 3, 3, 32))]),
        ("float64", {}, [numbers(X.shape, "float64"), numbers(W.shape, "float64")]),
        ("three input channels", {}, [numbers((1, 24, 24, 3)), numbers((32, 5, 5, 3))]),
        ("three output channels", {}, [X, numbers((3, 5, 5, 32))]),
        ("one output of a tile", {}, [numbers((1, 5, 5, 32)), W]),
        ("no image", {}, [numbers((0, 24, 24, 32)), W]),
    ],
)
def test_declines(reason, attrs, inputs):
    func = legalized_func(lambda x, w: conv2d(x, w, **attrs), *inputs)
    assert WinogradLines().apply(func, frozenset([1]), VDEVICES[0]) is None, reason


def test_declines_weights_that_are_no_constants():
    func = legalized_func(lambda x: conv2d(x, W), X)
    assert WinogradLines().apply(func, frozenset(), HOST) is None
    assert WinogradLines().apply(func, frozenset([1]), VDEVICES[0]) is not None
