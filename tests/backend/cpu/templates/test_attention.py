"""Attentions of few queries as rKernels: any sizes, any mask, and no look at what is hidden."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import HOST, VDEVICES, run_prim_func
from tvm import te, tirx

from tvm_rammer.backend.cpu.templates.attention_rule import FewQueriesRule, SharesOfPlaces
from tvm_rammer.kernel.attention_blocks import ATTENTION, AttentionFunc, attention
from tvm_rammer.kernel.split import split_into_stages
from tvm_rammer.kernel.work import work_of

LOWEST = float(np.finfo("float32").min)
INFINITE = float("-inf")


@dataclass(frozen=True)
class Case:
    """An attention: batches, rows, places, terms, columns; how it is masked, and its type."""

    sizes: tuple[int, int, int, int, int]
    mask: str = "none"
    zero: bool = False
    dtype: str = "float32"

    def func(self) -> tirx.PrimFunc:
        batches, rows, places, terms, columns = self.sizes
        query = te.placeholder((batches, rows, terms), "float32", "query")
        key = te.placeholder((batches, places, terms), self.dtype, "key")
        value = te.placeholder((batches, places, columns), self.dtype, "value")
        shape, dtype = self.mask_type()
        mask = te.placeholder(shape, dtype, "mask")

        def score(product: Any, b: Any, r: Any, p: Any) -> Any:
            scaled = product * tirx.const(0.25, "float32")
            if self.mask == "none":
                return scaled
            if self.mask == "capped":
                scaled = tirx.tanh(scaled / tirx.const(3.0, "float32"))
                return scaled * tirx.const(3.0, "float32") + mask(p)
            if self.mask == "chosen":
                return tirx.Select(mask(b, r, p), scaled, tirx.const(INFINITE, "float32"))
            return scaled + (mask(p) if self.mask == "shared" else mask(b, r, p))

        result = attention(
            lambda *at: query(*at),
            lambda *at: key(*at).astype("float32"),
            lambda *at: value(*at).astype("float32"),
            score,
            sizes=self.sizes,
            hidden_rows_are_zero=self.zero,
        )
        read = [query, key, value, *([] if self.mask == "none" else [mask])]
        made = te.create_prim_func([*read, result], index_dtype_override="int64")
        return made.with_attr("global_symbol", "main").with_attr(ATTENTION, 1)

    def mask_type(self) -> tuple[tuple[int, ...], str]:
        batches, rows, places, *_ = self.sizes
        shape = (places,) if self.mask in ("shared", "capped") else (batches, rows, places)
        return shape, "bool" if self.mask == "chosen" else "float32"

    def inputs(self, shown: np.ndarray, hidden: float, seed: int = 0) -> list[np.ndarray]:
        """Random numbers; what is not ``shown`` has a mask of ``hidden``."""
        rng = np.random.default_rng(seed)
        batches, rows, places, terms, columns = self.sizes
        shapes = (batches, rows, terms), (batches, places, terms), (batches, places, columns)
        query, key, value = (rng.standard_normal(shape).astype("float32") for shape in shapes)
        given = [query, key.astype(self.dtype), value.astype(self.dtype)]
        if self.mask == "none":
            return given
        shape, dtype = self.mask_type()
        shown = np.broadcast_to(shown, shape)
        bias = rng.standard_normal(shape).astype("float32")
        mask = shown if dtype == "bool" else np.where(shown, bias, np.float32(hidden))
        return [*given, np.ascontiguousarray(mask)]

    def expected(self, inputs: list[np.ndarray]) -> np.ndarray:
        """What the definition gives, in float64 from the scores on."""
        query, key, value, *mask = inputs
        scores = np.einsum("brt,bpt->brp", query, key.astype("float32")) * np.float32(0.25)
        if self.mask == "capped":
            scores = np.tanh(scores / 3) * 3
        if self.mask == "chosen":
            scores = np.where(mask[0], scores, np.float32(INFINITE))
        elif mask:
            scores = scores + mask[0]
        with np.errstate(invalid="ignore"):
            wide = scores.astype("float64")
            weights = np.exp(wide - wide.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
        found = np.einsum("brp,bpc->brc", weights, value.astype("float64"))
        if self.zero:
            found = np.where(np.isneginf(scores).all(-1, keepdims=True), 0, found)
        return found.astype("float32")


def in_parts(count: int) -> Any:
    """Makes kernels of so many parts."""

    def tuned(func: Any, *_: Any) -> Any:
        found = FewQueriesRule().match(func, frozenset(), HOST)
        return [FewQueriesRule().choice(found, SharesOfPlaces(count))]

    return tuned


def assert_runs(case: Case, inputs: list[np.ndarray], parts: int = 0, **options: Any) -> None:
    if parts:
        options["tuned"] = in_parts(parts)
    run = run_prim_func(case.func(), inputs, **options)
    assert run.origin == "attention"
    assert_close(run.outputs[0], case.expected(inputs))


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    sizes=st.tuples(
        st.integers(1, 5),
        st.sampled_from([1, 2, 3, 4, 5, 7, 8, 13, 16]),
        st.sampled_from([1, 3, 16, 31, 64, 100, 128, 129, 200, 256, 391]),
        st.sampled_from([1, 5, 16, 24, 32, 40, 64, 100]),
        st.sampled_from([1, 3, 16, 20, 64, 72, 130]),
    ),
    mask=st.sampled_from(["none", "shared", "capped", "apart", "chosen"]),
    vdevice=st.sampled_from(VDEVICES),
)
def test_any_sizes_and_masks(data, sizes, mask, vdevice):
    case = Case(sizes, mask, zero=data.draw(st.booleans()))
    seed, veus = data.draw(st.integers(0, 9)), data.draw(st.sampled_from([1, 2, 6, 16, 64]))
    shape, _ = case.mask_type()
    shown = np.random.default_rng(seed).random(shape) < data.draw(st.sampled_from([0.02, 0.5, 1.0]))
    shown[..., data.draw(st.integers(0, shape[-1] - 1))] = True
    inputs = case.inputs(shown, data.draw(st.sampled_from([LOWEST, INFINITE])), seed)
    assert_runs(case, inputs, vdevice=replace(vdevice, num_veus=veus), seed=seed)


@pytest.mark.parametrize("parts", [1, 2, 8])
@pytest.mark.parametrize("mask", ["shared", "apart", "chosen"])
@pytest.mark.parametrize("seen", [1, 70, 500, 1000])
def test_hidden_blocks_are_not_read(seen, mask, parts):
    """Nothing but NaN is there, which would show."""
    case = Case((2, 3, 1000, 24, 40), mask)
    shown = np.arange(1000) < seen
    inputs = case.inputs(shown, LOWEST)
    found = FewQueriesRule().match(case.func(), frozenset(), HOST)
    assert found is not None
    blocks = -(-seen // found.block) * found.block
    unread = [array.copy() for array in inputs]
    for array in unread[1:3]:
        array[:, blocks:] = np.nan
    with np.errstate(invalid="ignore"):
        run = run_prim_func(case.func(), unread, tuned=in_parts(parts))
    assert_close(run.outputs[0], case.expected(inputs))


@pytest.mark.parametrize("parts", [1, 2, 8])
@pytest.mark.parametrize("rows", ["one", "all"])
def test_a_row_without_any_place_has_equal_weights(rows, parts):
    """That is what the definition says where masks are finite; other rows stay what they are."""
    case = Case((2, 3, 640, 16, 16), "apart")
    shown = np.broadcast_to(np.arange(640) < 200, (2, 3, 640)).copy()
    shown[1, 1 if rows == "one" else slice(None)] = False
    inputs = case.inputs(shown, LOWEST)
    assert_runs(case, inputs, parts)
    assert_close(
        run_prim_func(case.func(), inputs, tuned=in_parts(parts)).outputs[0][1, 1],
        inputs[2][1].mean(0),
    )


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("zero", [False, True])
def test_a_row_that_is_hidden_by_infinities(zero, parts):
    """NaN, as the definition says, or the zeros of PyTorch's attention."""
    case = Case((1, 2, 640, 16, 16), "apart", zero)
    shown = np.ones((1, 2, 640), bool)
    shown[0, 1] = False
    inputs = case.inputs(shown, INFINITE)
    found = run_prim_func(case.func(), inputs, tuned=in_parts(parts)).outputs[0]
    want = case.expected(inputs)
    assert np.isnan(want[0, 1]).all() != zero
    np.testing.assert_allclose(found, want, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_keys_of_other_types(dtype):
    case = Case((2, 2, 300, 32, 32), "shared", dtype=dtype)
    assert_runs(case, case.inputs(np.arange(300) < 111, LOWEST))


def test_large_scores():
    """Far apart, and rising: what came before is scaled down to nothing."""
    case = Case((1, 2, 512, 16, 16), "shared")
    inputs = case.inputs(np.ones(512, bool), LOWEST)
    inputs[3] = np.linspace(-3e4, 3e4, 512).astype("float32")
    assert_runs(case, inputs)
    inputs[3] = inputs[3][::-1].copy()
    assert_runs(case, inputs, parts=4)


def tiles(batches: int, places: int, veus: int) -> list[int]:
    case = Case((batches, 1, places, 16, 16))
    vdevice = replace(HOST, num_veus=veus)
    inputs = case.inputs(np.ones(places, bool), LOWEST)
    return run_prim_func(case.func(), inputs, vdevice=vdevice).tiles


def test_places_are_dealt_out_where_batches_are_few():
    assert tiles(8, 1024, 2) == [8]
    assert tiles(1, 1024, 1) == [1]
    assert tiles(1, 1024, 2) == [8, 1]
    assert tiles(3, 1024, 2) == [12, 3]
    assert tiles(8, 1024, 16) == [64, 8]
    # There are no more blocks.
    assert tiles(1, 128, 16) == [1]


def test_the_tuner_has_all_numbers_of_parts():
    found = FewQueriesRule().match(Case((1, 1, 1024, 16, 16)).func(), frozenset(), HOST)
    assert sorted(each.count for each in FewQueriesRule().space(found)) == [1, 2, 4, 8]
    case = Case((1, 4, 1024, 16, 16), "shared")
    inputs = case.inputs(np.arange(1024) < 600, LOWEST)
    for parts in (1, 2, 4, 8):
        assert_runs(case, inputs, parts)


def test_others_are_not_taken_for_attentions():
    func = Case((1, 1, 64, 16, 16)).func()
    assert AttentionFunc.of(func.without_attr(ATTENTION)) is None


@pytest.mark.parametrize("mask", ["none", "shared"])
def test_work_is_counted_once(mask):
    """The second look at what is hidden is for rows without anything: it does not count."""
    batches, rows, places, terms, columns = sizes = (2, 4, 512, 64, 64)
    scheduled = FewQueriesRule().apply(Case(sizes, mask).func(), frozenset(), HOST)
    (stage,) = split_into_stages(scheduled.func).stages
    work = work_of(stage.body, stage.num_tiles, [1 << 30] * len(stage.arguments))
    products = 2 * batches * rows * places * (terms + columns)
    assert products < work.flops < 1.5 * products
