"""What is in no region calls the same rKernels, one after the other."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from close import assert_close
from small_graphs import TARGET, calls, vdevice
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tvm_rammer.frontend import load_model
from tvm_rammer.region.kernel_library import KernelLibrary
from tvm_rammer.relax_util import operator_name
from tvm_rammer.testing import models
from tvm_rammer.transform.prepare import Prepare
from tvm_rammer.transform.schedule_operators import ScheduleOperators


def scheduled(mod: tvm.IRModule, prepare: bool = True) -> tvm.IRModule:
    with TARGET:
        prepared = Prepare()(mod) if prepare else mod
    return ScheduleOperators(KernelLibrary(vdevice()), TARGET)(prepared)


def symbols(func: relax.Function) -> list[str]:
    """What a function calls outside of its module."""
    packed = [c for c in calls(func) if operator_name(c) == "relax.call_dps_packed"]
    return [str(call.args[0].global_symbol) for call in packed]


def sources(mod: tvm.IRModule) -> list[str]:
    return [module.inspect_source("ll") for module in mod.attrs["external_mods"]]


def run(mod: tvm.IRModule, *inputs: np.ndarray) -> Any:
    vm = relax.VirtualMachine(relax.build(mod, TARGET), tvm.cpu())
    return vm["main"](*map(tvm.runtime.tensor, inputs)).numpy()


@I.ir_module
class Product:
    @R.function
    def main(x: R.Tensor((64, 256), "float32"), w: R.Tensor((256, 256), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.exp(R.matmul(y, w))
            R.output(z)
        return z


def test_every_call_tir_becomes_the_call_of_a_compiled_rkernel():
    """Equal PrimFuncs are compiled once, and none stays in the module."""
    with TARGET:
        mod = Prepare()(load_model(models.lstm(1, 2, 16)).module)
    result = scheduled(mod, prepare=False)
    assert len(symbols(result["main"])) == len(calls(result["main"])) == len(calls(mod["main"]))
    assert not [f for _, f in result.functions_items() if isinstance(f, tirx.PrimFunc)]
    defined = [
        name
        for name in set(symbols(result["main"]))
        for text in sources(result)
        if f"@__tvm_ffi_{name}(" in text
    ]
    assert sorted(defined) == sorted(set(symbols(result["main"])))


def test_many_operators_are_compiled_in_several_modules():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((600,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            # A sort between two operators, of a long row, keeps them from fusing.
            value: Any = x
            for number in range(20):
                value = builder.emit(relax.op.add(value, relax.const(float(number), "float32")))
                value = builder.emit(relax.op.sort(value))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    mod = scheduled(builder.get())
    assert len(mod.attrs["external_mods"]) == 2
    data = np.random.default_rng(0).permutation(600).astype(np.float32)
    assert_close(run(mod, data), np.sort(data) + sum(range(20)))


def test_tiles_run_in_parallel_on_vectors():
    """Elementary functions too are the code of a plan's kernels, not calls of libm."""
    (text,) = sources(scheduled(Product))
    assert "ParallelLaunch" in text and re.search(r"<\d+ x float>", text)
    assert "llvm.exp" not in text and "expf" not in text


def test_the_result_runs():
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype("float32") / 16 for shape in ((64, 256), (256, 256)))
    assert_close(run(scheduled(Product), x, w), np.exp(x @ w @ w))


def test_another_shape_needs_no_copy():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((64, 256), "float32")):
            with R.dataflow():
                y = R.reshape(R.nn.softmax(x), (128, 128))
                z = R.nn.softmax(y)
                R.output(z)
            return z

    names = [operator_name(call) for call in calls(scheduled(Module)["main"])]
    assert sorted(names) == ["relax.call_dps_packed", "relax.call_dps_packed", "relax.reshape"]


def test_a_second_run_changes_nothing():
    once = scheduled(Product)
    assert scheduled(once, prepare=False).same_as(once)


def test_a_constant_that_a_kernel_wants_packed_is_packed_once():
    weights = np.random.default_rng(0).standard_normal((256, 256)).astype("float32")
    result = scheduled(relax.transform.BindParams("main", {"w": weights})(Product))
    first, second = (call.args[1].fields[1] for call in calls(result["main"]))
    assert first.value.same_as(second.value)


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_a_packed_constant_keeps_its_dtype(dtype):
    values = np.arange(-64, 64).reshape(16, 8).astype(dtype)
    x = relax.Var("x", relax.TensorType((5, 16), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(values, dtype)))
            out = builder.emit_output(product)
        builder.emit_func_output(out)
    numbers = np.arange(80).reshape(5, 16).astype(dtype)
    np.testing.assert_array_equal(run(scheduled(builder.finalize()), numbers), numbers @ values)


def test_a_symbol_is_not_that_of_another_packed_function():
    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def twice(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("twice"):
                    v = T.axis.spatial(4, i)
                    b[v] = a[v] + a[v]

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            with R.dataflow():
                a = R.call_dps_packed("twice_rammer", (x,), out_ty=R.Tensor((4,), "float32"))
                b = R.call_tir(cls.twice, (a,), out_ty=R.Tensor((4,), "float32"))
                R.output(b)
            return b

    result = scheduled(Module, prepare=False)
    assert symbols(result["main"]) == ["twice_rammer", "twice_rammer1"]


@pytest.mark.parametrize("inplace", [False, True])
def test_dynamic_shapes_and_writing_in_place_stay_as_they_are(inplace):
    @I.ir_module
    class Dynamic:
        @T.prim_func(private=True, s_tir=True)
        def twice(a: T.handle, b: T.handle):
            n = T.int64()
            x = T.match_buffer(a, (n,))
            y = T.match_buffer(b, (n,))
            for i in range(n):
                with T.sblock("twice"):
                    v = T.axis.spatial(n, i)
                    y[v] = x[v] + x[v]

        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            cls = Dynamic
            with R.dataflow():
                y = R.call_tir(cls.twice, (x,), out_ty=R.Tensor((n,), "float32"))
                R.output(y)
            return y

    @I.ir_module
    class Inplace:
        @T.prim_func(private=True, s_tir=True)
        def twice(a: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("twice"):
                    v = T.axis.spatial(4, i)
                    a[v] = a[v] + a[v]

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Inplace
            with R.dataflow():
                y = R.call_tir_inplace(
                    cls.twice, (x,), out_ty=R.Tensor((4,), "float32"), inplace_indices=[0]
                )
                R.output(y)
            return y

    mod = Inplace if inplace else Dynamic
    assert scheduled(mod, prepare=False).same_as(mod)
