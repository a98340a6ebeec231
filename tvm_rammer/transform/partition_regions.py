"""A compiler pass that moves the operators that can be planned together into region functions.

Every dataflow block is split by *depth*: an operator that can be planned is one region deeper than
the deepest operator that was left out between it and an earlier region. Operators of equal depth
form one region, whether they depend on each other or not, so that no path leaves a region and comes
back.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar

from tvm_rammer.region.eligibility import NO_OPERATOR, reason_to_leave_out
from tvm_rammer.region.marks import LEFT_OUT, REGION, LeftOut
from tvm_rammer.relax_util import relax_functions, variables_read, with_blocks
from tvm_rammer.transform.bound_sizes import bound_sizes, read_for

Refusal = Callable[[tirx.PrimFunc], str | None]


def _nothing_refused(_: tirx.PrimFunc) -> None:
    return None


@tvm.transform.module_pass(opt_level=0, name="PartitionRegions")
class PartitionRegions:
    """Move plannable operators into region functions.

    Parameters
    ----------
    min_operators : int
        Smaller regions are left out: there is nothing to run together.
    refusal : callable, optional
        Why a PrimFunc cannot be planned on the device; None if it can.
    """

    def __init__(self, min_operators: int = 2, refusal: Refusal = _nothing_refused) -> None:
        self.min_operators = min_operators
        self.refusal = refusal

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Partition every Relax function; a module that is partitioned stays as it is."""
        if mod.attrs and LEFT_OUT in mod.attrs:
            return mod
        left_out: list[LeftOut] = []
        number = 0
        result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for symbol, func in relax_functions(mod).items():
            partition = _Partition(result, func, number, self.min_operators, self.refusal)
            result[symbol] = partition.run()
            number = partition.number
            left_out += partition.left_out
        text = json.dumps([asdict(item) for item in dict.fromkeys(left_out)])
        return relax.transform.Normalize()(result).with_attr(LEFT_OUT, text)


@dataclass(frozen=True)
class _Result:
    """A tensor that a region returns: what a variable is bound to, or an item of such a tuple."""

    variable: Any
    index: int | None = None

    def of(self, renamed: dict[Any, Any]) -> Any:
        """The tensor inside the region function."""
        inner = renamed[self.variable]
        return inner if self.index is None else relax.TupleGetItem(inner, self.index)


def _tensors(binding: Any) -> list[_Result]:
    """The tensors that a variable stands for."""
    if isinstance(binding.value, relax.TupleGetItem):
        return [_Result(binding.value.tuple_value, int(binding.value.index))]
    if isinstance(binding.var.ty, relax.TupleType):
        return [_Result(binding.var, k) for k in range(len(binding.var.ty.fields))]
    return [_Result(binding.var)]


