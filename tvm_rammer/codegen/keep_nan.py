"""A compiler pass that lets NaN through maxima and minima with a constant, as in ReLU and Clip."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_rammer.codegen.with_bodies import with_bodies

_COMPARISONS = (tirx.Max, tirx.Min)


@tvm.transform.module_pass(opt_level=0, name="KeepNaN")
class KeepNaN:
    """Put constants first: ``max(x, 0)`` becomes ``max(0, x)``.

    TVM computes ``max(a, b)`` as ``a > b ? a : b``, whose result is ``b`` if either is NaN. Either
    way it is one instruction on x86.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        return with_bodies(mod, lambda body: tvm_ffi.structural_map(body, (_COMPARISONS, _turned)))


def _turned(compared: Any) -> Any:
    second = compared.b.value if isinstance(compared.b, tirx.Broadcast) else compared.b
    if isinstance(second, tirx.FloatImm):
        return type(compared)(compared.b, compared.a)
    return compared
