"""A compiler pass that rounds the bytes of storages whose size each run decides.

TVM's VM keeps what a run has freed, by its size, and gives it to whoever asks for just as much.
Runs whose sizes are always others would keep storages of every size that there ever was. Of powers
of two there are few; pages of a storage that nobody touches take no memory.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call

from tvm_rammer.relax_util import calls_of, operator_name, rewrite

_ALLOC = "relax.memory.alloc_storage"
_BITS = 64


@tvm.transform.module_pass(opt_level=0, name="RoundStorages")
class RoundStorages:
    """Make open sizes of storages powers of two."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function; a module without such storages stays as it is."""
        return rewrite(mod, _Rounder(mod)) if any(map(_is_open, calls_of(mod))) else mod


def _is_open(call: Any) -> bool:
    if operator_name(call) != _ALLOC or not isinstance(call.args[0], relax.ShapeExpr):
        return False
    return not all(isinstance(size, tirx.IntImm) for size in call.args[0].values)


@relax.expr_functor.mutator
class _Rounder(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if not _is_open(call):
            return call
        (size,) = call.args[0].values
        shape = relax.ShapeExpr([_power_of_two(size)])
        return Call(call.op, [shape, *call.args[1:]], call.attrs, call.ty_args)


def _power_of_two(size: Any) -> Any:
    """The least power of two that is no less."""
    leading = tirx.clz(tirx.max(size, tirx.IntImm("int64", 2)) - 1)
    one = tirx.IntImm("int64", 1)
    return tirx.shift_left(one, tirx.IntImm("int64", _BITS) - leading.astype("int64"))