@dataclass
class _Partition:
    """The partition of one function."""

    mod: tvm.IRModule
    func: Any
    number: int
    min_operators: int
    refusal: Refusal
    left_out: list[LeftOut] = field(default_factory=list)

    def run(self) -> Any:
        blocks = [
            self._block(block) if isinstance(block, relax.DataflowBlock) else self._skip(block)
            for block in self.func.body.blocks
        ]
        return with_blocks(self.func, blocks)

    def _skip(self, block: Any) -> Any:
        for binding in block.bindings:
            reason = self._reason(binding)
            if reason != NO_OPERATOR:
                self._leave(binding, reason or "outside of a dataflow block")
        return block

    def _reason(self, binding: Any) -> str | None:
        """Why a binding is no operator of a plan; ``None`` when it is one."""
        if not isinstance(binding, relax.VarBinding):
            # What it computes, if anything, has a size that is known when it has run.
            return reason_to_leave_out(binding.value, self.mod) or "dynamic shape"
        reason = reason_to_leave_out(binding.value, self.mod)
        return self.refusal(self.mod[binding.value.args[0]]) if reason is None else reason

    def _leave(self, binding: Any, reason: str) -> None:
        value = binding.value
        callee = value.args[0] if isinstance(value, Call) and value.args else binding.var
        name = callee.name_hint if isinstance(callee, GlobalVar) else str(binding.var.name)
        self.left_out.append(LeftOut(name, reason))

    def _block(self, block: Any) -> Any:
        depth, planned = self._depths(block)
        levels: dict[int, list[Any]] = defaultdict(list)
        for binding in block.bindings[:]:
            levels[depth[binding.var]].append(binding)
        readers = _readers(block)
        used_after = _used_outside(self.func, block)
        bindings: list[Any] = levels.pop(-1, [])
        for level in sorted(levels):
            members = [b for b in levels[level] if b.var in planned]
            others = [b for b in levels[level] if b.var not in planned]
            operators = [b for b in members if isinstance(b.value, Call)]
            if len(operators) < self.min_operators:
                for binding in operators:
                    self._leave(binding, "region too small")
                bindings += members
            elif members:
                inside = {binding.var for binding in members}
                wanted = {v for v in inside if v in used_after or not readers[v] <= inside}
                bindings += self._lift(members, wanted)
            bindings += others
        return relax.DataflowBlock(bindings)

    def _depths(self, block: Any) -> tuple[dict[Any, int], set[Any]]:
        """Depth of every bound variable, and those that are results of planned operators."""
        depth: dict[Any, int] = {}
        planned: set[Any] = set()
        sizes = bound_sizes(block)
        for binding in block.bindings[:]:
            sources = [v for v in read_for(binding, sizes) if v in depth]
            reason = self._reason(binding)
            if reason is None:
                depth[binding.var] = max(
                    (depth[v] + (v not in planned) for v in sources), default=0
                )
                planned.add(binding.var)
                continue
            depth[binding.var] = max((depth[v] for v in sources), default=-1)
            is_item = isinstance(binding.value, relax.TupleGetItem)
            if is_item and sources and planned.issuperset(sources):
                planned.add(binding.var)
            elif reason != NO_OPERATOR:
                self._leave(binding, reason)
        return depth, planned

    def _lift(self, members: list[Any], wanted: set[Any]) -> list[Any]:
        """Move bindings into a new region function, whose results are what is wanted elsewhere.

        Returns the bindings that call it.
        """
        exported = [binding for binding in members if binding.var in wanted]
        results = list(dict.fromkeys(item for b in exported for item in _tensors(b)))
        symbol, arguments = self._define(members, results)
        call = relax.BlockBuilder(self.mod).normalize(Call(symbol, arguments))
        if len(results) == len(exported) == 1 and results[0].index is None:
            return [relax.VarBinding(exported[0].var, call)]
        together = relax.DataflowVar(f"{symbol.name_hint}_results", call.ty)
        values = {
            item: relax.TupleGetItem(together, k) if len(results) > 1 else together
            for k, item in enumerate(results)
        }
        bindings = [relax.VarBinding(together, call)]
        for binding in exported:
            parts = [values[item] for item in _tensors(binding)]
            is_tuple = isinstance(binding.var.ty, relax.TupleType)
            value = relax.Tuple(parts) if is_tuple else parts[0]
            bindings.append(relax.VarBinding(binding.var, value))
        return bindings

    def _define(self, members: list[Any], results: list[_Result]) -> tuple[GlobalVar, list[Any]]:
        """Add the region function to the module; return it and the variables to call it with."""
        bound = {binding.var for binding in members}
        params: dict[Any, Any] = {}
        for binding in members:
            for variable in variables_read(binding.value):
                if variable not in bound and variable not in params:
                    params[variable] = relax.Var(variable.name, variable.ty)
        inner: dict[Any, Any] = dict(params)
        builder = relax.BlockBuilder(self.mod)
        name = f"rammer_region{self.number}"
        with builder.function(name, list(params.values()), attrs={REGION: 1}, private=True):
            with builder.dataflow():
                for binding in members:
                    value = _rebuild(binding.value, inner)
                    inner[binding.var] = builder.emit(value, binding.var.name)
                outputs = [builder.emit_output(item.of(inner)) for item in results]
            # Equal regions are one function.
            symbol = builder.emit_func_output(outputs[0] if len(outputs) == 1 else outputs)
        self.number += 1
        self.mod[symbol] = builder.get()[symbol]
        return symbol, list(params)


def _readers(block: Any) -> dict[Any, set[Any]]:
    """For each variable those of the block that are bound to what reads it."""
    readers: dict[Any, set[Any]] = defaultdict(set)
    for binding in block.bindings[:]:
        for variable in variables_read(binding.value):
            readers[variable].add(binding.var)
    return readers


def _rebuild(value: Any, renamed: dict[Any, Any]) -> Any:
    """A call_tir or tuple access with its variables renamed."""
    if isinstance(value, relax.TupleGetItem):
        return relax.TupleGetItem(renamed[value.tuple_value], value.index)
    operands = value.args[1].fields[:]
    arguments = relax.Tuple([renamed.get(operand, operand) for operand in operands])
    return Call(value.op, [value.args[0], arguments], value.attrs, value.ty_args)


def _used_outside(func: Any, block: Any) -> set[Any]:
    """Variables of a block that later blocks or the function's result use."""
    used = set(variables_read(func.body.body))
    for other in func.body.blocks:
        if not other.same_as(block):
            for binding in other.bindings[:]:
                used.update(variables_read(binding.value))
    return used
