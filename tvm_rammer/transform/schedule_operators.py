"""A compiler pass that gives the operators outside of regions the same rKernels, run in parallel.

What a plan leaves out must not run as a naive loop on one thread: it becomes a call of the rKernel
that a plan would have used, compiled in the same way, its tiles under ``T.parallel``. With no
regions at all this is RammerBase (Rammer, section 5.1): the same kernels, operator after operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GenericConst, GlobalVar

from tvm_rammer.kernel.blocks import is_scheduled
from tvm_rammer.kernel.call_in_blocks import in_blocks
from tvm_rammer.kernel.call_in_boxes import in_boxes
from tvm_rammer.kernel.cut_operators import Block
from tvm_rammer.kernel.loop_nests import tensors_of
from tvm_rammer.kernel.merged_axes import MergedAxes, merged_axes
from tvm_rammer.kernel.run_time_blocks import run_time_blocks
from tvm_rammer.kernel.run_time_boxes import Boxes, run_time_boxes
from tvm_rammer.region.eligibility import reason_to_leave_out, result_types
from tvm_rammer.region.kernel_library import KernelLibrary
from tvm_rammer.relax_util import is_for_cpu, link, operator_name, relax_functions, rewrite
from tvm_rammer.tensors import as_array, constant
from tvm_rammer.transform.remove_dead_code import remove_dead_code


@tvm.transform.module_pass(opt_level=0, name="ScheduleOperators")
class ScheduleOperators:
    """Compile the PrimFunc of every ``call_tir`` that has rKernels, and call what comes out.

    A call of what is scheduled already, of a dynamic shape or in place stays as it is, but for one
    of as many places as the run finds: they are computed some at a time.

    Parameters
    ----------
    kernels : KernelLibrary
        Makes and remembers the rKernels.
    target : Target
        Of kind ``llvm``.
    """

    def __init__(self, kernels: KernelLibrary, target: tvm.target.Target) -> None:
        self.kernels = kernels
        self.target = target

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Replace the calls of every Relax function; a module without any stays as it is."""
        # The VM gives a tensor another shape without a copy, and knows where by the PrimFunc alone.
        reshaped = relax.transform.RewriteDataflowReshape()(mod)
        scheduler = _Scheduler(reshaped, self.kernels)
        result = rewrite(reshaped, scheduler)
        if not scheduler.functions:
            return mod
        for module in self.kernels.backend.build_operators(scheduler.functions, self.target):
            result = link(result, module)
        return remove_dead_code(result)


