"""A compiler pass that lets every entry function call the guard first.

A deployed library knows its device and its number of workers; the process that loads it does not.
The guard is the back end's: that of processors raises when the CPU lacks a feature that the kernels
use, and sets TVM's thread pool up once per thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import tvm
from tvm import relax
from tvm.ir import Call

from tvm_rammer.backend.protocol import GUARD
from tvm_rammer.backend.registry import backend_named
from tvm_rammer.machine import VDevice
from tvm_rammer.relax_util import entry_functions, link

T = TypeVar("T")


@tvm.transform.module_pass(opt_level=0, name="AddGuard")
class AddGuard:
    """Call the guard at the start of every public Relax function.

    A thread compiles the guard from now on, beside whatever comes before this pass.

    Parameters
    ----------
    target : Target
        Whose features the device must have.
    vdevice : VDevice
        Whose vEUs want a worker each.
    """

    def __init__(self, target: tvm.target.Target, vdevice: VDevice) -> None:
        self._guard = _begun(partial(backend_named(vdevice.kind).guard, target, vdevice))

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Guard the functions of a module; one that is guarded already stays as it is."""
        guarded = mod.attrs and GUARD in mod.attrs
        entries = entry_functions(mod)
        if guarded or not entries:
            return mod
        guard = self._guard()
        if guard is None:
            return mod
        result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for symbol, func in entries.items():
            result[symbol] = _guarded(func)
        return link(relax.transform.Normalize()(result), guard).with_attr(GUARD, True)


def _begun(work: Callable[[], T]) -> Callable[[], T]:
    """What waits for the result of work that a thread does; or does it, if there is no thread."""
    thread = ThreadPoolExecutor(1)
    try:
        return thread.submit(work).result
    except RuntimeError:
        return work
    finally:
        thread.shutdown(wait=False)


def _guarded(func: relax.Function) -> relax.Function:
    call = Call(relax.ExternFunc(GUARD), [], None, [relax.TupleType([])])
    check = relax.BindingBlock([relax.VarBinding(relax.Var("guard", relax.TupleType([])), call)])
    body = relax.SeqExpr([check, *func.body.blocks], func.body.body)
    return relax.Function(func.params, body, func.ret_ty, False, func.attrs)
