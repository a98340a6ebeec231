"""A compiler pass that puts the channels of convolutions last."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.error import InternalError

from tvm_rammer.transform.relax_util import operator_name

#: Layouts in which neighbouring channels are neighbours in memory, so that they fill vectors.
_LAYOUTS = {"relax.nn.conv2d": ["NHWC", "OHWI"]}


@tvm.transform.module_pass(opt_level=0, name="ChannelsLast")
class ChannelsLast:
    """Convert the layouts of a module that convolves.

    One whose layouts TVM cannot follow stays as it is: TVM 0.27 ends with an internal error where
    stacked tensors are reduced.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Convert a module; ConvertLayout takes minutes for a long recurrent network."""
        if not _convolves(mod):
            return mod
        try:
            return relax.transform.ConvertLayout(_LAYOUTS)(mod)
        except InternalError:
            return mod


def _convolves(mod: tvm.IRModule) -> bool:
    """Whether any function of a module convolves."""
    found: list[bool] = []

    def visit(expression: Any) -> None:
        if operator_name(expression) in _LAYOUTS:
            found.append(True)

    for _, func in mod.functions_items():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return bool(found)