@relax.expr_functor.mutator
class _Scheduler(relax.PyExprMutator):
    """Calls scheduled PrimFuncs by symbols, and collects them in ``functions``."""

    def __init__(self, mod: tvm.IRModule, kernels: KernelLibrary) -> None:
        super().__init__(mod)
        self.mod = mod
        self.kernels = kernels
        self.functions: dict[str, tirx.PrimFunc] = {}
        self.known: dict[Any, str] = {}
        self.packed: dict[Any, Any] = {}
        self.blocks: dict[Any, tuple[Block, ...]] = {}
        self.boxes: dict[Any, Boxes | None] = {}
        self.whole: dict[tuple[Any, str], tirx.PrimFunc | None] = {}
        self.merged: dict[Any, tuple[GlobalVar, MergedAxes] | None] = {}
        self.taken = _external_symbols(mod)

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if reason_to_leave_out(call, self.mod) is not None:
            return self._in_blocks(call)
        func = self.mod[call.args[0]]
        if self._is_left(func):
            return call
        kernel, arguments = self._kernel(func, call)
        name = self._name(call, lambda: self.kernels.backend.alone(kernel.scheduled).func)
        return relax.call_dps_packed(name, relax.Tuple(arguments), result_types(call))

    def _in_blocks(self, call: Any) -> Any:
        """A call of as many places as the run finds, in blocks if it can be."""
        if not is_for_cpu() or operator_name(call) != "relax.call_tir":
            return call
        func = self.mod[call.args[0]]
        is_plain = all(isinstance(each, relax.Var | GenericConst) for each in _tensors(call))
        if not is_plain or len(result_types(call)) != 1 or is_scheduled(func):
            return call
        backend = self.kernels.backend
        ways: tuple[Callable[[], Any], ...] = (
            lambda: self._whole(call, func, backend.open_kernel),
            lambda: self._call_of_blocks(call, func),
            lambda: self._merged(call, func),
            lambda: self._call_of_boxes(call, func),
            lambda: self._whole(call, func, backend.open_loops),
        )
        return next((found for way in ways if (found := way()) is not None), call)

    def _whole(self, call: Any, func: tirx.PrimFunc, schedule: Callable[..., Any]) -> Any:
        """A call of a function that is scheduled for all sizes; ``None`` if it is not."""
        key = (call.args[0], schedule.__name__)
        if key not in self.whole:
            self.whole[key] = schedule(func, self.kernels.vdevice)
        made = self.whole[key]
        if made is None:
            return None
        name = self._name(call, lambda: made)
        takes_sizes = len(tensors_of(made)) < len(made.params)
        arguments = list(call.args[1].fields) if takes_sizes else _tensors(call)
        return relax.call_dps_packed(name, relax.Tuple(arguments), result_types(call))

    def _merged(self, call: Any, func: tirx.PrimFunc) -> Any:
        """A call of an operator with one open axis in place of two; ``None`` if that is none."""
        symbol = call.args[0]
        if symbol not in self.merged:
            own = merged_axes(func)
            name = GlobalVar(f"{symbol.name_hint}_rows")
            self.merged[symbol] = None if own is None else (name, own)
        known = self.merged[symbol]
        if known is None:
            return None
        symbol, found = known
        (result,) = result_types(call)
        *axes, of_result = found.axes
        shapes = [_merged_shape(each.ty, k) for each, k in zip(_tensors(call), axes, strict=True)]
        arguments = [
            each if axis is None else self.builder_.emit(relax.op.reshape(each, shape))
            for each, axis, shape in zip(_tensors(call), axes, shapes, strict=True)
        ]
        ty = relax.TensorType(_merged_shape(result, of_result), result.dtype)
        made = self._call_of_blocks(relax.call_tir(symbol, arguments, ty), found.func)
        if made is None:
            return None
        return relax.op.reshape(self.builder_.emit(made), result.shape)

    def _call_of_blocks(self, call: Any, func: tirx.PrimFunc) -> Any:
        """A call of kernels for some places at a time; ``None`` if there are none."""
        blocks = self.blocks.get(call.args[0])
        if blocks is None:
            blocks = self.blocks[call.args[0]] = run_time_blocks(func)
        return self._call_of_parts(call, blocks, partial(in_blocks, blocks))

    def _call_of_boxes(self, call: Any, func: tirx.PrimFunc) -> Any:
        """The same for one with several open axes."""
        symbol = call.args[0]
        if symbol not in self.boxes:
            self.boxes[symbol] = run_time_boxes(func)
        boxes = self.boxes[symbol]
        if boxes is None:
            return None
        return self._call_of_parts(call, boxes.blocks, partial(in_boxes, boxes))

    def _call_of_parts(
        self, call: Any, blocks: Sequence[Block], join: Callable[..., tirx.PrimFunc]
    ) -> Any:
        """A call of a function that calls the kernels of blocks."""
        if not blocks or any(self._is_left(each.func) for each in blocks):
            return None
        made = [self._kernel(each.func, call) for each in blocks]
        kernels, given = zip(*made, strict=True)
        shared = [all(each.same_as(same[0]) for each in same) for same in zip(*given, strict=True)]

        def function() -> tirx.PrimFunc:
            alone = [self.kernels.backend.alone(kernel.scheduled).func for kernel in kernels]
            return join(alone, [*shared, True])

        columns = zip(shared, zip(*given, strict=True), strict=True)
        arguments = [each for same, column in columns for each in (column[:1] if same else column)]
        name = self._name(call, function)
        return relax.call_dps_packed(name, relax.Tuple(arguments), result_types(call))

    def _is_left(self, func: tirx.PrimFunc) -> bool:
        kernels = self.kernels
        return is_scheduled(func) or kernels.backend.refusal(func, kernels.vdevice) is not None

    def _kernel(self, func: tirx.PrimFunc, call: Any) -> tuple[Any, list[Any]]:
        """The kernel of a function, and the arguments of a call as that takes them."""
        arguments = _tensors(call)
        kernel = self.kernels.get(func, _constants(call))
        for position, packing in kernel.packings:
            arguments[position] = self._pack(arguments[position], packing)
        return kernel, arguments

    def _pack(self, weight: Any, packing: Any) -> Any:
        key = (weight.value, packing)
        if key not in self.packed:
            self.packed[key] = constant(packing(as_array(weight.value)))
        return self.packed[key]

    def _name(self, call: Any, make: Callable[[], tirx.PrimFunc]) -> str:
        """The symbol that exports a scheduled function, its own in the whole library."""
        symbol = call.args[0]
        key = (symbol, _constants(call))
        if key not in self.known:
            name = wanted = f"{symbol.name_hint}_rammer"
            number = 0
            while name in self.taken:
                number += 1
                name = f"{wanted}{number}"
            self.taken.add(name)
            self.known[key] = name
            self.functions[name] = make()
        return self.known[key]


def _merged_shape(ty: Any, axis: int | None) -> list[Any]:
    """The shape of a tensor with one axis in place of two."""
    shape = list(ty.shape.values)
    if axis is not None:
        shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    return shape


def _constants(call: Any) -> frozenset[int]:
    return frozenset(k for k, a in enumerate(_tensors(call)) if isinstance(a, GenericConst))


def _tensors(call: Any) -> list[Any]:
    """Arguments, without those that are sizes."""
    return [each for each in call.args[1].fields if isinstance(each.ty, relax.TensorType)]


def _external_symbols(mod: tvm.IRModule) -> set[str]:
    """The symbols that the Relax functions of a module call outside of it."""
    found: list[Any] = []
    for func in relax_functions(mod).values():
        tvm_ffi.structural_walk(func.body, (relax.ExternFunc, found.append))
    return {str(function.global_symbol) for function in found}
