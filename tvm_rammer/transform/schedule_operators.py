"""A compiler pass that gives the operators outside of regions the same rKernels, run in parallel.

What a plan leaves out must not run as a naive loop on one thread: it becomes an ordinary
``call_tir`` of the rKernel that a plan would have used, its tiles under ``T.parallel``. With no
regions at all this is RammerBase (Rammer, section 5.1): the same kernels, operator after operator.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, GlobalVar

from tvm_rammer.kernel.library import KernelLibrary
from tvm_rammer.transform.eligibility import reason_to_leave_out
from tvm_rammer.transform.relax_util import rewrite


@tvm.transform.module_pass(opt_level=0, name="ScheduleOperators")
class ScheduleOperators:
    """Schedule the PrimFunc of every ``call_tir`` that has rKernels.

    Parameters
    ----------
    kernels : KernelLibrary
        Makes and remembers the rKernels.
    """

    def __init__(self, kernels: KernelLibrary) -> None:
        self.kernels = kernels

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Schedule the operators of every Relax function; scheduled ones stay as they are."""
        return relax.transform.DeadCodeElimination()(rewrite(mod, _Scheduler(mod, self.kernels)))


@relax.expr_functor.mutator
class _Scheduler(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, kernels: KernelLibrary) -> None:
        super().__init__(mod)
        self.mod = mod
        self.kernels = kernels
        self.known: dict[Any, GlobalVar] = {}
        self.packed: dict[Any, Any] = {}

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if reason_to_leave_out(call, self.mod) is not None:
            return call
        symbol, arguments = call.args[0], list(call.args[1].fields)
        func = self.mod[symbol]
        if func.attrs and "tirx.is_scheduled" in func.attrs:
            return call
        constants = frozenset(k for k, a in enumerate(arguments) if isinstance(a, GenericConst))
        kernel = self.kernels.get(func, constants)
        for position, packing in kernel.packings:
            arguments[position] = self._pack(arguments[position], packing)
        scheduled = self._symbol(symbol, constants, kernel.scheduled.func)
        return Call(call.op, [scheduled, relax.Tuple(arguments)], call.attrs, call.ty_args)

    def _pack(self, constant: Any, packing: Any) -> Any:
        key = (constant.value, packing)
        if key not in self.packed:
            self.packed[key] = relax.const(packing(constant.value.numpy()))
        return self.packed[key]

    def _symbol(self, symbol: Any, constants: frozenset[int], func: tirx.PrimFunc) -> GlobalVar:
        key = (symbol, constants)
        if key not in self.known:
            name = f"{symbol.name_hint}_rammer"
            # Relax makes the symbol again when it attaches it; a second one would not be private.
            named = func.without_attr("global_symbol").with_attr("tirx.is_scheduled", True)
            self.known[key] = self.builder_.add_func(named, name)
        return self.known[key]
