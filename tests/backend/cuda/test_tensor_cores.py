"""Products of float16 on tensor cores: what they compute, in whole warps, and what orders them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from cuda_models import TARGET, outputs
from emulated_cuda import (
    ORDERS,
    barriers,
    edited,
    looking_for_races,
    run_emulated,
    without_barrier,
)
from tvm import relax, te, topi

import tvm_rammer
from tvm_rammer.backend.cuda import tensor_matmul
from tvm_rammer.backend.cuda.arch_target import LIMITS, target_of, vdevice_of
from tvm_rammer.backend.cuda.cubin import compile_cubin, find_tool
from tvm_rammer.backend.cuda.made_stages import made_stages
from tvm_rammer.backend.cuda.schedules import schedule
from tvm_rammer.backend.cuda.tensor_matmul import TensorMatmul
from tvm_rammer.errors import ModelError
from tvm_rammer.testing.reference import relative_error

OP = relax.op


@dataclass(frozen=True)
class Case:
    """A model of float16: its inputs, what it is for Relax and for numpy, and its error."""

    shapes: tuple[tuple[int, ...], ...]
    model: Callable[..., Any]
    known: Callable[..., np.ndarray]
    limit: float = 1e-3


def convolution(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    edge = w.shape[2] // 2
    padded = np.pad(x, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


def wide(a: Any, b: Any) -> Any:
    return OP.matmul(a, b, out_dtype="float32")


def wide_convolution(x: Any, w: Any) -> Any:
    edge = int(w.ty.shape[2]) // 2
    return OP.astype(OP.nn.conv2d(x, w, padding=edge, out_dtype="float32"), "float16")


CASES = {
    "sums_of_float32": Case(((64, 128), (128, 192)), wide, np.matmul, 1e-6),
    "sums_of_float16": Case(((64, 128), (128, 192)), OP.matmul, np.matmul, 1e-2),
    "by_columns": Case(
        ((64, 64), (128, 64)), lambda a, b: wide(a, OP.permute_dims(b)), lambda a, b: a @ b.T, 1e-6
    ),
    "ragged": Case(((70, 50), (50, 90)), wide, np.matmul, 1e-6),
    "batches": Case(((3, 64, 64), (3, 64, 64)), wide, np.matmul, 1e-6),
    "followed": Case(
        ((64, 128), (128, 64), (64,)),
        lambda a, b, c: OP.nn.relu(OP.add(OP.astype(wide(a, b), "float16"), c)),
        lambda a, b, c: np.maximum(a @ b + c, 0),
        2e-3,
    ),
    "convolution_1x1": Case(((1, 64, 8, 8), (64, 64, 1, 1)), wide_convolution, convolution),
    "convolution_3x3": Case(((1, 32, 9, 9), (64, 32, 3, 3)), wide_convolution, convolution),
}


def model_of(case: Case) -> tvm.IRModule:
    """A case beside another operator: one alone would not be planned."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{k}", relax.TensorType(shape, "float16"))
        for k, shape in enumerate(case.shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            results = [case.model(*params), OP.tanh(params[0])]
            made = [builder.emit_output(each) for each in results]
        builder.emit_func_output(made)
    return builder.get()


def error_and_kernels(name: str, form: str) -> tuple[float, set[str], str]:
    """The worst error in any order of lanes, the rules of the kernels, and the source."""
    case = CASES[name]
    rng = np.random.default_rng(0)
    given = {f"x{k}": rng.standard_normal(s).astype("float16") for k, s in enumerate(case.shapes)}
    known = case.known(*(value.astype("float64") for value in given.values()))
    sources: list[str] = []
    with looking_for_races(), edited(lambda source: sources.append(source) or source):
        library = tvm_rammer.build(
            model_of(case), TARGET, form=form, policy="wavefront", num_veus=3
        )
    error = max(relative_error(outputs(library, given, order)[0], known) for order in ORDERS)
    origins = {kernel.origin for p in library.programs.values() for kernel in p.kernels}
    return error, origins, max(sources, key=len)


@pytest.mark.parametrize("name", CASES)
def test_products_compute_what_numpy_does_without_races(name):
    error, origins, source = run_emulated(error_and_kernels, name, "program")
    assert "tensormatmul" in origins
    assert error < CASES[name].limit
    if find_tool("nvcc"):
        assert not compile_cubin(source, "sm_90").spilling


def test_products_by_wavefront():
    error, origins, _ = run_emulated(error_and_kernels, "followed", "wavefront")
    assert "tensormatmul" in origins
    assert error < CASES["followed"].limit


def without_each_barrier() -> Counter[str]:
    """How often the removal of a barrier is a race, changes a result unnoticed, or nothing."""
    case = CASES["sums_of_float32"]
    rng = np.random.default_rng(0)
    given = {f"x{k}": rng.standard_normal(s).astype("float16") for k, s in enumerate(case.shapes)}
    known = case.known(*(value.astype("float64") for value in given.values()))
    sources: list[str] = []
    with looking_for_races(), edited(lambda source: sources.append(source) or source):
        library = tvm_rammer.build(model_of(case), TARGET, policy="wavefront", num_veus=1)
    source = max(sources, key=len)
    # Barriers of bodies come behind those of what walks the table.
    first = source[: source.index("fill_fragment")].count("\n")

    def result(line: int) -> str:
        try:
            with without_barrier(line):
                got = outputs(library, given)[0]
        except Exception as error:
            assert "emulated CUDA: a race" in str(error)
            return "race"
        return "idle" if relative_error(got, known) < case.limit else "wrong"

    return Counter(result(line) for line in barriers(source) if line > first)


def test_a_barrier_that_is_missing_around_fragments_is_a_race():
    """Between stores to shared memory and loads of fragments, and stores of those and loads."""
    found = run_emulated(without_each_barrier)
    assert not found["wrong"]
    assert found["race"] >= 3


def product(dtype: str, m: int = 256, n: int = 256, k: int = 256) -> tvm.tirx.PrimFunc:
    a, b = te.placeholder((m, k), dtype), te.placeholder((k, n), dtype)
    return te.create_prim_func([a, b, topi.nn.matmul(a, b)])


def test_they_are_taken_where_they_are_fast():
    device = vdevice_of(target_of("sm_90"), 264)
    assert schedule(product("float16"), device, LIMITS).origin == "tensormatmul"
    assert schedule(product("float32"), device, LIMITS).origin != "tensormatmul"
    # One row would be a sixteenth of what is computed.
    assert schedule(product("float16", m=1), device, LIMITS).origin != "tensormatmul"


def test_parts_of_warps_are_refused(monkeypatch):
    target = target_of("sm_90")
    monkeypatch.setattr(tensor_matmul, "WARP_THREADS", 16)
    answer = TensorMatmul((2, 2), (1, 1), 4).apply(product("float16"), target, False)
    func = answer.mod["main"].with_attr("tirx.is_scheduled", True)
    with pytest.raises(ModelError, match="uses tensor cores with a part of a warp"):
        made_stages(func, target, LIMITS)
