"""A compiler pass that leaves loops scalar in which a named value meets a call without vectors.

TVM makes a loop of lanes out of a statement whose call takes no vectors, such as that of libm's
``asinf``. In that statement it forgets that names which the vector loop binds mean vectors now, and
LLVM's code generator finds none of theirs. A loop that stays a loop has neither, and LLVM makes
vectors of what it can.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op

from tvm_rammer.kernel.lowering.with_bodies import with_bodies
from tvm_rammer.kernel.nodes import collect

#: What TVM makes vectors of without saying so.
_MADE_VECTORS = frozenset({"prim.if_then_else", "tirx.reinterpret"})


@tvm.transform.module_pass(opt_level=0, name="KeepScalarCallsInLoops")
class KeepScalarCallsInLoops:
    """Make serial loops of vector loops that bind names and call what takes no vectors."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""

        def change(loop: Any) -> Any:
            if loop.kind != tirx.ForKind.VECTORIZED or not _mixes(loop.body):
                return loop
            return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

        return with_bodies(mod, lambda body: tvm_ffi.structural_map(body, (tirx.For, change)))


def _mixes(body: Any) -> bool:
    return bool(collect(body, tirx.Bind)) and not all(map(_takes_vectors, collect(body, Call)))


def _takes_vectors(call: Call) -> bool:
    if not isinstance(call.op, Op):
        return False
    return call.op.name in _MADE_VECTORS or bool(call.op.get_attr("TVectorizable"))
