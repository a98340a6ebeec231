"""What constants hold is taken out of functions, and of regions that are planned."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import tvm
import tvm_ffi
from small_graphs import TARGET, calls, compiled
from tvm import relax
from tvm.ir import GenericConst

from tvm_rammer.frontend import load_model
from tvm_rammer.options import Options
from tvm_rammer.region.marks import REGION, regions_of
from tvm_rammer.relax_util import operator_name
from tvm_rammer.tensors import constant, empty
from tvm_rammer.testing import models
from tvm_rammer.transform.partition_regions import PartitionRegions
from tvm_rammer.transform.pipeline import forget_constants, partition_module, plan_module
from tvm_rammer.transform.prepare import Prepare
from tvm_rammer.transform.stock_memory import stock_plan_bytes


def product(weight: np.ndarray) -> tvm.IRModule:
    """``softmax(x @ weight) @ weight``, of a square weight."""
    x = relax.Var("x", relax.TensorType((4, len(weight)), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.softmax(relax.op.matmul(x, constant(weight))))
            z = builder.emit_output(relax.op.matmul(y, constant(weight)))
        builder.emit_func_output(z)
    return builder.get()


def constants_of(func: relax.Function) -> list[GenericConst]:
    found: list[GenericConst] = []
    tvm_ffi.structural_walk(func, (GenericConst, found.append))
    return found


def stock_bytes(mod: tvm.IRModule) -> int:
    (symbol,) = regions_of(mod)
    return stock_plan_bytes(mod[symbol], mod)


def test_constants_keep_their_types_and_nothing_else():
    weight = np.ones((8, 8), "float32")
    mod = product(weight)
    func = mod["main"].with_attr(REGION, 1)
    mod["main"] = func
    forgetful = forget_constants(mod)["main"]
    found = list(zip(constants_of(func), constants_of(forgetful), strict=True))
    assert found
    for kept, forgotten in found:
        np.testing.assert_array_equal(kept.value.numpy(), weight)
        assert forgotten.value.shape == (0,)
        tvm.ir.assert_structural_equal(forgotten.ty, kept.ty)
    names = [operator_name(call) for call in calls(forgetful)]
    assert names == ["relax.matmul", "relax.nn.softmax", "relax.matmul"]


def test_a_planned_module_holds_no_weights_of_regions():
    """And TVM's own memory planner would need as much for them as before."""
    weight = empty((48, 48), np.float32)
    weight[:] = 1
    owner = weakref.ref(weight.base)
    mod = product(weight)
    del weight
    goal = Options("sequential", 1).resolve(TARGET)
    partitions = partition_module(mod, goal)
    del mod
    assert owner() is not None
    needed = stock_bytes(partitions.with_rows(1))
    plan_module(partitions, goal)
    gc.collect()
    assert owner() is None
    assert stock_bytes(partitions.with_rows(1)) == needed
    plan_module(partitions, goal)


def test_regions_of_a_module_that_was_given_keep_their_constants():
    with TARGET:
        passes = tvm.transform.Sequential([Prepare(), PartitionRegions()])
        mod = passes(load_model(models.lstm(2, 2, 16)).module)
    before = tvm_ffi.structural_hash(mod)
    compiled(mod)
    assert tvm_ffi.structural_hash(mod) == before
