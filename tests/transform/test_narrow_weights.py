"""Weights that are bytes times a scale, or floats of 16 bits, are short where reading them takes
time."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import tvm_rammer
from tvm_rammer.relax_util import operator_name
from tvm_rammer.tensors import constant
from tvm_rammer.transform.affine_blocks import affine_blocks
from tvm_rammer.transform.few_bits import few_bits
from tvm_rammer.transform.narrow_weights import NarrowWeights
from tvm_rammer.transform.scaled_bytes import scaled_bytes

RNG = np.random.default_rng(0)


def quantised(shape=(128, 160), columns=False):
    """Bytes, a scale, and what a model has of them."""
    values = RNG.integers(-128, 128, shape).astype("int8")
    scale = RNG.uniform(1e-4, 1e-2, shape[1] if columns else 1).astype("float32")
    return values, scale, values.astype("float32") * scale


def module(weights, rows=1):
    return products((rows, weights))


def checked(x, weights, *tolerance, real=None, out_dtype=None):
    """The region of two products, which are those of the wide weights; one alone makes none."""
    pairs = [(len(x), weights), (len(x), np.ascontiguousarray(weights[:, ::-1]))]
    library = tvm_rammer.build(products(*pairs, out_dtype=out_dtype), policy="sequential")
    real = weights if real is None else real
    for found, wide in zip(library.create()(x, x), (real, real[:, ::-1]), strict=True):
        assert_close(found.numpy().astype(wide.dtype), x.astype(wide.dtype) @ wide, *tolerance)
    (region,) = library.report.regions
    return region


def narrows(weights, rows=1, short_floats=()):
    mod = NarrowWeights(4, short_floats)(module(weights, rows))
    calls = [b.value for b in mod["main"].body.blocks[0].bindings]
    return "relax.matmul" not in map(operator_name, calls)


@pytest.mark.parametrize("columns", [False, True])
def test_the_numbers_are_bytes_times_one_scale_or_one_for_each_column(columns):
    values, scale, weights = quantised(columns=columns)
    found = scaled_bytes(weights)
    assert found is not None and found.scale is not None
    assert found.scale.shape == scale.shape
    assert np.array_equal(found.values, values)
    np.testing.assert_allclose(found.values * found.scale, weights, rtol=3e-7)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000), st.integers(1, 127), st.booleans())
def test_whatever_bytes_a_matrix_has_its_product_is_the_same(seed, largest, columns):
    rng = np.random.default_rng(seed)
    values = rng.integers(-largest, largest + 1, (20, 9)).astype("int8")
    scale = rng.uniform(1e-3, 1, 9 if columns else 1).astype("float32")
    weights = values * scale
    found = scaled_bytes(weights)
    assert found is not None
    scale = 1 if found.scale is None else found.scale
    np.testing.assert_allclose(found.values * scale, weights, rtol=3e-7)


def test_factors_that_were_multiplied_into_the_weights_stay_in_the_scale():
    _, _, weights = quantised(columns=True)
    found = scaled_bytes(weights * RNG.uniform(0.5, 2, 160).astype("float32"))
    assert found is not None


def test_columns_of_zeros_have_a_scale():
    _, _, weights = quantised(columns=True)
    weights[:, [0, 7]] = 0
    found = scaled_bytes(weights)
    assert found is not None and not found.values[:, [0, 7]].any()
    found = scaled_bytes(np.zeros((64, 32), "float32"))
    assert found is not None and found.scale is None and not found.values.any()


def test_a_scale_for_each_row_is_none_for_a_column():
    values, _, _ = quantised((128, 160))
    rows = RNG.uniform(1e-3, 1, (128, 1)).astype("float32")
    assert scaled_bytes(values * rows) is None


@pytest.mark.parametrize("odd", [np.nan, np.inf, 0.12345])
@pytest.mark.parametrize("place", [(0, 0), (100, 0), (3, 150)])
def test_one_other_number_leaves_a_matrix_as_it_is(odd, place):
    _, _, weights = quantised()
    weights[place] = odd
    assert scaled_bytes(weights) is None


def test_rows_of_zeros_tell_nothing_and_take_no_time():
    weights = RNG.standard_normal((1024, 1024)).astype("float32")
    weights[:64] = 0
    assert scaled_bytes(weights) is None
    _, _, weights = quantised(columns=True)
    weights[:64] = 0
    assert scaled_bytes(weights) is not None


def test_bytes_and_scales_that_take_as_much_memory_are_none():
    assert scaled_bytes(RNG.standard_normal((1, 16384)).astype("float32")) is None


def test_integers_are_bytes_without_a_scale():
    values, _, _ = quantised()
    found = scaled_bytes(values.astype("int32"))
    assert found is not None and found.scale is None and np.array_equal(found.values, values)
    assert scaled_bytes(values.astype("int32") + 1) is None


def test_only_products_of_few_rows_with_many_weights_are_narrowed():
    _, _, weights = quantised()
    assert narrows(weights, rows=1) and narrows(weights, rows=4)
    assert not narrows(weights, rows=5)
    assert not narrows(weights[:64, :64])
    assert not narrows(RNG.standard_normal((128, 160)).astype("float32"))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("rows", [1, 3])
def test_results_are_those_of_the_wide_weights(dtype, rows):
    values, _, weights = quantised(columns=True)
    wide = weights if dtype == "float32" else values.astype("int32")
    x = RNG.integers(0, 256, (rows, 128)).astype(dtype)
    region = checked(x, wide, 1e-6)
    assert region.constant_bytes < 2 * wide.nbytes / 3


def test_an_unquantised_module_stays_the_same():
    mod = module(RNG.standard_normal((128, 160)).astype("float32"))
    tvm.ir.assert_structural_equal(NarrowWeights(few_rows=4)(mod), mod)


def in_blocks(shape, size, bits=4, seed=0, zero=0):
    """Integers of few bits, with a scale for each block of a column."""
    rng = np.random.default_rng(seed)
    most = 1 << (bits - 1)
    values = rng.integers(-most, most, shape).astype("float32") + zero
    scale = rng.uniform(1e-3, 1e-1, (shape[0] // size, shape[1])).astype("float32")
    return values * np.repeat(scale, size, axis=0)


def real(found):
    """What integers of few bits stand for."""
    size = len(found.values) // len(found.scale)
    offset = np.zeros(found.scale.shape) if found.offset is None else found.offset
    offset, scale = (np.repeat(x.astype("float64"), size, axis=0) for x in (offset, found.scale))
    return (found.values + offset) * scale


@settings(deadline=None, max_examples=25)
@given(
    blocks=st.integers(2, 5),
    size=st.sampled_from((16, 32, 128)),
    columns=st.integers(1, 20),
    bits=st.integers(2, 8),
    seed=st.integers(0, 99),
)
def test_columns_may_have_a_scale_for_each_block(blocks, size, columns, bits, seed):
    weights = in_blocks((blocks * size, columns), size, bits, seed)
    weights[:size, 0] = 0
    found = scaled_bytes(weights, in_blocks=True)
    assert found is not None
    scale = np.ones(1) if found.scale is None else found.scale
    if scale.ndim > 1:
        scale = np.repeat(scale, len(weights) // len(scale), axis=0)
    np.testing.assert_allclose(found.values * scale, weights, rtol=3e-7)


def test_blocks_are_looked_for_where_they_are_asked_for():
    weights = in_blocks((128, 160), 32)
    assert scaled_bytes(weights) is None
    found = scaled_bytes(weights, in_blocks=True)
    assert found is not None and found.scale is not None and found.scale.shape == (4, 160)
    weights[77, 80] = 0.12345
    assert scaled_bytes(weights, in_blocks=True) is None
    assert scaled_bytes(weights[:-1], in_blocks=True) is None


@settings(deadline=None, max_examples=40)
@given(
    blocks=st.integers(1, 4),
    size=st.sampled_from((16, 32, 128)),
    columns=st.integers(1, 20),
    bits=st.integers(1, 8),
    points=st.booleans(),
    short=st.booleans(),
    seed=st.integers(0, 99),
)
def test_weights_of_few_bits_stay_what_they_are(blocks, size, columns, bits, points, short, seed):
    rng = np.random.default_rng(seed)
    shape, most = (blocks, columns), 1 << bits
    values = rng.integers(0, most, (blocks * size, columns))
    zero = rng.integers(0, most, shape) if points else np.full(shape, most // 2)
    scale = rng.uniform(1e-3, 1e-1, shape).astype("float16" if short else "float32")
    weights = np.repeat(scale.astype("float32"), size, axis=0) * (
        values - np.repeat(zero, size, axis=0)
    ).astype("float32")
    bytes_ = scaled_bytes(weights, in_blocks=True)
    if bytes_ is None:  # Differences of bytes are none.
        assert blocks == 1 or (bits == 8 and points)
        return
    found = few_bits(bytes_, ("float16",))
    if found is None:
        assert bytes_.scale is None or bytes_.scale.ndim == 1
        return
    assert found.bits <= max(2, 1 << (bits - 1).bit_length())
    assert (found.scale.dtype == np.float16) or not short or blocks == 1
    half = 1 << (found.bits - 1)
    assert found.values.min() >= -half and found.values.max() < half
    np.testing.assert_allclose(real(found), weights, rtol=6e-7)


def test_bytes_near_the_largest_have_an_offset_that_is_a_byte():
    values = np.tile(np.arange(124, 128), 64).reshape(-1, 1)
    values[:32] = np.maximum(values[:32], 126)
    weights = (values * np.repeat(RNG.uniform(1e-3, 1e-1, (8, 40)), 32, axis=0)).astype("float32")
    bytes_ = scaled_bytes(weights, in_blocks=True)
    found = bytes_ and few_bits(bytes_)
    assert found and found.bits == 2
    np.testing.assert_allclose(real(found), weights, rtol=6e-7)


def test_bytes_with_a_scale_for_each_column_stay_bytes():
    _, _, weights = quantised(columns=True)
    found = scaled_bytes(weights)
    assert found is not None and few_bits(found) is None
    found = scaled_bytes(np.sign(weights))
    assert found is not None and found.scale is None and few_bits(found) is None


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("zero", [0, 3])
def test_products_with_weights_of_few_bits_are_those_of_the_wide_weights(rows, zero):
    weights = in_blocks((256, 160), 32, zero=zero)
    assert narrows(weights, rows)
    x = RNG.standard_normal((rows, 256)).astype("float32")
    region = checked(x, weights, 2e-6)
    assert region.kernels == {"few bits": 2}
    assert region.constant_bytes < 2 * weights.nbytes / 5.5


def test_many_rows_read_short_weights_where_they_come_from_memory():
    near, far = in_blocks((256, 160), 32), in_blocks((4096, 2304), 64, zero=2)
    narrow = NarrowWeights(4, ("bfloat16",))
    assert operators(narrow(products((9, near)))) == ["relax.matmul"]
    short = [near, quantised()[2], halves("bfloat16", (64, 256)), far]
    found = operators(narrow(products(*((9, weights) for weights in short))))
    assert found.count("relax.call_tir") == 4 and "relax.matmul" not in found
    wide = RNG.standard_normal((256, 160), "float32")
    assert operators(narrow(products((9, wide), (9, far)))) == ["relax.matmul", "relax.call_tir"]
    assert operators(NarrowWeights(0)(products((1, far)))) == ["relax.matmul"]
    region = checked(RNG.standard_normal((40, 4096), "float32"), far)
    assert region.kernels == {"few bits": 2}


def shifted(shape, size, bits, seed=0, points="float32"):
    """Integers less a zero point of any kind for each block of a column, times a scale."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 1 << bits, shape)
    blocks = shape[0] // size, shape[1]
    point = rng.uniform(0, 1 << bits, blocks).astype(points).astype("float32")
    scale = rng.uniform(1e-3, 1e-1, blocks).astype("float32")
    point, scale = (np.repeat(each, size, axis=0) for each in (point, scale))
    return (values.astype("float32") - point) * scale


