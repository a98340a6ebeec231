"""A compiler pass that makes channels of neighbouring pixels where convolutions have few outputs.

The kernels of convolutions have vectors of output channels, and the last layer of a network that
draws an image, a mask or a sound has one or three. As a convolution that makes several neighbours
at once, with strides as long and the kernel once for each of them, it has channels enough. With
channels last the result lies in memory as that of the given convolution does. The kernel's copies
are shifted and zeros are around them, which costs less than vectors that are mostly empty. A number
that is not finite reaches all neighbours that are made together, as with Winograd's algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from tvm_rammer.relax_util import calls_any, known_shapes, operator_name, rewrite, static_shape
from tvm_rammer.tensors import as_array, constant
from tvm_rammer.transform.integer_products import with_operands

#: Operators, and their layouts that have the width just outside of the channels.
_LAYOUTS = {"relax.nn.conv1d": ("NWC", "OWI"), "relax.nn.conv2d": ("NHWC", "OHWI")}
#: With this many outputs vectors are full enough.
_ENOUGH_OUTPUTS = 4
#: More outputs are more vectors.
_MOST_OUTPUTS = 16
#: Less than so much of the time is worth a rewriting.
_GAIN = 0.8


@tvm.transform.module_pass(opt_level=0, name="WidenConvolutions")
class WidenConvolutions:
    """Rewrite channels-last convolutions of few outputs, where that is faster."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Widener(mod)) if calls_any(mod, _LAYOUTS) else mod


@dataclass(frozen=True)
class _Row:
    """A row of a convolution: so many ``results`` of some outputs, and how a kernel makes them."""

    size: int
    results: int
    outputs: int
    kernel: int
    stride: int
    before: int

    def neighbours(self) -> int:
        """How many results are best made at once."""
        most = min(self.results, _MOST_OUTPUTS // self.outputs)
        found = (n for n in range(1, most + 1) if self.results % n == 0)
        best = min(found, key=self.cost)
        return best if self.cost(best) < _GAIN * self.cost(1) else 1

    def cost(self, neighbours: int) -> float:
        """Instructions for a result, relative to those of one full vector."""
        taps = self.kernel + self.stride * (neighbours - 1)
        return taps / neighbours * _cost_of_vectors(neighbours * self.outputs)

    @property
    def after(self) -> int:
        """What is read behind the data."""
        return max(0, (self.results - 1) * self.stride + self.kernel - self.size - self.before)


def _cost_of_vectors(outputs: int) -> float:
    """Half a vector and less cost less; two overlap where none of a power of two fits."""
    if outputs == _MOST_OUTPUTS:
        return 1.0
    return 0.6 if outputs & (outputs - 1) == 0 else 1.2


@relax.expr_functor.mutator
class _Widener(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        row = _row(call)
        neighbours = 1 if row is None else row.neighbours()
        if row is None or neighbours == 1:
            return call
        (data, kernel), attrs = call.args, call.attrs
        weights = constant(_widened(as_array(kernel.value), neighbours, row.stride))
        moves = {
            "strides": [*attrs.strides[:-1], row.stride * neighbours],
            "padding": [*attrs.padding[:-1], row.after],
            "dilation": [*attrs.dilation[:-1], 1],
        }
        widened = with_operands(call, data, weights, str(call.ty.dtype), **moves)
        return relax.op.reshape(self.builder_.emit(widened), static_shape(call))


def _row(call: Any) -> _Row | None:
    """What a call makes of a row, ``None`` if it is nothing to be widened."""
    if operator_name(call) not in _LAYOUTS:
        return None
    attrs, (data, kernel) = call.attrs, call.args
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    shapes = known_shapes(data, kernel, call)
    own = layouts == _LAYOUTS[operator_name(call)] and str(attrs.out_layout) == layouts[0]
    if not own or not shapes:
        return None
    of_data, of_kernel, of_result = shapes
    outputs, (stride, step) = of_kernel[0], (int(a[-1]) for a in (attrs.strides, attrs.dilation))
    plain = isinstance(kernel, GenericConst) and int(attrs.groups) == 1
    if not plain or outputs >= _ENOUGH_OUTPUTS or (step > 1 and of_kernel[-2] > 1):
        return None
    before = int(attrs.padding[len(attrs.strides) - 1])
    return _Row(of_data[-2], of_result[-2], outputs, of_kernel[-2], stride, before)


def _widened(kernel: np.ndarray, neighbours: int, stride: int) -> np.ndarray:
    """A kernel ``[outputs, ..., width, inputs]`` for ``neighbours`` results at once."""
    outputs, *_, width, _ = kernel.shape
    shape = list(kernel.shape)
    shape[0], shape[-2] = neighbours * outputs, width + stride * (neighbours - 1)
    widened = np.zeros(shape, kernel.dtype)
    for number in range(neighbours):
        some = slice(number * outputs, (number + 1) * outputs)
        widened[some, ..., number * stride : number * stride + width, :] = kernel
    return widened
