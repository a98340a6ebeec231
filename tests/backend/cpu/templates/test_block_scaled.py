"""Products with weights of a few bits in blocks agree with numpy's of the wide weights."""

from __future__ import annotations

import numpy as np
import pytest
from close import assert_close
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_runs import HOST, VDEVICES, numbers, run_prim_func
from tvm import te, topi

from tvm_rammer.backend.cpu.templates.block_scaled_rule import FewBitsRule
from tvm_rammer.backend.cpu.templates.select import choices
from tvm_rammer.kernel.block_scaled import BlockScaled, block_scaled_product, packed_integers
from tvm_rammer.kernel.contraction import find_contraction

OPERANDS = ("words", "scale", "offset")


def weights(k, n, size, bits, offset, dtype, seed=0):
    """Integers as words, their scales and offsets, and what they stand for."""
    rng = np.random.default_rng(seed)
    half = 1 << (bits - 1)
    values = rng.integers(-half, half, (k, n)).astype("int8")
    values[0], values[-1] = -half, half - 1
    scale = rng.uniform(0.01, 1, (k // size, n)).astype(dtype)
    offsets = rng.uniform(-9, 9, scale.shape).astype(offset or "int8")
    packed = [packed_integers(values, bits), scale, *([offsets] if offset else [])]
    wide = values.astype("float64") + np.repeat(offsets, size, axis=0) * bool(offset)
    return packed, wide * np.repeat(scale.astype("float64"), size, axis=0)


def product(rows, k, packed, bits, epilogue=lambda made: made):
    """The PrimFunc of a product, and what is fused behind it."""
    x = te.placeholder((*rows, k), name="x")
    parts = [
        te.placeholder(array.shape, str(array.dtype), name=name)
        for array, name in zip(packed, OPERANDS, strict=False)
    ]
    words, scale, *offset = parts
    made = block_scaled_product(x, words, scale, *offset, bits=bits)
    return te.create_prim_func([x, *parts, epilogue(made)])


def check(rows, packed, wide, bits, vdevice, seed=0):
    x = numbers((*rows, len(wide)), seed=seed)
    func = product(rows, len(wide), packed, bits)
    run = run_prim_func(func, [x, *packed], range(1, 1 + len(packed)), vdevice, seed)
    assert run.origin == "few bits"
    assert_close(run.outputs[0], x.astype("float64") @ wide)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_integers_lie_in_words(bits):
    values = np.arange(-(1 << (bits - 1)), 1 << (bits - 1), dtype="int8")
    values = np.tile(values, 32)[:64, None] * np.ones((1, 3), "int8")
    words = packed_integers(values, bits).astype(np.int64)
    count = 64 // len(words)
    parts = [(words >> (bits * k)) & ((1 << bits) - 1) for k in range(count)]
    found = np.stack(parts, axis=1).reshape(64, 3)
    assert np.array_equal(np.where(found >= 1 << (bits - 1), found - (1 << bits), found), values)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.sampled_from([(1,), (1, 1), (1, 3), (2, 2), (7,), (16,), (2, 17), (45,)]),
    blocks=st.integers(1, 3),
    size=st.sampled_from([16, 32, 64]),
    n=st.integers(1, 140),
    bits=st.sampled_from([2, 4, 8]),
    offset=st.sampled_from([None, "int8", "float32"]),
    dtype=st.sampled_from(["float32", "float16"]),
    vdevice=st.sampled_from(VDEVICES),
)
@example((1,), 4, 32, 256, 4, None, "float32", VDEVICES[0])
@example((1,), 4, 32, 256, 4, "int8", "float16", VDEVICES[1])
@example((4,), 1, 96, 67, 4, "int8", "float32", VDEVICES[2])
@example((1,), 2, 32, 100, 4, "int8", "float32", VDEVICES[3])
@example((45,), 3, 64, 100, 4, "int8", "float16", VDEVICES[0])
@example((2, 17), 1, 48, 40, 2, None, "float32", VDEVICES[1])
@example((45,), 30, 16, 130, 8, "int8", "float32", VDEVICES[3])
def test_whatever_the_shape_and_the_bits(rows, blocks, size, n, bits, offset, dtype, vdevice):
    packed, wide = weights(blocks * size, n, size, bits, offset, dtype)
    check(rows, packed, wide, bits, vdevice)


@pytest.mark.parametrize("offset", ["int8", "float32"])
def test_offsets_are_read_as_they_are(offset):
    packed, wide = weights(256, 100, 64, 4, offset, "float32")
    check((1,), packed, wide, 4, HOST)
    found = BlockScaled.of(product((1,), 256, packed, 4))
    assert found is not None and found.nbytes == 0.5 + (4 + packed[2].itemsize) / 64


def test_sums_of_many_blocks_are_exact():
    packed, wide = weights(11008, 96, 32, 4, "int8", "float32")
    x = numbers((1, len(wide)))
    run = run_prim_func(product((1,), len(wide), packed, 4), [x, *packed], (1, 2, 3))
    want = x.astype("float64") @ wide
    assert np.linalg.norm(run.outputs[0] - want) < 5e-7 * np.linalg.norm(want)


@pytest.mark.parametrize("rows", [(1,), (3,), (30,)])
def test_what_is_fused_behind_a_product_is_its_epilogue(rows):
    packed, wide = weights(128, 80, 32, 4, "int8", "float32")
    x = numbers((*rows, 128))
    want = 1 / (1 + np.exp(-(x.astype("float64") @ wide)))
    run = run_prim_func(
        product(rows, 128, packed, 4, lambda made: topi.sigmoid(made)), [x, *packed], (1, 2, 3)
    )
    assert run.origin == "few bits"
    assert_close(run.outputs[0], want)
    repeated = product(
        rows, 128, packed, 4, lambda made: topi.broadcast_to(made, (5, 6, *rows[:1], 80))
    )
    run = run_prim_func(repeated, [x, *packed], (1, 2, 3))
    assert run.origin == "few bits"
    assert_close(run.outputs[0], np.broadcast_to(x @ wide, (5, 6, *rows, 80)))


def test_every_choice_gives_the_same():
    packed, wide = weights(256, 200, 32, 4, "int8", "float32")
    func, x = product((1,), 256, packed, 4), numbers((1, 256))
    found = choices(func, frozenset({1, 2, 3}), HOST)
    assert len(found) > 2
    for choice in found:
        run = run_prim_func(func, [x, *packed], (1, 2, 3), tuned=lambda *_, choice=choice: [choice])
        assert_close(run.outputs[0], x.astype("float64") @ wide)


def test_finer_tiles_give_the_same_bits():
    """Which numbers of columns leave a choice depends on the length of vectors."""
    choices = []
    for columns in (1024, 2048):
        packed, _ = weights(256, columns, 32, 4, None, "float32")
        func, x = product((1,), 256, packed, 4), numbers((1, 256))
        runs = [run_prim_func(func, [x, *packed], (1, 2), seed=seed) for seed in range(4)]
        candidates = runs[0].kernel.stages[0].candidates
        choices.append(len({candidate.num_tiles for candidate in candidates}))
        for run in runs:
            assert np.array_equal(run.outputs[0], runs[0].outputs[0])
    assert max(choices) > 1


def test_only_constants_are_packed_and_others_are_computed_all_the_same():
    packed, wide = weights(64, 48, 32, 4, "int8", "float32")
    func, x = product((1,), 64, packed, 4), numbers((1, 64))
    assert FewBitsRule().match(func, frozenset({1, 2}), HOST) is None
    run = run_prim_func(func, [x, *packed], ())
    assert run.origin != "few bits"
    assert_close(run.outputs[0], x.astype("float64") @ wide)


def test_other_products_are_none():
    packed, _ = weights(64, 48, 32, 4, "int8", "float32")
    func = product((1,), 64, packed, 4)
    assert find_contraction(func) is None
    found = BlockScaled.of(func)
    assert found is not None
    assert (found.bits, found.blocks, found.size, found.count) == (4, 2, 32, 8)
    assert found.nbytes == 0.5 + 5 / 32
    a, b = te.placeholder((4, 64), name="a"), te.placeholder((64, 48), name="b")
    assert BlockScaled.of(te.create_prim_func([a, b, topi.nn.matmul(a, b)])) is None
    assert BlockScaled.of(te.create_prim_func([a, topi.tanh(a)])) is None
