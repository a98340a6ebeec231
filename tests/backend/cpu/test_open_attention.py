"""Attentions of as many queries, places and batches as the run finds."""

from itertools import product

import numpy as np
import pytest
from tvm import relax, tirx

import tvm_rammer
from tvm_rammer.tensors import constant

RNG = np.random.default_rng(0)
HEADS, WIDTH = 3, 20


def attention(queries, places, batch=1, mask=None, columns=24, scaled=True):
    """A module of one attention; sizes that are text are open."""
    names = {}

    def size(given):
        known = isinstance(given, int)
        return given if known else names.setdefault(given, tirx.Var(given, "int64"))

    def var(name, *shape):
        return relax.Var(name, relax.TensorType(list(map(size, shape)), "float32"))

    q = var("q", batch, HEADS, queries, WIDTH)
    k = var("k", batch, HEADS, WIDTH, places)
    v = var("v", batch, HEADS, places, columns)
    params = [q, k, v] + ([var("mask", *mask)] if mask else [])
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            scores = builder.emit(relax.op.matmul(q, k))
            if scaled:
                scores = builder.emit(relax.op.multiply(scores, constant(np.float32(0.3))))
            if mask:
                scores = builder.emit(relax.op.add(scores, params[-1]))
            weights = builder.emit(relax.op.nn.softmax(scores, axis=-1))
            result = builder.emit_output(relax.op.matmul(weights, v))
        builder.emit_func_output(result)
    return builder.get()


def expected(q, k, v, mask=0.0, scale=0.3):
    scores = (q.astype("float64") @ k) * scale + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ v


def agrees(instance, sizes, mask=None, hide=0.0, columns=24, scale=0.3):
    """Whether an instance computes the attention for sizes by name."""

    def data(*shape):
        known = [sizes.get(size, size) for size in shape]
        return RNG.standard_normal(known).astype("float32")

    values = {
        "q": data(sizes["b"], HEADS, sizes["n"], WIDTH),
        "k": data(sizes["b"], HEADS, WIDTH, sizes["m"]),
        "v": data(sizes["b"], HEADS, sizes["m"], columns),
    }
    if mask:
        hidden = data(*mask) > hide
        # A place is left for every row.
        hidden[..., 0] = False
        values["mask"] = np.where(hidden, np.float32(-1e9), data(*mask)).astype("float32")
    (found,) = instance(**values)
    want = expected(*values.values(), scale=scale)
    return np.allclose(found.numpy(), want, rtol=1e-4, atol=1e-5)


def library(*arguments, **options):
    built = tvm_rammer.build(attention(*arguments, **options), num_veus=2)
    assert "attention_rammer" in built.executable.as_text()
    return built.create()


def test_queries_and_places():
    instance = library("n", "m")
    for n, m in product((1, 3, 4, 16, 17, 40), (1, 2, 31, 32, 33, 64, 130)):
        assert agrees(instance, {"b": 1, "n": n, "m": m}), (n, m)


def test_batches():
    instance = library("n", "m", "b")
    for b, n, m in ((1, 5, 9), (3, 1, 70), (2, 33, 33)):
        assert agrees(instance, {"b": b, "n": n, "m": m}), (b, n, m)


@pytest.mark.parametrize(
    "mask",
    [(1, 1, "n", "m"), (1, 1, 1, "m"), (1, HEADS, "n", "m"), ("n", "m"), (1, 1, "n", 1)],
    ids=str,
)
def test_masks(mask):
    instance = library("n", "m", mask=mask)
    for n, m in ((1, 100), (2, 33), (20, 70), (35, 8)):
        assert agrees(instance, {"b": 1, "n": n, "m": m}, mask), (n, m)


def test_masks_of_batches():
    mask = ("b", 1, 1, "m")
    instance = library("n", "m", "b", mask)
    for b, n, m in ((1, 1, 200), (2, 20, 41)):
        assert agrees(instance, {"b": b, "n": n, "m": m}, mask), (b, n, m)


def test_a_mask_that_hides_nearly_all():
    """Blocks that it hides as a whole are left out where there are few queries."""
    mask = (1, 1, "n", "m")
    instance = library("n", "m", mask=mask)
    for n, m in ((1, 400), (3, 200), (18, 200)):
        assert agrees(instance, {"b": 1, "n": n, "m": m}, mask, hide=-9.0), (n, m)


def test_one_query_of_a_growing_cache():
    mask = (1, 1, 1, "m")
    instance = library(1, "m", mask=mask)
    for m in (1, 2, 63, 64, 65, 500):
        assert agrees(instance, {"b": 1, "n": 1, "m": m}, mask), m


