"""A compiler pass that makes slices of tensors that are taken at known places.

Importers write the step of a sequence, where a loop was unrolled or an index computed, as
``take(x, 3)``. A slice needs no index when it runs, and often not even a copy (see
:mod:`tvm_rammer.region.slices`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.ir import GenericConst

from tvm_rammer.relax_util import bound_value, calls_any, operator_name, rewrite, static_shape

_TAKE = "relax.take"


@tvm.transform.module_pass(opt_level=0, name="SliceKnownPlaces")
class SliceKnownPlaces:
    """Slice instead of taking places that are constants, inside, and one after another."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Slicer(mod)) if calls_any(mod, {_TAKE}) else mod


@relax.expr_functor.mutator
class _Slicer(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if operator_name(call) != _TAKE:
            return call
        data, places = call.args[0], bound_value(self, call.args[1])
        shape, result = static_shape(data), static_shape(call)
        if not isinstance(places, GenericConst) or not shape or result is None or 0 in result:
            return call
        axis = int(call.attrs.axis or 0) % len(shape)
        found = _inside(places.value.numpy().ravel(), shape[axis], str(call.attrs.mode))
        first, last = int(found[0]), int(found[-1])
        if (
            first < 0
            or last >= shape[axis]
            or not np.array_equal(found, np.arange(first, last + 1))
        ):
            return call
        part = relax.op.strided_slice(data, axes=[axis], begin=[first], end=[last + 1])
        return relax.op.reshape(self.builder_.emit(part), result)


def _inside(places: npt.NDArray[Any], size: int, mode: str) -> npt.NDArray[np.int64]:
    """What an operator makes of places that may be outside; of those left there nobody knows."""
    places = places.astype(np.int64)
    if mode == "wrap":
        return places % size
    return places.clip(0, size - 1) if mode == "clip" else places
