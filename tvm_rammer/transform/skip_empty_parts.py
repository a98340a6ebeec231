"""A compiler pass that joins and splits tensors without the parts that have no elements.

ONNX's rotary embedding of a whole head splits off what it leaves alone, which is nothing, and joins
it again. Loops over no elements are no operators that anybody can schedule.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tvm_rammer.relax_util import (
    bound_value,
    calls_any,
    operator_name,
    rewrite,
    static_shape,
    type_shape,
)

_SPLIT, _CONCAT = "relax.split", "relax.concat"


@tvm.transform.module_pass(opt_level=0, name="SkipEmptyParts")
class SkipEmptyParts:
    """Rewrite concatenations and splits of static shapes."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Skipper(mod)) if calls_any(mod, {_SPLIT, _CONCAT}) else mod


@relax.expr_functor.mutator
class _Skipper(relax.PyExprMutator):
    def visit_tuple_getitem_(self, item: Any) -> Any:
        source = bound_value(self, item.tuple_value)
        if operator_name(source) != _SPLIT or not _some_are_empty(source.ty.fields):
            return super().visit_tuple_getitem_(item)
        data, axis, part = source.args[0], int(source.attrs.axis), type_shape(item.ty) or ()
        if part == static_shape(data):
            return data
        ends, axis = 0, axis % len(part)
        for field in source.ty.fields[: item.index]:
            ends += (type_shape(field) or ())[axis]
        return relax.op.strided_slice(data, [axis], [ends], [ends + part[axis]])

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        parts = bound_value(self, call.args[0]) if operator_name(call) == _CONCAT else None
        if not isinstance(parts, relax.Tuple):
            return call
        fields = parts.fields[:]
        if not _some_are_empty([field.ty for field in fields]):
            return call
        kept = [field for field in fields if 0 not in (static_shape(field) or ())]
        return kept[0] if len(kept) == 1 else relax.op.concat(kept, call.attrs.axis)


def _some_are_empty(types: Any) -> bool:
    """Whether some tensors have no elements, and others have."""
    shapes = [type_shape(each) for each in types]
    if None in shapes:
        return False
    return len({0 in shape for shape in shapes if shape is not None}) == 2
