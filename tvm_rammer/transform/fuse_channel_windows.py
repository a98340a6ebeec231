"""A compiler pass that makes averages over neighbouring channels fuse with what is around them.

ONNX's local response normalization imports as an average pool along an axis that pools do not have:
the square gets another axis, a three-dimensional pool averages along the channels, and the axis
goes again. As a plain sum of shifted neighbours the average fuses with the square before it and
with the scaling after it, and the whole normalization is one pass over its input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, te, tirx

from tvm_rammer.relax_util import bound_value, calls_any, operator_name, rewrite, static_shape
from tvm_rammer.transform.remove_dead_code import remove_dead_code

#: Names of the window's axes in the order of a pool's attributes.
_WINDOW_AXES = {"relax.nn.avg_pool2d": "HW", "relax.nn.avg_pool3d": "DHW"}
#: Wider windows than this stay pools: every neighbour is a term of its own.
_WIDEST = 16


@tvm.transform.module_pass(opt_level=0, name="FuseChannelWindows")
class FuseChannelWindows:
    """Rewrite ``squeeze(avg_pool(expand_dims(x)))`` into a sum of neighbours along one axis."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        if not calls_any(mod, _WINDOW_AXES):
            return mod
        return rewrite(mod, _Rewriter(mod), remove_dead_code)


@dataclass(frozen=True)
class _Window:
    """An average over ``size`` neighbours along an axis, from ``before`` places ahead."""

    axis: int
    size: int
    before: int

    def compute(self, data: te.Tensor) -> te.Tensor:
        def average(*indices: Any) -> Any:
            terms = [self._neighbour(data, indices, k - self.before) for k in range(self.size)]
            total = terms[0]
            for term in terms[1:]:
                total = total + term
            return total * tirx.const(1.0 / self.size, data.dtype)

        return te.compute(data.shape, average, name="window_average")

    def _neighbour(self, data: te.Tensor, indices: tuple[Any, ...], shift: int) -> Any:
        place = indices[self.axis] + shift
        moved = (*indices[: self.axis], place, *indices[self.axis + 1 :])
        inside = tirx.all(place >= 0, place < data.shape[self.axis])
        return tirx.if_then_else(inside, data(*moved), tirx.const(0.0, data.dtype))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if operator_name(call) != "relax.squeeze":
            return call
        pool = bound_value(self, call.args[0])
        if operator_name(pool) not in _WINDOW_AXES:
            return call
        expanded = bound_value(self, pool.args[0])
        if operator_name(expanded) != "relax.expand_dims":
            return call
        data = expanded.args[0]
        added = [int(axis) for axis in expanded.attrs.axis]
        shape = static_shape(data)
        if len(added) != 1 or shape is None or static_shape(call) != shape:
            return call
        window = _window(pool, added[0] % (len(shape) + 1))
        return call if window is None else self.builder_.call_te(window.compute, data)


def _window(pool: Any, added: int) -> _Window | None:
    """What a pool averages, ``None`` unless that is neighbours along one axis of its data."""
    attrs = pool.attrs
    names = _WINDOW_AXES[operator_name(pool)]
    sizes = [int(size) for size in attrs.pool_size]
    before, after = ([int(n) for n in part] for part in _halves(attrs.padding))
    windowed = [k for k, size in enumerate(sizes) if size > 1]
    plain = (
        attrs.count_include_pad
        and attrs.out_layout == attrs.layout
        and all(int(n) == 1 for n in [*attrs.strides, *attrs.dilation])
        and str(pool.ty.dtype).startswith("float")
    )
    if not plain or len(windowed) != 1:
        return None
    (k,) = windowed
    axis = attrs.layout.index(names[k])
    padded = [n for j, n in enumerate(before + after) if j % len(names) != k]
    if axis == added or any(padded) or sizes[k] != before[k] + after[k] + 1 or sizes[k] > _WIDEST:
        return None
    return _Window(axis - (axis > added), sizes[k], before[k])


def _halves(values: Any) -> tuple[Any, Any]:
    middle = len(values) // 2
    return values[:middle], values[middle:]
