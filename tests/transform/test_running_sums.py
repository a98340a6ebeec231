"""Running sums and products for GPUs: numpy's, of few terms and in parts."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from cuda_models import TARGET, outputs
from emulated_cuda import run_emulated
from tvm import te

import tvm_rammer
from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.transform.running_sums import running_products, running_sums


def expected(x: np.ndarray, axis: int, exclusive: bool, product: bool) -> np.ndarray:
    found = (np.cumprod if product else np.cumsum)(x, axis)
    if not exclusive:
        return found
    first = np.full_like(np.take(found, [0], axis), product)
    return np.concatenate([first, np.delete(found, -1, axis)], axis)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1,), 0), ((3, 5), 1), ((64, 2), 0), ((65,), 0), ((2, 300, 3), 1), ((7, 1000), 1)],
)
def test_they_are_numpys(shape, axis, product, exclusive):
    x = te.placeholder(shape, "float64")
    made = (running_products if product else running_sums)(x, axis, exclusive)
    func = tvm.compile(te.create_prim_func([x, made]), target="llvm")
    value = np.random.default_rng(0).uniform(0.8, 1.2, shape)
    result = tvm.runtime.tensor(np.zeros(shape))
    func(tvm.runtime.tensor(value), result)
    wanted = expected(value, axis, exclusive, product)
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-12)


def test_what_lies_behind_does_not_matter():
    x = te.placeholder((6,), "float32")
    func = tvm.compile(te.create_prim_func([x, running_sums(x, 0, False)]), target="llvm")
    result = tvm.runtime.tensor(np.zeros(6, "float32"))
    func(tvm.runtime.tensor(np.array([1, 2, 3, np.inf, 4, np.nan], "float32")), result)
    np.testing.assert_array_equal(result.numpy(), [1, 3, 6, np.inf, np.inf, np.nan])


def planned() -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Sums of integers and floats on emulated CUDA, what they are, and operators in plans."""
    graph = GraphBuilder("sums")
    x, y = graph.input("x", (3, 200)), graph.input("y", (2, 9, 4), np.int64)
    graph.output("a", graph.op("CumSum", x, graph.constant(1, "int64"), exclusive=1))
    graph.output("b", graph.op("CumSum", y, graph.constant(-2, "int64"), reverse=1))
    library = tvm_rammer.build(graph.build(), TARGET, policy="wavefront", num_veus=3)
    rng = np.random.default_rng(0)
    values = {
        "x": rng.standard_normal((3, 200)).astype("float32"),
        "y": rng.integers(-9, 9, (2, 9, 4)),
    }
    wanted = [
        expected(values["x"], 1, exclusive=True, product=False),
        np.flip(np.cumsum(np.flip(values["y"], 1), 1), 1),
    ]
    operators = sum(len(program.operators) for program in library.programs.values())
    return outputs(library, values), wanted, operators


def test_they_are_planned_for_gpus():
    found, wanted, operators = run_emulated(planned)
    np.testing.assert_allclose(found[0], wanted[0], atol=1e-4)
    np.testing.assert_array_equal(found[1], wanted[1])
    assert operators >= 2