def test_known_places():
    instance = library("n", 50)
    for n in (1, 2, 30):
        assert agrees(instance, {"b": 1, "n": n, "m": 50}), n


@pytest.mark.parametrize("columns", [1, 7, 8, 40])
def test_columns(columns):
    instance = library("n", "m", columns=columns, scaled=False)
    for n, m in ((1, 40), (20, 40)):
        assert agrees(instance, {"b": 1, "n": n, "m": m}, columns=columns, scale=1.0), (n, m)


def test_places_are_queries():
    """One name for both, as of a sentence that looks at itself."""
    instance = library("n", "n", mask=(1, 1, "n", "n"))
    for n in (1, 3, 16, 37, 100):
        assert agrees(instance, {"b": 1, "n": n, "m": n}, (1, 1, "n", "n")), n


def test_rows_that_are_hidden_as_a_whole():
    """Their weights are equal, whatever hides them but an infinity."""
    module = attention("n", "m", mask=(1, 1, "n", "m"))
    instance = tvm_rammer.build(module).create()
    for n, m in ((1, 70), (20, 70)):
        shapes = ((1, HEADS, n, WIDTH), (1, HEADS, WIDTH, m), (1, HEADS, m, 24))
        q, k, v = (RNG.standard_normal(shape).astype("float32") for shape in shapes)
        mask = np.full((1, 1, n, m), np.finfo("float32").min, "float32")
        (found,) = instance(q, k, v, mask)
        want = np.broadcast_to(v.mean(2, keepdims=True), found.shape)
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-5)


def growing(shared=2):
    """Keys that were there before and new ones, scaled and repeated, rows that may be NaN."""
    p, t = (tirx.Var(name, "int64") for name in "pt")
    heads = HEADS * shared

    def var(name, *shape):
        return relax.Var(name, relax.TensorType(shape, "float32"))

    q = var("q", 1, heads, t, WIDTH)
    past, new = var("past", 1, HEADS, p, WIDTH), var("new", 1, HEADS, t, WIDTH)
    mask = var("mask", 1, 1, t, p + t)
    builder = relax.BlockBuilder()
    op = relax.op
    with builder.function("main", [q, past, new, mask]):
        with builder.dataflow():
            kept = builder.emit(op.concat([past, new], axis=2))
            several = builder.emit(op.expand_dims(kept, [2]))
            shape = relax.ShapeExpr([1, HEADS, shared, p + t, WIDTH])
            several = builder.emit(op.broadcast_to(several, shape))
            keys = builder.emit(op.reshape(several, (1, heads, p + t, WIDTH)))
            turned = builder.emit(op.permute_dims(keys, [0, 1, 3, 2]))
            turned = builder.emit(op.multiply(turned, constant(np.float32(0.5))))
            rows = builder.emit(op.multiply(q, constant(np.float32(0.5))))
            scores = builder.emit(op.add(builder.emit(op.matmul(rows, turned)), mask))
            weights = builder.emit(op.nn.softmax(scores, axis=-1))
            missing = builder.emit(op.isnan(weights))
            weights = builder.emit(op.where(missing, constant(np.float32(0)), weights))
            result = builder.emit(op.matmul(weights, keys))
            outputs = builder.emit_output(relax.Tuple([result, kept]))
        builder.emit_func_output(outputs)
    return builder.get()


def test_a_growing_cache():
    built = tvm_rammer.build(growing(), num_veus=2)
    assert "attention_rammer" in built.executable.as_text()
    instance = built.create()
    for p, t in ((1, 1), (70, 1), (5, 3), (9, 40)):
        shapes = ((1, 2 * HEADS, t, WIDTH), (1, HEADS, p, WIDTH), (1, HEADS, t, WIDTH))
        q, past, new = (RNG.standard_normal(shape).astype("float32") for shape in shapes)
        mask = np.where(RNG.random((1, 1, t, p + t)) < 0.3, -np.inf, 0).astype("float32")
        mask[..., 0, :] = -np.inf
        result, kept = (each.numpy() for each in instance(q, past, new, mask))
        joined = np.concatenate([past, new], axis=2)
        np.testing.assert_array_equal(kept, joined)
        keys = np.repeat(joined, 2, axis=1).astype("float64")
        scores = q @ keys.swapaxes(2, 3) * 0.25 + mask
        with np.errstate(invalid="ignore"):
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
        want = np.nan_to_num(weights) @ keys
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)
