"""A compiler pass that makes one operator of an attention of few queries.

A decoder asks everything that it remembers for every token that it makes: scores, their softmax
and the weighted rows are three operators, each of which waits for the one before, and read whole
buffers however little there is in them. As one operator keys and values are walked once, block by
block, and blocks that a mask hides are left out. Where many queries share the keys, or places are
few, products of their own are faster, and where one query looks at all that there is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import is_
from typing import Any

import tvm
from tvm import relax, sym, tirx

from tvm_rammer.kernel.attention_blocks import ATTENTION
from tvm_rammer.relax_util import (
    OPAQUE,
    bound_value,
    calls_any,
    is_for_cpu,
    open_shape,
    reshaped,
    rewrite,
    used_once,
)
from tvm_rammer.transform.attention_chains import Attention, find_attention
from tvm_rammer.transform.remove_dead_code import remove_dead_code

#: Queries that share keys at most.
_MOST_ROWS = 16
#: Places that they look at, at least, and those that one query does.
_FEWEST_PLACES, _FEWEST_OF_ONE = 256, 512
#: Elements of a key and of a value at most.
_WIDEST = 256


@tvm.transform.module_pass(opt_level=0, name="FuseAttentions")
class FuseAttentions:
    """Make one ``call_tir`` of every attention of few queries."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        if not is_for_cpu() or not calls_any(mod, {"relax.nn.softmax"}):
            return mod
        return rewrite(mod, _Fuser(mod), remove_dead_code)


@relax.expr_functor.mutator
class _Fuser(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.once = used_once(mod)

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        found = find_attention(call, partial(bound_value, self), self.once)
        if found is None:
            return call
        _, rows, places, terms, columns = found.sizes
        if not all(isinstance(size, int) for size in found.sizes):
            return self._fused(call, self._named(found)) if self._is_narrow(found) else call
        if rows > _MOST_ROWS or places < _FEWEST_PLACES or max(terms, columns) > _WIDEST:
            return call
        if rows == 1 and (places < _FEWEST_OF_ONE or not found.masked):
            return call
        return self._fused(call, found)

    def _is_narrow(self, found: Attention) -> bool:
        """Whether a kernel for open sizes takes keys and values so wide."""
        *_, terms, columns = found.sizes
        known = isinstance(terms, int) and isinstance(columns, int)
        return known and max(terms, columns) <= _WIDEST

    def _named(self, found: Attention) -> Attention:
        """The same, whose sizes are names where they were formulas: a kernel takes no sizes."""
        names: list[tuple[Any, Any]] = []

        def known(size: Any) -> Any:
            if isinstance(size, int | tirx.IntImm | tirx.Var):
                return size
            same = (name for each, name in names if sym.Analyzer().can_prove_equal(each, size))
            return next(same, size)

        def named(size: Any) -> Any:
            found = known(size)
            if isinstance(found, int | tirx.IntImm | tirx.Var):
                return found
            names.append((size, tirx.Var("size", "int64")))
            return names[-1][1]

        def cast(operand: Any) -> Any:
            shape = open_shape(operand) or ()
            sizes = list(map(named, shape))
            if all(map(is_, shape, sizes)):
                return operand
            return self.builder_.match_cast(operand, relax.TensorType(sizes, operand.ty.dtype))

        operands = tuple(map(cast, found.operands))
        # How many batches there are may follow from sizes of operands, and is none of them.
        batches, rows, places, terms, columns = map(known, found.sizes)
        return replace(found, operands=operands, sizes=(batches, rows, places, terms, columns))

    def _fused(self, call: Any, found: Attention) -> Any:
        made = self.builder_.emit(
            self.builder_.call_te(
                found.compute,
                *found.operands,
                *([found.open_sizes] if found.open_sizes else []),
                primfunc_name_hint="attention",
                primfunc_attrs={"op_pattern": OPAQUE, ATTENTION: 1},
            )
        )
        return reshaped(self.builder_, made, open_shape(call) or ())
