"""Winograd convolutions agree with numpy within the tolerance, and only 3 x 3 ones are taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
import winograd_runs
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
    padded_with,
    run_prim_func,
    run_relax,
)
from tvm import relax, sym, te, tirx
from tvm.ir import Call, GlobalVar
from winograd_runs import convolution, convolve, run_packed

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile
from tvm_rammer.backend.cpu.templates.winograd import choice
from tvm_rammer.backend.cpu.templates.winograd.accuracy import winograd_error
from tvm_rammer.backend.cpu.templates.winograd.channels import Channels
from tvm_rammer.backend.cpu.templates.winograd.choice import ConvolutionSize, choose_tiling
from tvm_rammer.backend.cpu.templates.winograd.kernel import winograd_function
from tvm_rammer.backend.cpu.templates.winograd.matrices import FOUR, TWO
from tvm_rammer.backend.cpu.templates.winograd.rule import Winograd
from tvm_rammer.backend.cpu.templates.winograd.tiling import WinogradTiling
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.nodes import substitute
from tvm_rammer.region.kernel_library import KernelLibrary

OP = relax.op
QUICK = settings(max_examples=10)
#: Large enough to be worthwhile.
X, W = numbers((1, 14, 14, 32)), numbers((32, 3, 3, 32), seed=1)
ONE_AROUND = (1, 1, 1, 1)
#: Of its cache some of the small weights of these tests are too large.
SMALL_CACHE = replace(HOST, l2_bytes=1 << 14)

sizes = st.tuples(st.integers(1, 2), st.integers(1, 13), st.integers(1, 13))
pads = st.tuples(*[st.integers(0, 2)] * 4)


def conv2d(x: Any, weight: Any, padding: tuple[int, ...] = ONE_AROUND, **attrs: Any) -> Any:
    return winograd_runs.conv2d(x, weight, padding=padding, **attrs)


def run_tiling(func: tirx.PrimFunc, inputs: list[np.ndarray], tiling: WinogradTiling) -> Run:
    """Run a convolution, whose weights are parameter 1, in a given tiling."""
    conv = convolution(func)
    made = winograd_function(conv, tiling, SMALL_CACHE)
    return run_packed(made, inputs, tiling.packing(conv.channels))


@QUICK
@given(
    size=sizes,
    padding=pads,
    inner=st.integers(1, 3),
    outer=st.integers(1, 6),
    groups=st.sampled_from([1, 2, 4]),
    lanes=st.sampled_from([4, 8, 16]),
    transform=st.sampled_from([TWO, FOUR]),
    register=st.tuples(st.integers(1, 5), st.integers(1, 3)),
    blocks=st.integers(1, 3),
    fused=st.booleans(),
    cut=st.booleans(),
    rows_first=st.booleans(),
)
@example((1, 13, 9), (1, 1, 1, 1), 1, 2, 1, 16, FOUR, (5, 2), 1, True, False, False)
@example((2, 5, 5), (1, 1, 1, 1), 2, 2, 1, 8, FOUR, (3, 1), 1, False, False, False)
@example((1, 13, 13), (1, 1, 1, 1), 1, 4, 1, 8, FOUR, (4, 2), 2, False, True, False)
@example((1, 13, 13), (1, 1, 1, 1), 1, 4, 1, 8, FOUR, (4, 2), 2, False, True, True)
@example((1, 13, 13), (1, 1, 1, 1), 1, 4, 4, 8, FOUR, (4, 2), 2, False, True, True)
@example((1, 13, 9), (1, 1, 1, 1), 2, 2, 2, 16, FOUR, (5, 2), 1, True, False, False)
def test_every_tiling(
    size, padding, inner, outer, groups, lanes, transform, register, blocks, fused, cut, rows_first
):
    """Ragged images, blocks and register tiles; padding beyond the tile; one block or many; groups
    of fewer input channels than a vector has.
    """
    batch, height, width = size
    top, left, bottom, right = padding
    rows, columns = height + top + bottom - 2, width + left + right - 2
    assume(rows > 0 and columns > 0 and outer % register[1] == 0)
    tiles = batch * -(-rows // transform.outputs) * -(-columns // transform.outputs)
    block = min(tiles, blocks * register[0])
    # One task per tile of the image and vector of channels, where a block is one task else.
    parts = (block, register[1]) if cut and not fused else (1, 1)
    tile = RegisterTile(*register, lanes)
    tiling = WinogradTiling(transform, lanes, tile, block, fused, parts, rows_first)
    x = numbers((*size, inner * lanes))
    w = numbers((groups * outer * lanes, 3, 3, inner * lanes // groups), seed=1)
    func = legalized_func(lambda x: conv2d(x, w, padding, groups=groups), x)
    run = run_tiling(func, [x, w], tiling)
    assert_close(run.outputs[0], convolve(x, w, padding, groups=groups), 2e-5)
    assert len(run.kernel.stages) == (1 if fused else 2)
    if not fused:
        columns = groups * outer // register[1]
        assert run.tiles[1] == -(-tiles // block) * parts[0] * columns * parts[1]


@pytest.mark.parametrize("padding", [(0, 0, 0, 0), ONE_AROUND, (2, 0, 1, 2)])
@pytest.mark.parametrize("vdevice", VDEVICES, ids=lambda vdevice: str(vdevice.vector_bytes))
def test_the_tiling_that_is_chosen(padding, vdevice):
    (out,), origins = run_relax(lambda x: conv2d(x, W, padding), X, vdevice=vdevice)
    assert_close(out, convolve(X, W, padding), 2e-5)
    assert origins == ["winograd"]


@pytest.mark.parametrize("groups", [2, 4, 8])
@pytest.mark.parametrize("vdevice", VDEVICES, ids=lambda vdevice: str(vdevice.vector_bytes))
def test_groups_of_channels(groups, vdevice):
    """Down to groups of eight; vectors of input channels reach over several of them."""
    x, w = numbers((1, 28, 28, 64)), numbers((64, 3, 3, 64 // groups), seed=1)
    (out,), origins = run_relax(lambda x: conv2d(x, w, groups=groups), x, vdevice=vdevice)
    assert_close(out, convolve(x, w, ONE_AROUND, groups=groups), 2e-5)
    assert origins == ["winograd"]


@pytest.mark.parametrize(
    ("size", "inputs", "outputs", "groups"),
    [(20, 12, 12, 1), (20, 20, 28, 1), (28, 36, 20, 1), (28, 24, 40, 2), (5, 44, 36, 1)],
)
@pytest.mark.parametrize("vdevice", VDEVICES, ids=lambda vdevice: str(vdevice.vector_bytes))
def test_vectors_overlap_where_they_do_not_divide_the_channels(
    size, inputs, outputs, groups, vdevice, monkeypatch
):
    """In one stage and in two, and with groups of channels: no task stores another's channels."""
    monkeypatch.setattr(choice, "WORTHWHILE", 9.0)
    x, w = numbers((1, size, size, inputs)), numbers((outputs, 3, 3, inputs // groups), seed=1)
    (out,), origins = run_relax(lambda x: conv2d(x, w, groups=groups), x, vdevice=vdevice)
    assert_close(out, convolve(x, w, ONE_AROUND, groups=groups), 2e-5)
    assert origins == ["winograd"]


@pytest.mark.parametrize("value", [0.0, 2.5])
def test_any_number_may_pad(value):
    """What lies outside counts as 0 only where the padding says so."""
    func = padded_with(legalized_func(lambda x: conv2d(x, W), X), value)
    run = run_prim_func(func, [X, W], [1])
    padded = np.pad(X, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=value)
    assert_close(run.outputs[0], convolve(padded, W, (0, 0, 0, 0)), 2e-5)
    assert run.origin == "winograd"


def test_avx2_code():
    target = resolve_target({"kind": "llvm", "mcpu": "core-avx2"})
    func = legalized_func(lambda x: conv2d(x, W), X)
    run = run_prim_func(func, [X, W], [1], vdevice_for(target))
    assert_close(run.outputs[0], convolve(X, W, ONE_AROUND), 2e-5)
    assert run.kernel.scheduled.tiling.endswith("vectors of 8")


def test_epilogue():
    """Padding, convolution, bias, residual and an activation that uses the sum twice."""
    bias, residual = numbers((32,), seed=2), numbers(X.shape, seed=3)

    def block(x, residual):
        total = OP.add(OP.add(conv2d(x, W), constant(bias)), residual)
        return OP.multiply(total, OP.sigmoid(total))

    (out,), origins = run_relax(block, X, residual)
    total = convolve(X, W, ONE_AROUND) + bias + residual
    assert_close(out, total / (1 + np.exp(-total)), 2e-5)
    assert origins == ["winograd"]


@pytest.mark.parametrize(
    ("kept", "origin"), [((1, 9, 14, 32), "winograd"), ((1, 14, 14, 9), "convolution")]
)
@pytest.mark.parametrize("vdevice", VDEVICES, ids=lambda vdevice: str(vdevice.vector_bytes))
def test_slice_of_the_results(kept, origin, vdevice):
    """Behind a slice only some rows are computed; the algorithm needs all channels."""

    def block(x):
        return OP.strided_slice(conv2d(x, W), [1, 2, 3], (0, 0, 0), kept[1:])

    (out,), origins = run_relax(block, X, vdevice=vdevice)
    want = convolve(X, W, ONE_AROUND)[:, : kept[1], :, : kept[3]]
    assert_close(out, want, 2e-5)
    assert origins == [origin]


def test_a_large_image_is_one_stage():
    """The transformed inputs of a block then stay with its task."""
    x, w = numbers((1, 48, 48, 16)), numbers((16, 3, 3, 16), seed=1)
    run = run_prim_func(legalized_func(lambda x: conv2d(x, w), x), [x, w], [1])
    assert_close(run.outputs[0], convolve(x, w, ONE_AROUND), 2e-5)
    assert "fused" in run.kernel.scheduled.tiling
    assert len(run.kernel.stages) == 1
    assert run.kernel.scratch == ()


def tiling_under(tolerance: float) -> str:
    func = legalized_func(lambda x: conv2d(x, W), X)
    scheduled = Winograd(tolerance).apply(func, frozenset([1]), HOST)
    return scheduled.tiling.split()[0] if scheduled else "declined"


def test_the_tolerance_decides():
    """The larger tile, the smaller one, or none."""
    small, large = winograd_error(TWO, 32), winograd_error(FOUR, 32)
    assert tiling_under(large) == "F(4x4,3x3)"
    assert tiling_under((small + large) / 2) == "F(2x2,3x3)"
    assert tiling_under(small) == "F(2x2,3x3)"
    assert tiling_under(small / 2) == "declined"
    assert tiling_under(0) == "declined"


def test_more_channels_of_a_group_lose_more_digits():
    """What decides are the channels that are summed up, not all of them."""
    x, w = numbers((1, 28, 28, 256)), numbers((256, 3, 3, 256))
    grouped = numbers((256, 3, 3, 64))
    tolerance = (winograd_error(FOUR, 64) + winograd_error(FOUR, 256)) / 2

    def transform(weight: np.ndarray, groups: int) -> str:
        func = legalized_func(lambda x: conv2d(x, weight, groups=groups), x)
        made = Winograd(tolerance).apply(func, frozenset([1]), HOST)
        return made.tiling.split()[0] if made else "declined"

    assert winograd_error(FOUR, 64) < winograd_error(FOUR, 256)
    assert transform(w, 1) == "F(2x2,3x3)"
    assert transform(grouped, 4) == "F(4x4,3x3)"


def test_transformed_inputs_that_are_too_large_are_declined(monkeypatch):
    func = legalized_func(lambda x: conv2d(x, W), X)
    made = Winograd().apply(func, frozenset([1]), HOST)
    assert made is not None and "staged" in made.tiling
    monkeypatch.setattr(choice, "MAX_SCRATCH_BYTES", 1 << 10)
    assert Winograd().apply(func, frozenset([1]), HOST) is None


@pytest.mark.parametrize("transform", [TWO, FOUR])
def test_the_error_is_what_was_tried_out(transform):
    """Of one kernel, within a factor of the other data's luck."""
    x, w = numbers((1, 16, 16, 64)), numbers((32, 3, 3, 64), seed=1)
    func = legalized_func(lambda x: conv2d(x, w), x)
    tiling = WinogradTiling(transform, 16, RegisterTile(4, 2, 16), 16, False)
    want = convolve(x, w, ONE_AROUND)
    error = np.abs(run_tiling(func, [x, w], tiling).outputs[0] - want).max()
    assert 0.2 < error / np.sqrt(np.mean(want**2)) / winograd_error(transform, 64) < 5


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_spoils_its_channel(value):
    """All of it, and no other."""
    w = W.copy()
    w[5, 1, 2, 7] = value
    func = legalized_func(lambda x: conv2d(x, w), X)
    out = run_prim_func(func, [X, w], [1]).outputs[0]
    assert np.isnan(out[..., 5]).all()
    assert np.isfinite(np.delete(out, 5, axis=3)).all()


def test_an_input_that_is_not_finite_spoils_the_tiles_around():
    """Every output that it belongs to, and none farther than a tile."""
    x = X.copy()
    x[0, 6, 6, 3] = np.inf
    func = legalized_func(lambda x: conv2d(x, W), x)
    out = run_prim_func(func, [x, W], [1]).outputs[0]
    assert not np.isfinite(out[0, 5:8, 5:8]).any()
    far = np.ones(out.shape, bool)
    far[0, 2:11, 2:11] = False
    assert np.isfinite(out[far]).all()


@pytest.mark.parametrize(
    ("reason", "attrs", "inputs"),
    [
        ("stride 2", {"strides": (2, 2)}, [X, W]),
        ("dilation 2", {"dilation": (2, 2)}, [X, W]),
        ("groups of two", {"groups": 16}, [X, numbers((32, 3, 3, 2))]),
        ("depthwise", {"groups": 32}, [X, numbers((32, 3, 3, 1))]),
        ("5 x 5", {}, [X, numbers((32, 5, 5, 32))]),
        ("1 x 3", {}, [X, numbers((32, 1, 3, 32))]),
        ("float64", {}, [numbers(X.shape, "float64"), numbers(W.shape, "float64")]),
        ("three input channels", {}, [numbers((1, 14, 14, 3)), numbers((32, 3, 3, 3))]),
        ("three output channels", {}, [X, numbers((3, 3, 3, 32))]),
        ("one tile, of few results", {"padding": (0, 0, 0, 0)}, [numbers((1, 3, 3, 32)), W]),
        ("no image", {}, [numbers((0, 14, 14, 32)), W]),
        ("weights by position first", {"kernel_layout": "HWIO"}, [X, numbers((3, 3, 32, 32))]),
    ],
)
def test_declines(reason, attrs, inputs):
    func = legalized_func(lambda x, w: conv2d(x, w, **attrs), *inputs)
    assert Winograd().apply(func, frozenset([1]), HOST) is None, reason


def test_declines_weights_that_are_no_constants():
    func = legalized_func(conv2d, X, W)
    assert Winograd().apply(func, frozenset(), HOST) is None
    assert Winograd().apply(func, frozenset([1]), HOST) is not None


def convolution_then(use: Any) -> tirx.PrimFunc:
    """A PrimFunc that convolves and goes on with ``use(result, n, y, x, o)``."""
    data, weight = te.placeholder(X.shape, name="data"), te.placeholder(W.shape, name="weight")
    a, b, i = (te.reduce_axis((0, extent)) for extent in (3, 3, 32))
    result = te.compute(
        (1, 12, 12, 32),
        lambda n, y, x, o: te.sum(data[n, y + a, x + b, i] * weight[o, a, b, i], [a, b, i]),
    )
    used = te.compute((1, 12, 12, 32), lambda *place: use(result, *place), name="used")
    return te.create_prim_func([data, weight, used])


@pytest.mark.parametrize(
    ("use", "taken"),
    [
        (lambda result, n, y, x, o: result[n, y, x, o] * 2.0, True),
        (lambda result, n, y, x, o: result[n, x, y, o] * 2.0, False),
        (lambda result, n, y, x, o: result[n, y, x, o] + result[n, y, x, 31 - o], False),
    ],
)
def test_epilogues_that_need_other_results_are_declined(use, taken):
    """A tile has no results but its own."""
    scheduled = Winograd().apply(convolution_then(use), frozenset([1]), HOST)
    assert (scheduled is not None) == taken


def test_declines_what_is_no_convolution():
    assert Winograd().apply(legalized_func(OP.add, X, X), frozenset([1]), HOST) is None
    products = legalized_func(OP.matmul, numbers((16, 16)), numbers((16, 16)))
    assert Winograd().apply(products, frozenset([1]), HOST) is None


def test_code_for_aarch64():
    target = resolve_target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"})
    func = legalized_func(lambda x: conv2d(x, W), X)
    kernels = KernelLibrary(vdevice_for(target))
    assert kernels.get(func, frozenset([1])).scheduled.origin == "winograd"
    functions = {GlobalVar(name): body for name, body in kernels.bodies.items()}
    exports = {v: f.with_attr("global_symbol", v.name_hint) for v, f in functions.items()}
    module = tvm.tirx.build(tvm.IRModule(exports), target, pipeline=lowering_pipeline())
    assert "\tfmla\tv" in module.inspect_source("asm")


@pytest.mark.parametrize("l2_bytes", [1 << 10, 1 << 30])
def test_what_is_too_large_for_the_cache_is_prefetched(l2_bytes):
    """The weights of the next steps, the transformed inputs of the next rows."""
    func = legalized_func(lambda x: conv2d(x, W), X)
    made = Winograd().apply(func, frozenset([1]), replace(HOST, l2_bytes=l2_bytes))
    assert made is not None
    calls = []
    tvm_ffi.structural_walk(made.func.body, (Call, calls.append))
    sources = {c.args[0].args[0].source.name for c in calls if c.op.name == "tirx.prefetch"}
    assert sources == ({"weight", "moved"} if l2_bytes < 1 << 20 else set())


def test_register_tiles_share_the_weights_of_the_next_product():
    """All of them prefetch, each other vectors: two register tiles, two vectors of 16 channels."""
    func = legalized_func(lambda x: conv2d(x, W), X)
    tiling = WinogradTiling(FOUR, 16, RegisterTile(8, 2, 16), 16, False)
    made = winograd_function(convolution(func), tiling, SMALL_CACHE)
    calls = []
    tvm_ffi.structural_walk(made.body, (Call, calls.append))
    loads = [call.args[0].args[0] for call in calls if call.op.name == "tirx.prefetch"]
    (_, _, _, column), *others = (ld.indices for ld in loads if ld.source.name == "weight")
    assert not others
    (row,) = variables(column)
    columns = [substitute(column, {row: tirx.const(k, "int64")}) for k in range(2)]
    assert [int(sym.Analyzer().simplify(c)) for c in columns] == [0, 16]


def test_blocks_are_larger_where_each_loads_its_weights_anew():
    size = ConvolutionSize(1, 28, 28, Channels(256, 512))
    kept = choose_tiling(size, replace(HOST, l2_bytes=1 << 30), 1e-3)
    assert kept is not None
    assert (kept.transform, kept.fused) == (FOUR, False)
    assert kept.block < 28
    group = 4 * 36 * 256 * kept.columns
    loaded = choose_tiling(size, replace(HOST, l2_bytes=group - 1), 1e-3)
    assert loaded == replace(kept, block=loaded.block)
    assert loaded.block >= 49