@settings(deadline=None, max_examples=40)
@given(
    blocks=st.integers(1, 5),
    size=st.sampled_from((16, 32, 128)),
    columns=st.integers(1, 20),
    bits=st.integers(1, 8),
    points=st.sampled_from(("float32", "float16", "int32")),
    seed=st.integers(0, 99),
)
def test_blocks_may_have_any_zero_point(blocks, size, columns, bits, points, seed):
    weights = shifted((blocks * size, columns), size, bits, seed, points)
    weights[:size, 0] = seed % 3
    found = affine_blocks(weights)
    assert found is not None and found.offset is not None
    assert found.bits <= max(2, 1 << (bits - 1).bit_length())
    half = 1 << (found.bits - 1)
    assert found.values.min() >= -half and found.values.max() < half
    np.testing.assert_allclose(real(found), weights, rtol=0, atol=1e-6 * np.abs(weights).max())


def test_what_is_not_all_steps_has_no_blocks():
    assert affine_blocks(RNG.standard_normal((512, 64)).astype("float32")) is None
    assert affine_blocks(halves("bfloat16", (512, 64))) is None
    weights = shifted((512, 64), 32, 4)
    assert affine_blocks(weights) is not None
    assert affine_blocks(weights[:-1]) is None, "words are full"
    for odd in (np.nan, np.inf, weights[300, 7] + 1e-3 * np.ptp(weights[288:320, 7])):
        other = weights.copy()
        other[300, 7] = odd
        assert affine_blocks(other) is None


