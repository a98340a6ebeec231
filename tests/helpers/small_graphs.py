"""Small Relax functions of one PrimFunc, and what they compute according to numpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar
from tvm.script import tirx as T

import tvm_rammer
from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cpu.host import host_target
from tvm_rammer.machine import VDevice
from tvm_rammer.region.marks import is_region

TARGET = host_target()
TYPE = relax.TensorType((4,), "float32")


@T.prim_func(s_tir=True, private=True)
def add(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
    T.func_attr({"tirx.noalias": True})
    for i in range(4):
        with T.sblock("add"):
            v = T.axis.spatial(4, i)
            c[v] = a[v] + b[v]


@dataclass(frozen=True)
class Op:
    """A binary operator on values before it: inputs come first, then results.

    One that can be planned is a ``call_tir`` of :func:`add`, any other a packed call.
    """

    planned: bool
    left: int
    right: int


def small_module(inputs: int, ops: Sequence[Op], outputs: Sequence[int]) -> tvm.IRModule:
    """A function of ``ops`` that returns the values with these numbers.

    Results are named ``v<number>``.
    """
    params = [relax.Var(f"v{k}", TYPE) for k in range(inputs)]
    builder = relax.BlockBuilder()
    symbol = builder.add_func(add, "add")
    with builder.function("main", params):
        with builder.dataflow():
            values: list[Any] = list(params)
            for op in ops:
                arguments = relax.Tuple([values[op.left], values[op.right]])
                call = (
                    relax.call_tir(symbol, arguments, TYPE)
                    if op.planned
                    else relax.call_dps_packed("outside", arguments, TYPE)
                )
                values.append(builder.emit(call, f"v{len(values)}"))
            result = builder.emit_output(relax.Tuple([values[k] for k in outputs]), "result")
        builder.emit_func_output(result)
    return builder.get()


def number_function() -> tvm.IRModule:
    """A module of one public PrimFunc and no Relax function."""
    func = tirx.PrimFunc([], tirx.Return(tirx.const(3, "int32")), ret_type=tvm.ir.PrimType("int32"))
    func = func.with_attrs({"global_symbol": "three", "tirx.is_scheduled": True})
    return tvm.IRModule({"three": func})


def vdevice(num_veus: int = 2) -> VDevice:
    """This machine."""
    return vdevice_for(TARGET, num_veus)


def calls(func: relax.Function) -> list[Call]:
    """All calls of a function in order."""
    bindings = [b for block in func.body.blocks for b in block.bindings]
    return [b.value for b in bindings if isinstance(b.value, Call)]


def tensors(result: Any) -> list[np.ndarray]:
    """The arrays of a result of the Relax VM, in order."""
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    return [tensor for part in result for tensor in tensors(part)]


def run(executable: Any, inputs: Iterable[np.ndarray]) -> list[np.ndarray]:
    """What ``main`` of a built module returns."""
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return tensors(machine["main"](*map(tvm.runtime.tensor, inputs)))


def compiled(mod: tvm.IRModule, **options: Any) -> tvm.IRModule:
    """What the pipeline makes of a module."""
    with TARGET:
        return tvm_rammer.pipeline(**options)(mod)


def evaluate(mod: tvm.IRModule, symbol: str | GlobalVar, arguments: Sequence[Any]) -> Any:
    """Run a function of such a module, or of one that was partitioned, on numpy arrays."""
    func = mod[symbol]
    known: dict[Any, Any] = dict(zip(func.params, arguments, strict=True))

    def value(expression: Any) -> Any:
        if isinstance(expression, relax.Var):
            return known[expression]
        if isinstance(expression, relax.Tuple):
            return tuple(map(value, expression.fields))
        if isinstance(expression, relax.TupleGetItem):
            return value(expression.tuple_value)[expression.index]
        assert isinstance(expression, Call)
        if isinstance(expression.op, GlobalVar):
            return evaluate(mod, expression.op, [value(a) for a in expression.args])
        left, right = value(expression.args[1])
        return left + right if isinstance(expression.args[0], GlobalVar) else 2 * left - right

    for block in func.body.blocks:
        for binding in block.bindings:
            known[binding.var] = value(binding.value)
    return value(func.body.body)


def run_main(mod: tvm.IRModule, seed: int = 0) -> list[np.ndarray]:
    """What ``main`` computes from random inputs."""
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(-8, 8, 4).astype("float32") for _ in mod["main"].params]
    return list(evaluate(mod, "main", inputs))


def regions(mod: tvm.IRModule) -> dict[str, set[str]]:
    """The results of the operators of each region, by their names."""
    return {
        symbol.name_hint: {
            binding.var.name
            for binding in func.body.blocks[0].bindings
            if isinstance(binding.value, Call)
        }
        for symbol, func in mod.functions_items()
        if is_region(func)
    }
