"""rTask bodies in several modules, compiled side by side: LLVM uses one core for a module.

A *shard* holds some of the bodies and a dispatcher, ``dispatch(kernel, start, stop, bases,
operands, abort)``, which fetches a body's pointers, calls it and raises the flag if it fails. The
module with the entries calls the dispatchers through variables that hold their addresses. A shard
defines its variable; the entries' module has a weak one without a value. In a library on disk the
linker makes the shard's of the two. In memory every module is a world of its own, and
:func:`link_shards` stores the address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import Call, GlobalVar, PointerType, PrimType

from tvm_rammer.backend.cpu.codegen.lowering import FLAT
from tvm_rammer.backend.cpu.llvm import llvm_ir
from tvm_rammer.kernel.bodies import exported

#: Bodies in a shard: LLVM takes 0.1 s for one and 20 ms for a module, and all cores have work.
SHARD_BODIES = 8
#: Packed function of the entries' module that takes the addresses of the dispatchers.
LINK = "tvm_rammer_link"

_I32 = PrimType("int32")
_HANDLE = PointerType(PrimType("void"))


def shards_of(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Cut the names of the bodies into shards; body ``n`` is in shard ``n // SHARD_BODIES``."""
    return [tuple(names[k : k + SHARD_BODIES]) for k in range(0, len(names), SHARD_BODIES)]


def dispatcher(shard: int) -> str:
    """The symbol of a shard's dispatcher."""
    return f"rammer_dispatch{shard}"


def lower_shard(
    shard: int, bodies: Mapping[str, tirx.PrimFunc], names: Sequence[str], support: str
) -> tvm.IRModule:
    """The TIR module of a shard.

    Parameters
    ----------
    shard : int
    bodies : mapping of str to PrimFunc
        All bodies by name.
    names : sequence of str
        Those of this shard, in the dispatcher's order.
    support : str
        LLVM IR text with ``rammer_address`` and ``rammer_abort``.
    """
    symbols = {name: GlobalVar(f"rtask{shard}_{number}") for number, name in enumerate(names)}
    functions = {symbol: _apart(symbol, bodies[name]) for name, symbol in symbols.items()}
    arities = [(symbols[name], len(bodies[name].params) - 2) for name in names]
    functions[GlobalVar(dispatcher(shard))] = _dispatch(dispatcher(shard), arities)
    address = tirx.decl_buffer((1,), "int64", name="address")
    store = tirx.BufferStore(address, tirx.call_extern("int64", "rammer_own_address"), [0])
    text = support + llvm_ir("shard", dispatcher=dispatcher(shard))
    body = tirx.AttrStmt(0, "pragma_import_llvm", text, store)
    symbol = f"tvm_rammer_{dispatcher(shard)}"
    functions[GlobalVar(symbol)] = exported(symbol, [address], body)
    return tvm.IRModule(functions).with_attr(FLAT, True)


def _apart(symbol: GlobalVar, body: tirx.PrimFunc) -> tirx.PrimFunc:
    """A body that LLVM does not inline: it would optimise it twice, the second time with others."""
    scope = tirx.AttrStmt(0, "compute_scope", f"{symbol.name_hint}_compute", body.body)
    return body.with_body(scope)


def _dispatch(symbol: str, bodies: Sequence[tuple[GlobalVar, int]]) -> tirx.PrimFunc:
    kernel, start, stop = (tirx.Var(n, "int32") for n in ("kernel", "start", "stop"))
    bases = tirx.Var("bases", _HANDLE)
    operands_pointer = tirx.Var("operands_pointer", PointerType(_I32))
    operands = tirx.decl_buffer((2,), "int32", name="operands")
    abort = tirx.Var("abort", _HANDLE)

    def pointer(number: int) -> Any:
        words = operands[2 * number], operands[2 * number + 1]
        return tirx.call_extern("handle", "rammer_address", bases, *words)

    def call(number: int) -> Any:
        body, arity = bodies[number]
        arguments = [start, stop, *map(pointer, range(arity))]
        failed = Call(body, arguments, ret_ty=_I32) != 0
        raise_flag = tirx.Evaluate(tirx.call_extern("void", "rammer_abort", abort))
        return tirx.IfThenElse(failed, raise_flag, None)

    statements = [
        tirx.DeclBuffer(operands, data=operands_pointer),
        decide(kernel, 0, len(bodies), call),
    ]
    params = [kernel, start, stop, bases, operands_pointer, abort]
    # Not a packed function: the entries' module calls it.
    return c_function(symbol, params, statements)


def decide(number: Any, low: int, high: int, case: Callable[[int], Any]) -> Any:
    """A binary decision tree over a number (LLVM makes a jump table of it)."""
    if high - low == 1:
        return case(low)
    middle = (low + high) // 2
    return tirx.IfThenElse(
        number < middle, decide(number, low, middle, case), decide(number, middle, high, case)
    )


def c_function(symbol: str, params: list[Any], statements: list[Any]) -> tirx.PrimFunc:
    """A function that is called as one of C, and returns 0."""
    end = tirx.Return(tirx.const(0, "int32"))
    func = tirx.PrimFunc(params, tirx.SeqStmt([*statements, end]), ret_type=_I32)
    calling = {"global_symbol": symbol, "calling_conv": 1}
    return func.with_attrs({**calling, "tirx.is_scheduled": True, "s_tir": True})


def link_function(num_shards: int) -> tirx.PrimFunc:
    """The function :data:`LINK` of the entries' module: ``link(shard, address)``."""
    shard, address = tirx.Var("shard", "int32"), tirx.Var("address", "int64")
    store = tirx.Evaluate(tirx.call_extern("void", "rammer_set_dispatcher", shard, address))
    body = tirx.AttrStmt(0, "pragma_import_llvm", _link_text(num_shards), store)
    return exported(LINK, [shard, address], body)


def _link_text(num_shards: int) -> str:
    """The variables of the entries' module, and what calls and sets them."""
    names = [dispatcher(shard) for shard in range(num_shards)]
    cases = " ".join(f"i32 {number}, label %shard{number}" for number in range(num_shards))
    blocks = "\n".join(
        f"shard{number}:\n  store ptr %dispatcher, ptr @{name}_at, align 8\n  br label %done"
        for number, name in enumerate(names)
    )
    calls = [llvm_ir("call_shard", dispatcher=name) for name in names]
    return "".join(calls) + llvm_ir("set_dispatcher", cases=cases, blocks=blocks)


@dataclass(frozen=True)
class Shard:
    """A compiled shard.

    Attributes
    ----------
    module : tvm.runtime.Module
    address : int
        Its dispatcher's in memory, 0 if it cannot run here.
    seconds : float
        What its compilation took of a core.
    """

    module: tvm.runtime.Module
    address: int
    seconds: float = 0.0


def dispatcher_address(number: int, module: tvm.runtime.Module) -> int:
    """Where the dispatcher of a compiled shard is in memory: its machine code is made and run now.

    This machine must be able to run it.
    """
    address = tvm.runtime.tensor(np.zeros(1, np.int64))
    module[f"tvm_rammer_{dispatcher(number)}"](address)
    return int(address.numpy()[0])


def link_shards(entries: tvm.runtime.Module, shards: Sequence[Shard]) -> None:
    """Import the shards' modules into the entries' and tell that one where their code is.

    What is linked from disk needs no telling, and code that this machine cannot run has no address
    here.
    """
    for number, shard in enumerate(shards):
        entries.import_module(shard.module)
        if shard.address:
            entries[LINK](number, shard.address)
