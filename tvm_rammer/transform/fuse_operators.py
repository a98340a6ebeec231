"""A compiler pass that fuses operators as FuseOps does, in time that grows with the model only.

For every operator FuseOps walks through all that depends on it, up to where everything has come
together again. In a recurrent network that is the end: half a minute for an LSTM of 22,000
operators. A result that a product or an opaque operator reads is not fused with what comes after
it, though, and FuseOps does not look beyond the results of a dataflow block. For as long as it
runs, this pass makes those variables results, and those where fusion had better end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax
from tvm_ffi import structural_map, structural_walk

from tvm_rammer.relax_util import relax_functions, with_functions
from tvm_rammer.transform.bound_sizes import in_order
from tvm_rammer.transform.fusion_ends import fusion_chains


@tvm.transform.module_pass(opt_level=0, name="FuseOperators")
class FuseOperators:
    """Group operators into functions; their PrimFuncs say by ``op_pattern`` which may be.

    Parameters
    ----------
    apart : int
        Elements of a result up to which products stay apart that meet in it.
    """

    def __init__(self, apart: int = 0) -> None:
        self.apart = apart

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Fuse the operators of every Relax function of a module."""
        ends = {var: relax.Var(var.name, var.ty) for var in _ends(mod, self.apart)}
        # FuseOps has a group where its first operator was.
        fused = in_order(relax.transform.FuseOps()(_replaced(mod, ends)))
        inner = {var: relax.DataflowVar(var.name, var.ty) for var in _inner_results(fused)}
        return _replaced(fused, inner)


def _ends(mod: tvm.IRModule, apart: int) -> Iterator[Any]:
    """The variables of dataflow blocks behind which nothing is fused."""
    return filter(_is_inner, fusion_chains(mod, apart).ends)


def _inner_results(mod: tvm.IRModule) -> Iterator[Any]:
    """The results of dataflow blocks that nothing else reads."""
    for func in relax_functions(mod).values():
        places = _places(func)
        for number, block in enumerate(func.body.blocks):
            if isinstance(block, relax.DataflowBlock):
                results = (b.var for b in block.bindings if not _is_inner(b.var))
                yield from (result for result in results if places[result] == {number})


def _places(func: relax.Function) -> dict[Any, set[int]]:
    """The numbers of the blocks that name a variable; what follows them counts as one."""
    places: dict[Any, set[int]] = defaultdict(set)
    for number, part in enumerate((*func.body.blocks, func.body.body)):
        structural_walk(part, (relax.Var, lambda variable, at=number: places[variable].add(at)))
    return places


def _is_inner(variable: Any) -> bool:
    return isinstance(variable, relax.DataflowVar)


def _replaced(mod: tvm.IRModule, variables: dict[Any, Any]) -> tvm.IRModule:
    """A module with other variables in the place of those given."""
    if not variables:
        return mod
    replace = relax.Var, lambda variable: variables.get(variable, variable)
    return with_functions(mod, lambda func: structural_map(func, replace))
