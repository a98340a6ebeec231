"""Element-wise operators and data movement as nests of vectors without conditions."""

from __future__ import annotations

import numpy as np
import pytest
from close import assert_close
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_runs import HOST, VDEVICES, legalized_func, numbers, run_prim_func, run_relax
from tvm import relax, te, topi
from tvm.script import tirx as T

from tvm_rammer.backend.cpu.templates.elementwise_rule import Elementwise
from tvm_rammer.kernel.code_size import code_size

OP = relax.op
QUICK = settings(max_examples=20)

extents = st.sampled_from([1, 2, 3, 4, 7, 13, 16, 17, 31, 33, 64])
shapes = st.lists(extents, min_size=1, max_size=4).map(tuple)
vdevices = st.sampled_from(VDEVICES)
dtypes = st.sampled_from(["float32", "float64", "int8", "int64", "uint8", "bool"])


def ours(origins):
    return set(origins) == {"elementwise"}


@QUICK
@given(shape=shapes, vdevice=vdevices)
@example(shape=(9973,), vdevice=HOST)
@example(shape=(3, 5001), vdevice=HOST)
@example(shape=(61, 200), vdevice=HOST)
def test_lengths_that_no_vector_divides(shape, vdevice):
    """The tiles share every point out, whatever their number."""
    a, b = numbers(shape), numbers(shape[-1:], seed=1)
    (out,), origins = run_relax(lambda a, b: OP.nn.relu(OP.add(a, b)), a, b, vdevice=vdevice)
    assert_close(out, np.maximum(a + b, 0))
    assert ours(origins)


@QUICK
@given(data=st.data(), shape=shapes, dtype=dtypes, vdevice=vdevices)
def test_concatenations(data, shape, dtype, vdevice):
    """A piece for each operand along the last axis; along others a condition outside of it."""
    axis = data.draw(st.integers(0, len(shape) - 1))
    lengths = data.draw(st.lists(st.integers(0, 35), min_size=1, max_size=4).filter(any))
    parts = [
        numbers((*shape[:axis], length, *shape[axis + 1 :]), dtype, seed=k)
        for k, length in enumerate(lengths)
    ]
    (out,), origins = run_relax(
        lambda *parts: OP.concat(list(parts), axis), *parts, vdevice=vdevice
    )
    np.testing.assert_array_equal(out, np.concatenate(parts, axis))
    assert ours(origins)


@QUICK
@given(data=st.data(), shape=shapes, vdevice=vdevices)
def test_paddings(data, shape, vdevice):
    before = [data.draw(st.integers(0, 3)) for _ in shape]
    after = [data.draw(st.integers(0, 3)) for _ in shape]
    x = numbers(shape)
    widths = [width for pair in zip(before, after, strict=True) for width in pair]
    (out,), origins = run_relax(lambda x: OP.nn.pad(x, widths), x, vdevice=vdevice)
    np.testing.assert_array_equal(out, np.pad(x, list(zip(before, after, strict=True))))
    assert ours(origins)


@QUICK
@given(data=st.data(), shape=shapes, vdevice=vdevices)
def test_strided_slices(data, shape, vdevice):
    slices = []
    for extent in shape:
        start = data.draw(st.integers(0, extent - 1))
        slices.append(
            (start, data.draw(st.integers(start + 1, extent)), data.draw(st.integers(1, 4)))
        )
    x = numbers(shape)
    axes = list(range(len(shape)))
    begin, end, steps = map(list, zip(*slices, strict=True))
    (out,), origins = run_relax(
        lambda x: OP.strided_slice(x, axes, begin, end, steps), x, vdevice=vdevice
    )
    np.testing.assert_array_equal(out, x[tuple(slice(*one) for one in slices)])
    assert ours(origins)


