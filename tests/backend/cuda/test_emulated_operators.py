"""What TVM generates for CUDA runs under the emulation, TVM's host code and Relax VM unchanged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from cuda_operators import OPERATORS, TARGET, operator
from emulated_cuda import (
    ORDERS,
    barriers,
    edited,
    lane_order,
    looking_for_races,
    run_emulated,
    without_barrier,
)
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Kernel:
    """An operator of stock TVM, compiled for the emulation.

    Attributes
    ----------
    run : callable
        Gives the error of its result, in the lane order that is set.
    barriers : list of int
        The lines with a ``__syncthreads``.
    """

    run: Callable[[], float]
    barriers: list[int]


def compiled(kind: str, races: bool = False) -> Kernel:
    module, inputs, expected = operator(kind)
    sources: list[str] = []
    watching = looking_for_races() if races else nullcontext()
    with edited(lambda source: sources.append(source) or source), TARGET, watching:
        built = tvm.compile(module, target=TARGET)

    def run() -> float:
        device = tvm.cuda(0)
        result = tvm.runtime.tensor(np.full_like(expected, np.nan), device)
        built[kind](*[tvm.runtime.tensor(x, device) for x in inputs], result)
        error = np.abs(result.numpy() - expected).max() / np.abs(expected).max()
        return float(np.nan_to_num(error, nan=np.inf))

    return Kernel(run, barriers(sources[0]))


def worst_error(kind: str, races: bool = False) -> float:
    kernel = compiled(kind, races)
    errors = []
    for order in ORDERS:
        with lane_order(order):
            errors.append(kernel.run())
    return max(errors)


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_kernel_computes_what_numpy_does_in_every_order(kind):
    assert run_emulated(worst_error, kind) < TOLERANCE


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_kernel_of_stock_tvm_has_no_races(kind):
    assert run_emulated(worst_error, kind, races=True) < TOLERANCE


def is_noticed(kernel: Kernel, line: int) -> bool:
    """Whether a kernel without a barrier gives an error or a wrong result in some lane order."""
    for order in ORDERS:
        try:
            with lane_order(order), without_barrier(line):
                if kernel.run() > TOLERANCE:
                    return True
        except Exception as error:
            assert "emulated CUDA: a race" in str(error)
            return True
    return False


def notice(kind: str) -> tuple[list[bool], list[bool]]:
    """For each barrier, whether its removal shows in a result, and whether as a race."""
    plain, watched = compiled(kind), compiled(kind, races=True)
    assert plain.barriers == watched.barriers
    return (
        [is_noticed(plain, line) for line in plain.barriers],
        [is_noticed(watched, line) for line in watched.barriers],
    )


@pytest.mark.parametrize(("kind", "idle"), [("matmul", []), ("conv", []), ("softmax", [1, 4])])
def test_a_barrier_that_is_missing_is_noticed(kind, idle):
    """By results in some order and by races; ``idle`` ones order nothing: TVM adds them."""
    results, races = run_emulated(notice, kind)
    needed = [nth not in idle for nth in range(len(results))]
    assert races == needed and any(results)
    assert all(race for race, result in zip(races, results, strict=True) if result)


@I.ir_module
class Network:
    @R.function
    def main(x: R.Tensor((32, 64), "float32"), w: R.Tensor((64, 48), "float32")):
        with R.dataflow():
            a = R.nn.softmax(R.matmul(x, w))
            b = R.concat([a, R.tanh(x)], axis=1)
            R.output(b)
        return b


def relax_error() -> float:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("float32") for s in ((32, 64), (64, 48)))
    with TARGET:
        built = relax.build(Network, TARGET)
    device = tvm.cuda(0)
    result = relax.VirtualMachine(built, device)["main"](
        *[tvm.runtime.tensor(v, device) for v in (x, w)]
    )
    e = np.exp(x @ w - (x @ w).max(1, keepdims=True))
    expected = np.concatenate([e / e.sum(1, keepdims=True), np.tanh(x)], 1)
    return float(np.abs(result.numpy() - expected).max())


def test_the_relax_vm_runs_on_the_emulated_device():
    assert run_emulated(relax_error) < TOLERANCE


def fail() -> None:
    raise ValueError("no such thing")


def test_an_error_comes_back_from_the_process():
    with pytest.raises(RuntimeError, match=r"^ValueError: no such thing$"):
        run_emulated(fail)


def emulated_exists() -> bool:
    return bool(tvm.cuda(0).exist)


def test_this_process_is_not_disturbed():
    before = emulated_exists()
    assert run_emulated(emulated_exists)
    assert emulated_exists() == before
