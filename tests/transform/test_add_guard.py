"""Every entry function of a library calls the guard first."""

from __future__ import annotations

import tvm
from small_graphs import TARGET, Op, calls, number_function, small_module, vdevice
from tvm import relax
from tvm.ir import Call
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_rammer.backend.protocol import GUARD
from tvm_rammer.transform.add_guard import AddGuard


def guarded(mod: tvm.IRModule) -> tvm.IRModule:
    return AddGuard(TARGET, vdevice())(mod)


def is_guard(call: Call) -> bool:
    return isinstance(call.op, relax.ExternFunc) and call.op.global_symbol == GUARD


def test_every_public_function_calls_the_guard_first():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            with R.dataflow():
                y: R.Tensor((4,), "float32") = cls.inner(x)
                R.output(y)
            return y

        @R.function
        def other(x: R.Tensor((4,), "float32")):
            return x

        @R.function(private=True)
        def inner(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return x

    after = guarded(Module)
    assert is_guard(calls(after["main"])[0]) and is_guard(calls(after["other"])[0])
    assert not calls(after["inner"])
    assert not after["main"].is_pure
    (module,) = after.attrs["external_mods"]
    assert module.implements_function(GUARD)
    relax.analysis.well_formed(after)


def test_a_guarded_module_stays_as_it_is():
    once = guarded(small_module(1, [Op(False, 0, 0)], [1]))
    assert guarded(once).same_as(once)


def test_a_module_without_entry_functions_gets_no_guard():
    mod = number_function()
    assert guarded(mod).same_as(mod)