@QUICK
@given(data=st.data(), shape=shapes, vdevice=vdevices)
@example(data=None, shape=(48, 100), vdevice=HOST)
@example(data=None, shape=(1, 3, 20, 20), vdevice=HOST)
def test_transpositions(data, shape, vdevice):
    axes = data.draw(st.permutations(range(len(shape)))) if data else range(len(shape))[::-1]
    x, y = numbers(shape), numbers(tuple(shape[axis] for axis in axes), seed=1)
    (out,), origins = run_relax(
        lambda x, y: OP.add(OP.permute_dims(x, list(axes)), y), x, y, vdevice=vdevice
    )
    assert_close(out, x.transpose(axes) + y)
    assert ours(origins)


@QUICK
@given(groups=st.integers(2, 4), channels=st.integers(1, 20), vdevice=vdevices)
def test_a_channel_shuffle_is_one_stage(groups, channels, vdevice):
    x = numbers((2, 3, groups * channels))

    def shuffle(x):
        split = OP.permute_dims(OP.reshape(x, (2, 3, groups, channels)), [0, 1, 3, 2])
        return OP.reshape(split, (2, 3, groups * channels))

    (out,), origins = run_relax(shuffle, x, vdevice=vdevice)
    want = x.reshape(2, 3, groups, channels).swapaxes(2, 3).reshape(x.shape)
    np.testing.assert_array_equal(out, want)
    assert origins == ["elementwise"]


@pytest.mark.parametrize("kept", [[0], [1], [0, 2], [0, 1, 2]])
def test_parts_of_a_split(kept):
    """Those that nobody uses are not computed."""
    x = numbers((5, 40))
    results, origins = run_relax(lambda x: [OP.split(x, [7, 20], 1)[k] for k in kept], x)
    for got, k in zip(results, kept, strict=True):
        np.testing.assert_array_equal(got, np.split(x, [7, 20], 1)[k])
    assert ours(origins)


def test_gathered_rows_are_copied_in_vectors():
    x, rows = numbers((50, 48)), np.array([3, 49, 0, 3], "int64")
    (out,), origins = run_relax(lambda x, i: OP.take(x, i, 0, mode="clip"), x, rows)
    np.testing.assert_array_equal(out, x[rows])
    assert ours(origins)


def test_axes_that_are_one_in_memory_are_one_loop():
    """A batch of images, element by element, has no rows whose ends are left over."""
    images = numbers((2, 5, 5, 3))
    run = run_prim_func(legalized_func(OP.abs, images), [images], vdevice=VDEVICES[0])
    assert run.kernel.scheduled.tiling == "1 tiles of 150 points in vectors of 16"


