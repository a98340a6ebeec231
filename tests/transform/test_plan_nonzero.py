"""Where elements are not zero: numpy's answer, without numpy where it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from cuda_models import TARGET
from emulated_cuda import run_emulated
from small_graphs import calls
from tvm import relax, tirx

import tvm_rammer
from tvm_rammer.relax_util import operator_name
from tvm_rammer.transform.plan_nonzero import PlanNonzero

SHAPES = [(7,), (3, 5), (2, 1, 4, 3)]


def model(shape: tuple[Any, ...], dtype: str) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit_output(relax.op.nonzero(x))
        builder.emit_func_output(found)
    return builder.get()


def values(shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    """Some elements, none, all of them; of floats one that is no number."""
    some = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    if dtype == "float32":
        some.flat[1] = np.nan
    return [some, np.zeros(shape, dtype), np.ones(shape, dtype)]


@pytest.mark.parametrize("dtype", ["bool", "float32", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_they_are_numpys(shape, dtype):
    instance = tvm_rammer.build(model(shape, dtype)).create()
    for given in values(shape, dtype):
        (found,) = instance(given)
        assert found.numpy().dtype == "int64"
        np.testing.assert_array_equal(found.numpy(), np.nonzero(given))


def on_gpu() -> list[tuple[np.ndarray, list[np.ndarray]]]:
    found = []
    for shape in SHAPES:
        instance = tvm_rammer.build(model(shape, "float32"), TARGET, num_veus=3).create()
        given = values(shape, "float32")[::2]
        found.append((given, [instance(x)[0].numpy() for x in given]))
    return found


def test_they_stay_on_a_gpu():
    for given, found in run_emulated(on_gpu):
        for x, places in zip(given, found, strict=True):
            np.testing.assert_array_equal(places, np.nonzero(x))


@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_sizes_of_run_time(dtype):
    """Also where there are no elements; and nothing is called that only Python has."""
    library = tvm_rammer.build(model((tirx.Var("n", "int64"), tirx.Var("m", "int64")), dtype))
    assert "relax.run" not in library.executable.as_text()
    machine = relax.VirtualMachine(library.executable, tvm.cpu())
    for shape in [(3, 5), (1, 1), (0, 3), (7, 2)]:
        given = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
        found = machine["main"](tvm.runtime.tensor(given)).numpy()
        np.testing.assert_array_equal(found, np.nonzero(given))


def test_what_has_axes():
    for shape in ((3, 5), (tirx.Var("n", "int64"), 3)):
        names = [operator_name(each) for each in calls(PlanNonzero()(model(shape, "bool"))["main"])]
        assert "relax.nonzero" not in names
        assert ("relax.cumsum" in names) == (shape == (3, 5))
    for shape in ((0, 3), ()):
        unknown = model(shape, "bool")
        assert PlanNonzero()(unknown).same_as(unknown)
