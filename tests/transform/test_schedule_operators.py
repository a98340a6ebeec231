"""What is in no region calls the same rKernels, one after the other."""

from __future__ import annotations

import numpy as np
import tvm
import tvm_ffi
from small_graphs import TARGET, calls, vdevice
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_rammer.frontend import load_model
from tvm_rammer.kernel.library import KernelLibrary
from tvm_rammer.testing import models
from tvm_rammer.transform.prepare import Prepare
from tvm_rammer.transform.schedule_operators import ScheduleOperators


def prim_funcs(mod: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    return {g.name_hint: f for g, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}


def test_what_is_in_no_region_calls_scheduled_rkernels():
    with TARGET:
        mod = Prepare()(load_model(models.lstm(1, 2, 16)).module)
    kernels = KernelLibrary(vdevice())
    scheduled = ScheduleOperators(kernels)(mod)
    assert len(calls(scheduled["main"])) == len(calls(mod["main"]))
    functions = prim_funcs(scheduled)
    called = {call.args[0].name_hint for call in calls(scheduled["main"])}
    assert called == functions.keys()
    assert all(func.attrs["tirx.is_scheduled"] for func in functions.values())


def test_tiles_run_in_parallel():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((512, 512), "float32"), w: R.Tensor((512, 512), "float32")):
            with R.dataflow():
                y = R.matmul(x, w)
                R.output(y)
            return y

    with TARGET:
        mod = Prepare()(Module)
    (func,) = prim_funcs(ScheduleOperators(KernelLibrary(vdevice()))(mod)).values()
    kinds: list[int] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, lambda loop: kinds.append(int(loop.kind))))
    assert int(tirx.ForKind.PARALLEL) in kinds and int(tirx.ForKind.VECTORIZED) in kinds


def test_scheduled_operators_stay_as_they_are():
    with TARGET:
        mod = Prepare()(load_model(models.lstm(1, 2, 16)).module)
    once = ScheduleOperators(KernelLibrary(vdevice()))(mod)
    tvm.ir.assert_structural_equal(ScheduleOperators(KernelLibrary(vdevice()))(once), once)


def test_a_constant_that_a_kernel_wants_packed_is_packed_once():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((64, 256), "float32"), w: R.Tensor((256, 256), "float32")):
            with R.dataflow():
                y = R.matmul(x, w)
                z = R.matmul(y, w)
                R.output(z)
            return z

    weights = np.random.default_rng(0).standard_normal((256, 256)).astype("float32")
    with TARGET:
        mod = Prepare()(relax.transform.BindParams("main", {"w": weights})(Module))
        scheduled = ScheduleOperators(KernelLibrary(vdevice()))(mod)
    first, second = (call.args[1].fields[1] for call in calls(scheduled["main"]))
    assert first.value.same_as(second.value)
