"""A region becomes one call of its kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from close import assert_close
from small_graphs import TARGET, Op, calls, number_function, small_module, vdevice
from tvm import relax
from tvm.ir import GenericConst
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_rammer.backend.cpu.codegen.instruction_table import Header
from tvm_rammer.frontend import load_model
from tvm_rammer.options import Goal, Options
from tvm_rammer.region.compiler import RegionCompiler
from tvm_rammer.region.kernel_library import KernelLibrary
from tvm_rammer.region.marks import is_region
from tvm_rammer.relax_util import operator_name
from tvm_rammer.rprogram import RProgram
from tvm_rammer.rprogram.verify import verify
from tvm_rammer.testing import models
from tvm_rammer.transform.add_guard import AddGuard
from tvm_rammer.transform.co_schedule import CoScheduled, co_schedule
from tvm_rammer.transform.partition_regions import PartitionRegions
from tvm_rammer.transform.prepare import Prepare
from tvm_rammer.transform.schedule_operators import ScheduleOperators


def compiler() -> RegionCompiler:
    return RegionCompiler(TARGET, KernelLibrary(vdevice()))


def scheduled(
    mod: tvm.IRModule, *options: Any, one: RegionCompiler | None = None, veus: int = 2
) -> CoScheduled:
    return co_schedule(mod, one or compiler(), Goal(Options(*options), TARGET, vdevice(veus)))


def without_modules(mod: tvm.IRModule) -> tvm.IRModule:
    """A runtime.Module has no structure to compare."""
    return mod.without_attr("external_mods")


@pytest.fixture(scope="module")
def lstm() -> tvm.IRModule:
    passes = tvm.transform.Sequential([Prepare(), PartitionRegions()])
    with TARGET:
        return passes(load_model(models.lstm(2, 2, 16)).module)


@pytest.mark.parametrize(
    ("seconds", "milliseconds"), [(60.0, 60_000), (2.5, 2_500), (4e-4, 1), (0, 0)]
)
def test_the_wait_limit_is_in_the_table(lstm, seconds, milliseconds):
    goal = Goal(Options("wavefront", wait_limit=seconds), TARGET, vdevice())
    (region,) = co_schedule(lstm, compiler(), goal).regions
    assert region.code.table[Header.WAIT_LIMIT] == milliseconds


def test_a_region_becomes_one_call_of_its_kernel(lstm):
    result = scheduled(lstm)
    planned, (region,) = result.module, result.regions
    assert not [func for _, func in planned.functions_items() if is_region(func)]
    (call,) = calls(planned["main"])
    assert operator_name(call) == "relax.call_dps_packed"
    assert call.args[0].global_symbol == region.program.name == "rammer_region0"
    *inputs, constants, table = call.args[1].fields
    assert list(inputs) == list(planned["main"].params)
    assert isinstance(constants, GenericConst) and isinstance(table, GenericConst)
    assert constants.value.numpy().nbytes == region.program.constant_bytes
    (kernels,) = planned.attrs["external_mods"]
    assert kernels.implements_function("rammer_region0")


def test_the_arena_is_the_last_result_of_the_call(lstm):
    result = scheduled(lstm)
    (call,) = calls(result.module["main"])
    output, arena = call.ty.fields
    assert [int(extent) for extent in output.shape] == [1, 16]
    assert [int(extent) for extent in arena.shape] == [result.regions[0].code.arena_bytes]


@pytest.mark.parametrize("policy", ["sequential", "wavefront"])
def test_every_plan_is_proved_safe(lstm, policy):
    program: RProgram = scheduled(lstm, policy).regions[0].program
    assert (program.policy, program.num_veus) == (policy, 2)
    verify(program)


def test_by_wave_there_is_a_kernel_symbol_for_each_wavefront(lstm):
    result = scheduled(lstm, "wavefront", 2, "wavefront")
    program = result.regions[0].program
    (kernels,) = result.module.attrs["external_mods"]
    symbols = [f"rammer_region0_wave{wave}" for wave in range(program.num_waves)]
    assert len(symbols) > 1
    assert all(kernels.implements_function(symbol) for symbol in ["rammer_region0", *symbols])


def test_another_plan_compiles_nothing(lstm):
    once = compiler()
    (first,) = scheduled(lstm, "wavefront", one=once).module.attrs["external_mods"]
    (second,) = scheduled(lstm, "sequential", one=once, veus=1).module.attrs["external_mods"]
    assert first.same_as(second)


def test_a_module_without_regions_stays_as_it_is():
    mod = small_module(1, [Op(True, 0, 0), Op(True, 1, 1)], [2])
    assert scheduled(mod).module.same_as(mod)


def test_a_second_run_changes_nothing(lstm):
    once = scheduled(lstm).module
    assert scheduled(once).module.same_as(once)


def test_modules_that_are_linked_already_stay_linked(lstm):
    other = tvm.tirx.build(number_function(), target="llvm")
    mod = lstm.with_attr("external_mods", [other])
    linked = scheduled(mod).module.attrs["external_mods"]
    assert len(linked) == 2 and linked[0].same_as(other)


def test_equal_regions_share_a_kernel():
    block = [Op(True, 0, 0), Op(True, 1, 1), Op(False, 2, 2)]
    again = [Op(op.planned, op.left + 3, op.right + 3) for op in block]
    partitioned = PartitionRegions()(small_module(1, [*block, *again], [6]))
    planned = scheduled(partitioned).module
    called = [call.args[0].global_symbol for call in calls(planned["main"])]
    assert called == ["rammer_region0", "outside", "rammer_region0", "outside"]


def test_a_second_run_of_all_passes_changes_nothing():
    one = compiler()
    before = tvm.transform.Sequential([Prepare(), PartitionRegions()])
    after = tvm.transform.Sequential(
        [ScheduleOperators(one.kernels, TARGET), AddGuard(TARGET, vdevice())]
    )
    x = np.random.default_rng(0).standard_normal((4, 600)).astype("float32")

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 600), "float32")):
            with R.dataflow():
                a = R.nn.softmax(x)
                b = R.sort(a, axis=1)
                c = R.nn.softmax(b)
                d = R.matmul(c, R.permute_dims(c))
                R.output(d)
            return d

    with TARGET:
        planned = after(scheduled(before(Module), one=one).module)
        twice = after(scheduled(before(planned), one=one).module)
    tvm.ir.assert_structural_equal(without_modules(twice), without_modules(planned))
    built = relax.build(planned, TARGET)
    (got,) = [relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()]
    stock = relax.build(Module, "llvm")
    want = relax.VirtualMachine(stock, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    assert_close(got, want)
