"""A compiler pass that removes what nothing reads, in time that grows with the model only.

DeadCodeElimination looks at all variables for each that it removes. The batch normalisations of a
ResNeXt of 25,000 operators leave so many unread that it takes minutes. This pass removes unread
variables in one walk from the last to the first, and leaves the rest to DeadCodeElimination.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import PrimType

from tvm_rammer.relax_util import variables_read, with_blocks, with_functions


@tvm.transform.module_pass(opt_level=0, name="RemoveDeadCode")
class RemoveDeadCode:
    """Remove unread variables of dataflow blocks, and functions that nobody calls."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Clean every Relax function of a module."""
        return remove_dead_code(mod)


def clean_up(mod: tvm.IRModule) -> tvm.IRModule:
    """The module without variables that only rename others, and without dead code."""
    return remove_dead_code(relax.transform.CanonicalizeBindings()(mod))


def remove_dead_code(mod: tvm.IRModule) -> tvm.IRModule:
    """The module without what nothing reads or calls."""
    return relax.transform.DeadCodeElimination()(with_functions(mod, _cleaned))


def _cleaned(func: relax.Function) -> relax.Function:
    read = set(variables_read(func.body.body))
    kept = [_read_part(block, read) for block in reversed(func.body.blocks)]
    if all(new.same_as(old) for new, old in zip(reversed(kept), func.body.blocks, strict=True)):
        return func
    return with_blocks(func, [block for block in reversed(kept) if block.bindings])


def _read_part(block: Any, read: set[Any]) -> Any:
    """A block without its unread variables; what the others read is added to ``read``."""
    kept: list[Any] = []
    removable = isinstance(block, relax.DataflowBlock)
    bindings = block.bindings[:]
    for binding in reversed(bindings):
        if removable and binding.var not in read and _is_removable(binding):
            continue
        read.update(variables_read(binding.value))
        kept.append(binding)
    if len(kept) == len(bindings):
        return block
    return relax.DataflowBlock(kept[::-1])


def _is_removable(binding: Any) -> bool:
    """Whether nothing needs a binding whose variable no value reads; types read sizes."""
    return isinstance(binding, relax.VarBinding) and not isinstance(binding.var.ty, PrimType)
