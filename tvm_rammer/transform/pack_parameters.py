"""A compiler pass that packs the weights among a model's parameters by calls of their own.

The weights of a kernel are packed when it is compiled if they are constants. Those that are given
at run time are packed whenever the kernel runs, or read as they are. TVM's ``LiftTransformParams``
takes what depends on parameters alone out of a function, to be computed once; this pass makes the
packing something that can be taken out::

    mod = PackParameters(target)(mod)
    mod = relax.transform.LiftTransformParams()(mod)
    library = relax.build(mod, target, relax_pipeline="rammer")
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst

from tvm_rammer.backend import backend_for, backend_named, vdevice_for
from tvm_rammer.kernel.scheduled import Scheduled, TensorPacking
from tvm_rammer.machine import VDevice
from tvm_rammer.region.eligibility import reason_to_leave_out, result_types
from tvm_rammer.relax_util import rewrite, weight_parameters
from tvm_rammer.transform.prepare import Prepare
from tvm_rammer.transform.remove_dead_code import remove_dead_code


@tvm.transform.module_pass(opt_level=0, name="PackParameters")
class PackParameters:
    """Pack weights outside of the kernels that use them, in functions that state ``num_input``.

    Parameters
    ----------
    target : Target
        The packing fits its vectors.
    """

    def __init__(self, target: tvm.target.Target) -> None:
        self.target = target

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Prepare a module and pack its weights; without ``num_input`` it is only prepared."""
        with self.target:
            prepared = tvm.transform.Sequential([Prepare(backend_for(self.target).few_rows)])(mod)
            packed = rewrite(prepared, _Packer(prepared, vdevice_for(self.target)))
            return remove_dead_code(packed)


@relax.expr_functor.mutator
class _Packer(relax.PyExprMutator):
    """Schedules the kernels of weights, and packs these before."""

    def __init__(self, mod: tvm.IRModule, vdevice: VDevice) -> None:
        super().__init__(mod)
        self.mod = mod
        self.vdevice = vdevice
        self.backend = backend_named(vdevice.kind)
        self.weights: set[Any] = set()
        self.packed: dict[Any, Any] = {}

    def visit_function_(self, func: relax.Function) -> Any:
        self.packed = {}
        self.weights.update(weight_parameters(func))
        return super().visit_function_(func)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call = binding.value
        if reason_to_leave_out(call, self.mod) is None and self._weights(call.args[1].fields):
            # What is computed from weights alone is a weight.
            self.weights.add(binding.var)
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        plain = super().visit_call_(call)
        if reason_to_leave_out(call, self.mod) is not None:
            return plain
        arguments = list(call.args[1].fields)
        weights = {k for k, argument in enumerate(arguments) if argument in self.weights}
        if not weights or len(weights) == len(arguments):
            return plain
        # Without Winograd's algorithm, whose weights are transformed by numpy.
        scheduled = self.backend.schedule(
            self.mod[call.args[0]], frozenset(weights), self.vdevice, winograd_tolerance=0.0
        )
        return self._packed_call(plain, scheduled) if scheduled.packings else plain

    def _weights(self, arguments: Any) -> bool:
        return all(a in self.weights or isinstance(a, GenericConst) for a in arguments) and any(
            a in self.weights for a in arguments
        )

    def _packed_call(self, call: Any, scheduled: Scheduled) -> Any:
        arguments = list(call.args[1].fields)
        for position, packing in scheduled.packings:
            arguments[position] = self._pack(arguments[position], packing)
        func = scheduled.func.without_attr("global_symbol").with_attr("tirx.is_scheduled", True)
        symbol = self.builder_.add_func(func, f"{call.args[0].name_hint}_packed")
        types = result_types(call)
        return relax.call_tir(symbol, arguments, types if len(types) > 1 else types[0])

    def _pack(self, weight: Any, packing: Any) -> Any:
        assert isinstance(packing, TensorPacking)
        key = (weight, packing)
        if key not in self.packed:
            call = self.builder_.call_te(packing.tensor, weight, primfunc_name_hint="pack")
            self.packed[key] = self.builder_.emit(call)
        return self.packed[key]
