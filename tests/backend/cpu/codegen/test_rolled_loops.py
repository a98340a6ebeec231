"""A loop that is marked stays a loop in LLVM, and the mark is no instruction."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from kernel_runs import legalized_func
from tvm import relax, tirx
from tvm.ir import GlobalVar

from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cpu.codegen.lowering import build_operators, lowering_pipeline
from tvm_rammer.backend.cpu.templates.select import schedule
from tvm_rammer.backend.registry import vdevice_for
from tvm_rammer.kernel.loops import ROLLED, buffer, loop, rolled, vector

STEPS = 5
TARGETS = {
    "host": None,
    "avx2": {"kind": "llvm", "mcpu": "core-avx2"},
    "aarch64": {"kind": "llvm", "mtriple": "aarch64-linux-gnu"},
}


def doubling(steps, names=("main",)) -> tvm.IRModule:
    """``result[step] = 2 * data[step]`` for vectors, in a loop that ``steps`` makes."""
    functions, two = {}, tirx.const(2.0, "float32")
    for name in names:
        data, result = buffer("data", (STEPS, 8)), buffer("result", (STEPS, 8))

        def double(step, data=data, result=result):
            def store(lane):
                return tirx.BufferStore(result, data[step, lane] * two, [step, lane])

            return vector(8, store)

        func = tirx.PrimFunc([data, result], steps("step", STEPS, double))
        attributes = {"global_symbol": name, "tirx.is_scheduled": True, "s_tir": True}
        functions[GlobalVar(name)] = func.with_attrs({**attributes, "tirx.noalias": True})
    return tvm.IRModule(functions)


def compiled(module: tvm.IRModule, target="host") -> tvm.runtime.Module:
    return tvm.tirx.build(module, resolve_target(TARGETS[target]), pipeline=lowering_pipeline())


@pytest.mark.parametrize("target", TARGETS)
def test_llvm_unrolls_what_is_not_marked(target):
    """The body is there once, or once per step."""
    counts = [
        compiled(doubling(steps), target).inspect_source("ll").count("fmul <8 x float>")
        for steps in (loop, rolled)
    ]
    assert counts == [STEPS, 1]


def test_the_mark_is_no_instruction():
    assembly = compiled(doubling(rolled)).inspect_source("asm")
    assert ROLLED not in assembly


def test_functions_of_a_module_share_the_text():
    module = compiled(doubling(rolled, ("one", "other")))
    data = np.arange(STEPS * 8, dtype=np.float32).reshape(STEPS, 8)
    for name in ("one", "other"):
        result = tvm.runtime.tensor(np.zeros_like(data))
        module[name](tvm.runtime.tensor(data), result)
        np.testing.assert_array_equal(result.numpy(), 2 * data)


@pytest.mark.parametrize("processor", ["core-avx2", "skylake-avx512"])
@pytest.mark.parametrize("steps", [1024, 2048, 3072])
def test_blocks_of_a_long_sum_are_the_same_code(processor, steps):
    """However many there are: LLVM would copy few, and keep their sums in memory."""
    target = resolve_target({"kind": "llvm", "mcpu": processor})

    def multiply_adds(steps):
        x, weights = np.zeros((24, steps), "float32"), np.zeros((steps, 64), "float32")
        func = legalized_func(relax.op.matmul, x, weights)
        made = schedule(func, frozenset({1}), vdevice_for(target))
        (module,) = build_operators({"product": made.func}, target)
        return module.inspect_source("asm").count("vfmadd")

    assert multiply_adds(steps) == multiply_adds(16 * 512)
