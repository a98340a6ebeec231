"""NaN comes out of ReLU, Clip and the maximum of two tensors as it went in."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from inspect import signature
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_rammer
from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline

COUNT = 64


def number(value: float, like: Any) -> Any:
    return tirx.const(value, str(like.dtype))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: tirx.max(x, number(0, x)),
    "clip": lambda x: tirx.min(tirx.max(x, number(-1, x)), number(6, x)),
    "clip from above": lambda x: tirx.max(tirx.min(x, number(6, x)), number(-1, x)),
}


def compiled(function: Callable[..., Any], dtype: str, lanes: int, target: Any = None) -> Any:
    inputs = [te.placeholder((COUNT,), dtype, name=name) for name in signature(function).parameters]
    y = te.compute((COUNT,), lambda i: function(*(x[i] for x in inputs)), "y")
    sch = Schedule(te.create_prim_func([*inputs, y]))
    if lanes > 1:
        (loop,) = sch.get_loops(sch.get_sblock("y"))
        sch.vectorize(sch.split(loop, [None, lanes])[1])
    func = sch.mod["main"].with_attrs({"global_symbol": "main", "s_tir": True})
    module = tvm.IRModule({"main": func})
    return tvm.tirx.build(module, resolve_target(target), pipeline=lowering_pipeline())


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("lanes", [1, 16])
def test_nan_is_kept(name, dtype, lanes):
    x = np.linspace(-9, 9, COUNT).astype(dtype)
    x[[0, 5, 40, 63]] = np.nan
    got = tvm.runtime.tensor(np.zeros_like(x))
    compiled(FUNCTIONS[name], dtype, lanes)["main"](tvm.runtime.tensor(x), got)
    low, high = (0, np.inf) if name == "relu" else (-1, 6)
    np.testing.assert_array_equal(got.numpy(), np.clip(x, low, high))


@pytest.mark.parametrize(
    ("cpu", "lanes"), [("skylake-avx512", 16), ("core-avx2", 8), ("nehalem", 4)]
)
def test_one_instruction_for_each_comparison(cpu, lanes):
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu})
    for name, function in FUNCTIONS.items():
        text = compiled(function, "float32", lanes, target).inspect_source("asm")
        assert re.search(r"v?maxps", text), name
        assert not re.search(r"cmp[a-z]*ps|blendv", text), name


@pytest.mark.parametrize(("function", "wanted"), [(tirx.max, np.maximum), (tirx.min, np.minimum)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("lanes", [1, 16])
def test_nan_of_either_tensor_is_kept(function, wanted, dtype, lanes):
    x, y = np.random.default_rng(0).standard_normal((2, COUNT)).astype(dtype)
    x[[0, 5, 40]] = y[[5, 41, 63]] = np.nan
    x[7], y[8], x[9], y[10] = np.inf, np.inf, -np.inf, -np.inf
    got = tvm.runtime.tensor(np.zeros_like(x))
    main = compiled(lambda x, y: function(x, y), dtype, lanes)["main"]
    main(tvm.runtime.tensor(x), tvm.runtime.tensor(y), got)
    np.testing.assert_array_equal(got.numpy(), wanted(x, y))


def test_three_instructions_for_two_tensors():
    target = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})
    text = compiled(lambda x, y: tirx.max(x, y), "float32", 16, target).inspect_source("asm")
    assert len(re.findall(r"vmaxps", text)) == len(re.findall(r"vcmpunordps", text)) > 0
    assert not re.search(r"vblendmps|vpmovd2m|vfpclass", text)


@pytest.mark.parametrize("name", ["pool", "reduction"])
def test_what_reduces_takes_one_instruction_for_each_element(name):
    x = te.placeholder((COUNT, 16), "float32", name="x")
    window = te.reduce_axis((0, 4), "window")
    functions = {
        "pool": lambda i, c: reduce(tirx.max, [x[4 * i + k, c] for k in range(4)]),
        "reduction": lambda i, c: te.max(x[4 * i + window, c], window),
    }
    sch = Schedule(te.create_prim_func([x, te.compute((COUNT // 4, 16), functions[name], "y")]))
    sch.vectorize(sch.get_loops(sch.get_sblock("y"))[1])
    func = sch.mod["main"].with_attrs({"global_symbol": "main", "s_tir": True})
    target = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})
    module = tvm.tirx.build(tvm.IRModule({"main": func}), target, pipeline=lowering_pipeline())
    text = module.inspect_source("asm")
    assert "maxps" in text and "unordps" not in text


@I.ir_module
class Model:
    """Both in the epilogue of a product and alone."""

    @R.function
    def main(x: R.Tensor((5, 37), "float32"), w: R.Tensor((37, 37), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            a = R.nn.relu(y)
            b = R.clip(x, -1, 6)
            c = R.maximum(R.matmul(y, w), y)
            result = (a, b, c)
            R.output(result)
        return result


def test_nan_is_kept_by_a_model():
    x, w = np.full((5, 37), -2, "float32"), np.eye(37, dtype="float32")
    x[1, 30:] = np.nan
    relu, clip, larger = tvm_rammer.build(Model).create()(x, w)
    np.testing.assert_array_equal(relu.numpy(), np.maximum(x @ w, 0))
    np.testing.assert_array_equal(clip.numpy(), np.clip(x, -1, 6))
    np.testing.assert_array_equal(larger.numpy(), np.maximum(x @ w @ w, x @ w))
