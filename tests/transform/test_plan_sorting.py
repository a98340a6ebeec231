"""topk, sort and argsort become loops that compute what numpy's stable sort does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_rammer
from tvm_rammer.relax_util import calls_of, operator_name
from tvm_rammer.transform.plan_sorting import PlanSorting

SORTING = {"relax.topk", "relax.sort", "relax.argsort"}
#: A row that is too long for ranks, and more elements than are inserted one by one.
LONG, MANY = 513, 33
TYPES = ("float32", "float64", "float16", "int32", "int64", "int8", "uint8")


def module(shape: Sequence[int], dtype: str, apply: Callable[[Any], Any]) -> tvm.IRModule:
    """A function of one operator."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(apply(x))
        builder.emit_func_output(result)
    return builder.get()


def left(mod: tvm.IRModule) -> set[str]:
    """The operators of sorting that a module still has."""
    return {operator_name(call) for call in calls_of(mod)} & SORTING


def results(mod: tvm.IRModule, data: np.ndarray, **options: Any) -> list[np.ndarray]:
    found = tvm_rammer.build(mod, **options).create()(data)
    return [each.numpy() for each in (found if isinstance(found, list | tuple) else [found])]


def order(data: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Where elements stand in a stable sort, NaN the largest."""
    if not descending:
        return np.argsort(data, axis, kind="stable")
    turned = np.argsort(np.flip(data, axis), axis, kind="stable")
    return data.shape[axis] - 1 - np.flip(turned, axis)


def ties(shape: Sequence[int], dtype: str) -> np.ndarray:
    """Numbers of which many are equal."""
    numbers = np.random.default_rng(len(shape)).integers(0, 7, shape)
    return (numbers if dtype == "uint8" else numbers - 3).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((5, 9), -1, 3), ((3, 40, 2), 1, MANY), ((LONG,), 0, 2)],
    ids=["inserted", "ranks", "long row"],
)
def test_topk_takes_the_first_of_a_stable_sort(shape, axis, count, descending, dtype):
    mod = module(shape, dtype, lambda x: relax.op.topk(x, count, axis, "both", descending, "int64"))
    assert not left(PlanSorting()(mod))
    data = ties(shape, dtype)
    values, places = results(mod, data)
    wanted = order(data, axis, descending).take(range(count), axis)
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(data, wanted, axis))
    assert (values.dtype, places.dtype) == (dtype, "int64")


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("length", [20, 200])
def test_sort_and_argsort(length, descending):
    data = ties((2, length), "float32")
    found = results(module(data.shape, "float32", lambda x: relax.op.sort(x, -1, descending)), data)
    places = results(
        module(data.shape, "float32", lambda x: relax.op.argsort(x, -1, descending, "int32")), data
    )
    wanted = order(data, -1, descending)
    np.testing.assert_array_equal(found[0], np.take_along_axis(data, wanted, -1))
    np.testing.assert_array_equal(places[0], wanted)


@pytest.mark.parametrize("kind", ["values", "indices"])
def test_one_of_topks_results_alone(kind):
    data = ties((4, 8), "int32")
    mod = module(data.shape, "int32", lambda x: relax.op.topk(x, 2, -1, kind, True, "int32"))
    wanted = order(data, -1, True)[:, :2]
    (found,) = results(mod, data)
    values = np.take_along_axis(data, wanted, -1)
    np.testing.assert_array_equal(found, values if kind == "values" else wanted)


@pytest.mark.parametrize("count", [4, MANY])
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_is_the_largest_and_zeros_are_equal(dtype, descending, count):
    data = np.zeros(40, dtype)
    data[:10] = [0.0, np.nan, -0.0, 1.0, -np.inf, np.inf, -np.nan, -1.0, 5e-8, -5e-8]
    mod = module(data.shape, dtype, lambda x: relax.op.topk(x, count, 0, "indices", descending))
    np.testing.assert_array_equal(results(mod, data)[0], order(data, 0, descending)[:count])


def test_extremes_of_integers_keep_their_order():
    info = np.iinfo("int32")
    data = np.array([info.max, info.min, 0, info.min, info.max, -1], "int32")
    for descending in (True, False):
        mod = module(data.shape, "int32", lambda x, d=descending: relax.op.argsort(x, 0, d))
        np.testing.assert_array_equal(results(mod, data)[0], order(data, 0, descending))


@pytest.mark.parametrize(
    ("shape", "dtype", "count"),
    [((LONG,), "float32", MANY), ((8,), "bool", 2), ((0, 4), "float32", 2)],
    ids=["many of a long row", "booleans", "nothing"],
)
def test_what_is_left_to_tvm(shape, dtype, count):
    mod = module(shape, dtype, lambda x: relax.op.topk(x, count, 0 if len(shape) == 1 else 1))
    assert left(PlanSorting()(mod)) == {"relax.topk"}


def test_long_rows_compute_the_same_as_before():
    data = ties((LONG,), "float32")
    mod = module(data.shape, "float32", lambda x: relax.op.topk(x, MANY, 0, "values"))
    np.testing.assert_array_equal(results(mod, data)[0], np.sort(data)[::-1][:MANY])


def test_a_router_stays_in_one_region():
    """Tokens that choose among experts: what is before and after a choice is planned with it."""

    def router(x: Any) -> Any:
        scores = relax.op.nn.softmax(relax.op.matmul(x, relax.const(np.eye(64, dtype="float32"))))
        return relax.op.add(relax.op.topk(scores, 4, -1, "values"), relax.const(1.0))

    report = tvm_rammer.build(module((6, 64), "float32", router), policy="wavefront").report
    assert len(report.regions) == 1
    assert not report.left_out


def test_any_legal_order_of_the_tasks_gives_the_same():
    data = ties((3, 40), "float32")
    for count in (4, MANY):
        mod = module(data.shape, "float32", lambda x, k=count: relax.op.topk(x, k, 1, "indices"))
        for _ in range(3):
            (found,) = results(mod, data, backend="interpret")
            np.testing.assert_array_equal(found, order(data, 1, True)[:, :count])


def test_for_gpus_by_ranks_alone():
    """Nothing walks rows one by one there."""
    short, long = (
        module((2, length), "float32", lambda x: relax.op.topk(x, 2, 1, "values"))
        for length in (64, LONG)
    )
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        after = PlanSorting()(short)
        assert left(PlanSorting()(long)) == {"relax.topk"}
    assert not left(after)
    assert "_ranks" in {symbol.name_hint for symbol in after.get_global_vars()}
