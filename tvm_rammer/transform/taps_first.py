"""A compiler pass for weights of convolutions by channel: places in the window, then channels.

Where every channel has a window of its own, a thread of a GPU computes neighbouring channels, whose
weights for one place it loads as a vector if they are neighbours too. Weights that are known are
moved when compiling.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst

from tvm_rammer.relax_util import calls_any, known_shapes, operator_name, rewrite
from tvm_rammer.tensors import as_array, constant
from tvm_rammer.transform.integer_products import with_operands

#: Operators, their layouts, and the one of weights instead.
_LAYOUTS = {
    "relax.nn.conv1d": ("NWC", "OWI", "WOI"),
    "relax.nn.conv2d": ("NHWC", "OHWI", "HWOI"),
}


@tvm.transform.module_pass(opt_level=0, name="TapsFirst")
class TapsFirst:
    """Rewrite channels-last convolutions whose channels have windows of their own."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Mover(mod)) if calls_any(mod, _LAYOUTS) else mod


@relax.expr_functor.mutator
class _Mover(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if operator_name(call) not in _LAYOUTS:
            return call
        (data, kernel), attrs = call.args, call.attrs
        *layouts, moved = _LAYOUTS[operator_name(call)]
        if [str(attrs.data_layout), str(attrs.kernel_layout)] != layouts:
            return call
        shapes = known_shapes(data, kernel)
        if not shapes or not isinstance(kernel, GenericConst):
            return call
        channels, inputs = shapes[0][-1], shapes[1][-1]
        if not inputs == 1 < channels == int(attrs.groups):
            return call
        order = [layouts[1].index(axis) for axis in moved]
        weights = constant(as_array(kernel.value).transpose(order).copy())
        return with_operands(call, data, weights, str(call.ty.dtype), kernel_layout=moved)