def test_scales_that_have_16_bits_are_kept_so():
    scale = RNG.uniform(1e-3, 1e-1, (1, 64)).astype("float16").astype("float32")
    weights = (RNG.integers(0, 256, (512, 64)).astype("float32") - 200) * scale
    found = affine_blocks(weights, ("float16",))
    assert found is not None and found.scale.dtype == np.float16 and found.bits == 8


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("bits", "size"), [(4, 32), (8, 32), (8, 256)])
def test_products_with_shifted_weights_are_those_of_the_wide_weights(rows, bits, size):
    weights = shifted((256, 160), size, bits)
    x = RNG.standard_normal((rows, 256)).astype("float32")
    region = checked(x, weights, 2e-6)
    assert region.kernels == {"few bits": 2}
    assert region.constant_bytes < 2 * weights.nbytes * (bits / 32 + 0.07)


def halves(name, shape=(512, 320)):
    return RNG.standard_normal(shape, "float32").astype(name).astype("float32")


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_weights_that_have_16_bits_are_kept_so(name):
    weights = halves(name)
    assert narrows(weights, short_floats=(name,))
    assert not narrows(weights)
    assert not narrows(weights, 2, (name,)), "several rows take longer than reading from a cache"
    weights[300, 7] = np.nextafter(weights[300, 7], np.float32(9))
    assert not narrows(weights, short_floats=(name,))
    weights[300, 7] = np.inf
    assert not narrows(weights, short_floats=(name,))


