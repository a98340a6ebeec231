"""A compiler pass that lets who needs a small element-wise result alone compute it again.

What is read twice is an operator of its own, and each of its readers waits for it. The new state of
an LSTM is read by its output and by the next step: an output that computes the state itself, from
the same gates, ends one operator earlier. On devices of very many vEUs, where small operators take
as long as handing on does, that is worth computing some hundred elements again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from tvm_rammer.relax_util import (
    operator_name,
    variables_read,
    with_blocks,
    with_functions,
)
from tvm_rammer.transform.fusion_ends import (
    ELEMENTWISE,
    FusionChains,
    fusion_chains,
    number_of_elements,
    outer_bindings,
)

#: Operators that are computed again for one reader at most.
_MOST_OPERATORS = 32


@tvm.transform.module_pass(opt_level=0, name="ComputeAgain")
class ComputeAgain:
    """Copy small element-wise operators for readers that wait for nothing else.

    Parameters
    ----------
    apart : int
        Elements of a result up to which it is small.
    """

    def __init__(self, apart: int) -> None:
        self.apart = apart

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Copy operators in every dataflow block of a module of call_tirs."""
        if not self.apart:
            return mod
        copies = _Copies.of(fusion_chains(mod, self.apart), outer_bindings(mod), self.apart)

        def copied(func: relax.Function) -> relax.Function:
            return with_blocks(func, [copies.in_block(block) for block in func.body.blocks])

        return relax.transform.Normalize()(with_functions(mod, copied))


@dataclass
class _Copies:
    """What is known of a module's bindings."""

    chains: FusionChains
    apart: int
    readers: Counter[Any]
    values: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, chains: FusionChains, bindings: list[Any], apart: int) -> _Copies:
        readers = Counter(var for each in bindings for var in set(variables_read(each.value)))
        values = {each.var: each.value for each in bindings}
        return cls(chains, apart, readers, values)

    def in_block(self, block: Any) -> Any:
        """A block with the copies that its operators want."""
        if not isinstance(block, relax.DataflowBlock):
            return block
        made = [each for binding in block.bindings for each in self._with_copies(binding)]
        return relax.DataflowBlock(made) if len(made) > len(block.bindings) else block

    def _with_copies(self, binding: Any) -> Iterator[Any]:
        read = set(variables_read(binding.value))
        if len(read) != 1 or not self._is_elementwise(binding.var):
            yield binding
            return
        (state,) = read
        wanted = self._wanted(state) if self._is_copied(state) else []
        new = {each: relax.DataflowVar(each.name, each.ty) for each in wanted}
        for each in wanted:
            yield relax.VarBinding(new[each], _with(self.values[each], new))
        yield relax.VarBinding(binding.var, _with(binding.value, new)) if new else binding

    def _is_copied(self, state: Any) -> bool:
        """Whether a variable is an operator of its own only because of its readers."""
        return (
            isinstance(state, relax.DataflowVar)
            and self.readers[state] > 1
            and state not in self.chains.onwards
            and self._is_elementwise(state)
        )

    def _is_elementwise(self, variable: Any) -> bool:
        """Whether a variable is small, and of element-wise operators alone."""
        value = self.values.get(variable)
        return (
            value is not None
            and operator_name(value) == "relax.call_tir"
            and self.chains.patterns[value.args[0]] <= ELEMENTWISE
            and not any(self._is_behind(operand) for operand in variables_read(value))
            and 0 < number_of_elements(variable) <= self.apart
        )

    def _is_behind(self, operand: Any) -> bool:
        """Whether who reads a variable is fused behind a product."""
        return operand in self.chains.products and operand not in self.chains.ends

    def _wanted(self, state: Any) -> list[Any]:
        """What is computed again for a state, in order; nothing if that is too much."""
        found: list[Any] = []

        def visit(variable: Any) -> None:
            if len(found) > _MOST_OPERATORS:
                return
            for operand in variables_read(self.values[variable]):
                inside = operand in self.chains.onwards and operand not in self.chains.ends
                if inside and self._is_elementwise(operand) and operand not in found:
                    visit(operand)
            found.append(variable)

        visit(state)
        return found if len(found) <= _MOST_OPERATORS else []


def _with(value: Any, new: Mapping[Any, Any]) -> Any:
    """A value that reads other variables."""
    return tvm_ffi.structural_map(value, (relax.Var, lambda each: new.get(each, each)))
