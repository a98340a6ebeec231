"""A compiler pass that moves the branches of conditionals into functions of their own.

Passes look at the dataflow blocks of functions, and not into branches: what is lifted is fused and
planned as any other function. What is around the conditionals becomes dataflow too.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, PrimType
from tvm.relax.utils import copy_with_new_vars
from tvm_ffi import structural_walk

from tvm_rammer.relax_util import relax_functions, rewrite, static_shape


@tvm.transform.module_pass(opt_level=0, name="LiftBranches")
class LiftBranches:
    """Let every branch call a function; a module without conditionals stays as it is."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Lift the branches of every Relax function of a module."""
        if not any(map(_has_branches, relax_functions(mod).values())):
            return mod
        return relax.transform.ConvertToDataflow(min_size=1)(rewrite(mod, _Lifter(mod)))


def _has_branches(func: relax.Function) -> bool:
    found: list[Any] = []
    structural_walk(func.body, (relax.If, found.append))
    return bool(found)


@relax.expr_functor.mutator
class _Lifter(relax.PyExprMutator):
    def visit_if_(self, choice: Any) -> Any:
        # Conditionals inside of its branches are lifted first.
        choice = super().visit_if_(choice)
        branches = [self._lift(choice.true_branch, "then"), self._lift(choice.false_branch, "else")]
        return relax.If(self._scalar(choice.cond), *branches)

    def _scalar(self, condition: Any) -> Any:
        """A condition of one element without the axes that the VM does not take."""
        if static_shape(condition) in (None, ()):
            return condition
        return self.builder_.emit(relax.op.reshape(condition, ()))

    def _lift(self, branch: Any, name: str) -> Any:
        """A branch that calls a function of what it reads."""
        read = [v for v in relax.analysis.free_vars(branch) if not isinstance(v.ty, PrimType)]
        func = relax.Function(read, branch, is_pure=not relax.analysis.contains_impure_call(branch))
        # A size comes with a tensor that has it, not by itself.
        if not branch.blocks or relax.analysis.free_symbolic_vars(func):
            return branch
        symbol = self.builder_.add_func(copy_with_new_vars(func), name)
        call = self.builder_.normalize(Call(symbol, read))
        result = relax.Var("result", call.ty)
        return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, call)])], result)