def test_few_weights_are_read_from_a_near_cache_as_they_are():
    assert not narrows(halves("float16", (128, 128)), short_floats=("float16",))
    small = halves("bfloat16", (256, 256))
    assert not narrows(small, short_floats=("bfloat16",))


def products(*pairs, out_dtype=None):
    """A function of a product for each pair of rows and weights."""
    data = [
        relax.Var(f"x{number}", relax.TensorType((rows, len(weights)), str(weights.dtype)))
        for number, (rows, weights) in enumerate(pairs)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", data):
        with builder.dataflow():
            found = [
                builder.emit(relax.op.matmul(x, constant(weights), out_dtype))
                for x, (_, weights) in zip(data, pairs, strict=True)
            ]
            results = builder.emit_output(relax.Tuple(found))
        builder.emit_func_output(results)
    return builder.get()


def operators(mod):
    names = (operator_name(b.value) for b in mod["main"].body.blocks[0].bindings)
    return [name for name in names if name]


def test_what_comes_from_memory_is_halved_whatever_reads_it():
    """Weights of many layers leave the caches until they are read again."""
    small, large = halves("bfloat16", (256, 128)), halves("bfloat16", (4096, 2304))
    narrow = NarrowWeights(4, ("bfloat16",))
    assert operators(narrow(products((3, small), (3, large)))) == ["relax.call_tir"] * 2
    assert operators(narrow(products((3, small)))) == ["relax.matmul"]


def test_weights_of_one_shape_may_be_of_several_types():
    shape = (512, 320)
    kinds = [halves("float16", shape), halves("bfloat16", shape), quantised(shape)[2]]
    mod = products(*((1, weights) for weights in kinds))
    xs = [RNG.standard_normal((1, 512), "float32") for _ in kinds]
    found = tvm_rammer.build(mod, policy="sequential").create()(*xs)
    for one, x, weights in zip(found, xs, kinds, strict=True):
        assert_close(one.numpy(), x @ weights)


def test_the_type_that_is_widened_best_comes_first():
    weights = RNG.integers(-999, 999, (512, 320)).astype("float16").astype("float32") / 1024
    weights[0, 0] = 2.0**-9
    mod = NarrowWeights(4, ("float16", "bfloat16"))(module(weights))
    call = mod["main"].body.blocks[0].bindings[0].value
    assert str(call.args[1].fields[1].ty.dtype) == "float16"


@pytest.mark.parametrize(("rows", "shape"), [(1, (768, 640)), (70, (4096, 1100))])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_a_model_of_16_bits_reads_half_and_computes_the_same(name, rows, shape):
    """As exporters write it: its weights are numbers of 16 bits, all else is float32."""
    weights = halves(name, shape)
    region = checked(RNG.standard_normal((rows, shape[0]), "float32"), weights)
    assert region.constant_bytes < 2 * 0.6 * weights.nbytes


HALVES = ("float16", "bfloat16")


def rounded(name, shape, size, bits=4, zero=False, seed=0, scale_name=None):
    """Integers less a zero point times a scale of 16 bits, unrounded and as 16 bits have it."""
    rng = np.random.default_rng(seed)
    blocks, most = (shape[0] // size, shape[1]), 1 << (bits - 1)
    points = np.repeat(rng.integers(-most, most, blocks) * zero, size, axis=0)
    values = rng.integers(-most, most, shape) - points
    scale = rng.uniform(1e-3, 1e-1, blocks).astype(scale_name or name).astype("float32")
    exact = values.astype("float32") * np.repeat(scale, size, axis=0)
    return exact, exact.astype(name)


def next_to(weights, place):
    """The same but for one number, which is the next one that 16 bits have."""
    other = weights.copy()
    other[place] = np.nextafter(other[place], other.dtype.type(9))
    return other


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(HALVES),
    blocks=st.integers(2, 5),
    size=st.sampled_from((16, 32, 128)),
    columns=st.integers(1, 20),
    bits=st.integers(2, 8),
    points=st.booleans(),
    seed=st.integers(0, 99),
)
def test_what_was_rounded_to_16_bits_is_found_bit_for_bit(
    name, blocks, size, columns, bits, points, seed
):
    _, weights = rounded(name, (blocks * size, columns), size, bits, points and bits < 8, seed)
    weights[:size, 0] = 0
    bytes_ = scaled_bytes(weights, in_blocks=True)
    assert bytes_ is not None
    found = few_bits(bytes_, HALVES)
    if found is None:
        assert bytes_.scale is None or bytes_.scale.ndim == 1
        return
    assert found.bits <= max(2, 1 << (bits - 1).bit_length())
    if bytes_.scale is not None and bytes_.scale.ndim > 1:
        assert found.scale.dtype.itemsize == 2
    assert np.array_equal(real(found).astype(name), weights)


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize(("bits", "zero"), [(4, False), (4, True), (8, False)])
def test_integers_are_nearer_to_what_was_quantised_than_what_was_rounded(name, bits, zero):
    exact, weights = rounded(name, (256, 160), 32, bits, zero)
    found = few_bits(scaled_bytes(weights, in_blocks=True), HALVES)
    assert found is not None and found.bits == bits
    np.testing.assert_array_equal(real(found), exact)
    assert not np.array_equal(weights.astype("float32"), exact)


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize(("bits", "size"), [(4, 32), (8, 32), (8, 256)])
@pytest.mark.parametrize("place", [(0, 0), (100, 80), (255, 159)])
def test_one_other_number_leaves_what_was_rounded_as_it_is(name, bits, size, place):
    _, weights = rounded(name, (256, 160), size, bits)
    assert scaled_bytes(weights, in_blocks=True) is not None
    for odd in (next_to(weights, place)[place], np.inf, np.nan):
        other = weights.copy()
        other[place] = odd
        assert scaled_bytes(other, in_blocks=True) is None


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("bits", [4, 8])
def test_what_merely_resembles_rounded_integers_is_none(name, bits):
    exact, weights = rounded(name, (256, 160), 32, bits)
    other = dict(zip(HALVES, HALVES[::-1], strict=True))[name]
    resembling = {
        "rounded to another type": weights.astype(other),
        "cut off, not rounded": np.where(
            np.abs(weights.astype("float32")) > np.abs(exact),
            np.nextafter(weights, weights.dtype.type(0)),
            weights,
        ),
        "scales of 32 bits": rounded(name, (256, 160), 32, bits, scale_name="float32")[1],
        "rounded twice": (weights.astype("float32") * np.float32(1.1)).astype(name),
        "any numbers": RNG.standard_normal((256, 160)).astype(name),
        "numbers of one size": RNG.uniform(1, 2, (256, 160)).astype(name),
    }
    taken = [why for why, each in resembling.items() if scaled_bytes(each, in_blocks=True)]
    assert taken == []


@pytest.mark.parametrize("name", HALVES)
def test_weights_of_16_bits_become_shorter_where_they_come_from_memory(name):
    _, weights = rounded(name, (4096, 4352), 64)
    assert narrows(weights, 2)
    assert not narrows(weights, 3), "they are read in half of the time"
    assert not narrows(weights[:1024])
    assert narrows(RNG.integers(-128, 128, weights.shape).astype(name))


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize(("rows", "bits", "zero"), [(1, 4, False), (2, 4, True), (1, 8, False)])
@pytest.mark.parametrize("out_dtype", ["float32", None])
def test_products_of_16_bits_are_those_of_the_unrounded_weights(name, rows, bits, zero, out_dtype):
    exact, weights = rounded(name, (2048, 4352), 64, bits, zero)
    x = RNG.standard_normal((rows, 2048)).astype(name)
    rounding = {"float16": 5e-4, "bfloat16": 4e-3}[name] if out_dtype is None else 4e-6
    region = checked(x, weights, rounding, real=exact, out_dtype=out_dtype)
    assert region.kernels["few bits"] == 2
    assert region.constant_bytes < 2 * weights.nbytes * (bits / 16 + 0.03)


@pytest.mark.parametrize("name", HALVES)
def test_rows_of_16_bits_are_widened_once_for_all_products(name):
    weights = [rounded(name, (2048, 4352), 64, seed=seed)[1] for seed in range(2)]
    x = relax.Var("x", relax.TensorType((1, 2048), name))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            found = (relax.op.matmul(x, constant(each), "float32") for each in weights)
            results = builder.emit_output(relax.Tuple([*map(builder.emit, found)]))
        builder.emit_func_output(results)
    found = operators(NarrowWeights(4, HALVES)(builder.get()))
    assert found == ["relax.astype", "relax.call_tir", "relax.call_tir"]


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize(("bits", "size"), [(4, 32), (8, 64), (8, 256)])
def test_float32_may_have_what_was_rounded_to_16_bits(name, bits, size):
    """As ONNX models of 16-bit floats have it that were folded before they were written."""
    exact, weights = rounded(name, (256, 160), size, bits)
    wide = weights.astype("float32")
    assert narrows(wide) and narrows(wide, 4)
    assert not narrows(next_to(weights, (200, 7)).astype("float32"), 4)
    x = RNG.standard_normal((3, 256)).astype("float32")
    region = checked(x, wide, 2e-6, real=exact)
    assert region.constant_bytes < 2 * wide.nbytes * (bits / 32 + 0.04)