@T.prim_func(s_tir=True)
def recurrence(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(7):
        with T.sblock("y"):
            vi = T.axis.spatial(7, i)
            y[vi + 1] = y[vi] + x[vi]


@T.prim_func(s_tir=True)
def guarded(x: T.Buffer((10,), "float32"), y: T.Buffer((10,), "float32")):
    for i, j in T.grid(4, 4):
        with T.sblock("y"):
            vi = T.axis.spatial(10, i * 4 + j)
            T.where(i * 4 + j < 10)
            y[vi] = x[vi]


@T.prim_func(s_tir=True)
def interleaved(
    x: T.Buffer((8,), "float32"), y: T.Buffer((9,), "float32"), z: T.Buffer((8,), "float32")
):
    for i in range(8):
        with T.sblock("z"):
            vi = T.axis.spatial(8, i)
            z[vi] = y[vi] * x[vi]
        with T.sblock("y"):
            vi = T.axis.spatial(8, i)
            y[vi + 1] = z[vi]


@pytest.mark.parametrize("func", [recurrence, guarded, interleaved])
def test_what_it_declines(func):
    """Points that depend on each other, conditions on a whole block."""
    assert Elementwise().apply(func, frozenset(), HOST) is None


def test_a_guarded_block_still_runs():
    x = numbers((10,))
    run = run_prim_func(guarded, [x])
    np.testing.assert_array_equal(run.outputs[0], x)
    assert run.origin == "generic"


@pytest.mark.parametrize(
    ("shape", "tiling"),
    [((96, 160), "6 tiles of 2560 points"), ((97, 161), "6 tiles of 2603 points")],
)
def test_a_large_transposition_is_made_in_blocks(shape, tiling):
    """Both sides use whole cache lines: a tile has few vectors along the last axis, and many points
    along the other, whether or not vectors divide it."""
    x = numbers(shape)
    run = run_prim_func(legalized_func(lambda x: OP.permute_dims(x), x), [x], vdevice=VDEVICES[0])
    np.testing.assert_array_equal(run.outputs[0], x.T)
    assert run.kernel.scheduled.tiling == f"{tiling} in vectors of 16"


@settings(max_examples=15)
@given(
    shape=st.tuples(*[st.integers(1, 90)] * 2, st.sampled_from([1, 3, 16])),
    order=st.permutations(range(3)),
    dtype=dtypes,
    vdevice=vdevices,
)
@example((8, 33, 1), (1, 0, 2), "float32", VDEVICES[0])
@example((67, 35, 3), (2, 1, 0), "float32", VDEVICES[2])
def test_transpositions_of_any_size(shape, order, dtype, vdevice):
    x = numbers(shape, dtype)
    run = run_prim_func(
        legalized_func(lambda x: OP.permute_dims(x, order), x), [x], vdevice=vdevice
    )
    np.testing.assert_array_equal(run.outputs[0], x.transpose(order))
    assert run.origin == "elementwise"


@pytest.mark.parametrize("groups", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("vdevice", VDEVICES, ids=lambda vdevice: str(vdevice.vector_bytes))
def test_the_shuffle_of_channels_interleaves_streams(groups, vdevice):
    """Each group is read along its channels."""
    x = numbers((1, 9, groups * 17))

    def shuffle(x):
        split = OP.reshape(x, (1, 9, groups, 17))
        return OP.reshape(OP.permute_dims(split, (0, 1, 3, 2)), x.ty.shape)

    run = run_prim_func(legalized_func(shuffle, x), [x], vdevice=vdevice)
    want = x.reshape(1, 9, groups, 17).swapaxes(2, 3).reshape(x.shape)
    np.testing.assert_array_equal(run.outputs[0], want)
    assert run.kernel.scheduled.tiling.endswith(" streams interleaved")


def test_a_slice_with_strides_of_a_result():
    """TVM refuses to move the operator into such a slice by an internal error."""
    x = numbers((4, 9))

    def every_other(x):
        return relax.op.strided_slice(relax.op.tanh(x), [1], [0], [9], [2])

    (out,), _ = run_relax(every_other, x)
    assert_close(out, np.tanh(x)[:, ::2])


@pytest.mark.parametrize("vdevice", VDEVICES)
def test_values_that_are_read_again_and_again_are_kept(vdevice):
    """Inlined, 16 links of ``x * x / 2 + x`` would be 3 ** 16 loads: some are stored."""
    x = te.placeholder((5, 37), name="x")
    y = x
    for _ in range(16):
        y = topi.add(topi.divide(topi.multiply(y, y), 2.0), y)
    a = np.random.default_rng(0).uniform(-1, 0, (5, 37)).astype("float32")
    run = run_prim_func(te.create_prim_func([x, y]), [a], (), vdevice)
    want = a.astype("float64")
    for _ in range(16):
        want = want * want / 2 + want
    assert_close(run.outputs[0], want)
    assert run.origin == "elementwise"
    assert 1 <= len(run.kernel.scratch) <= 4
    assert code_size(run.kernel.scheduled.func.body).nodes < 50_000


def test_many_results_of_which_most_are_read_by_one_block():
    """The parts of a split are inlined where they are added up; nobody else reads them."""
    x = te.placeholder((3, 80), name="x")
    total, *parts = topi.split(x, 40, axis=1)
    for part in parts:
        total = topi.add(total, part)
    a = numbers((3, 80))
    run = run_prim_func(te.create_prim_func([x, total]), [a])
    assert_close(run.outputs[0], a.astype("float64").reshape(3, 40, 2).sum(1))
    assert run.origin == "elementwise"
    assert not run.kernel.scratch
