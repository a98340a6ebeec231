"""A compiler pass that splits transposed convolutions into one convolution for each phase.

A transposed convolution of stride ``s`` adds an input element times the kernel to every ``s``-th
place of its result, and TVM computes it as a convolution of the input with zeros in between. Places
whose numbers leave the same remainder by ``s``, a *phase*, read the same elements of the kernel,
every ``s``-th, and their inputs are neighbours: each phase is an ordinary convolution with a part
of the kernel. So nothing is multiplied by zeros (Shi et al., "Is the deconvolution layer the same
as a convolutional layer?", 2016). The phases are axes of one sum, which the kernels of convolutions
write where they belong, with what is fused behind. Where zeros of the kernel are multiplied all the
same (one input and output to a group, few outputs, dilation), a number that is not finite reaches
neighbouring results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any

import tvm
from tvm import relax, sym, te, tirx, topi

from tvm_rammer.relax_util import ANCHOR, calls_any, operator_name, rewrite

#: What is split, and the letters of its spatial axes in names of layouts.
TRANSPOSED = {
    "relax.nn.conv1d_transpose": "W",
    "relax.nn.conv2d_transpose": "HW",
    "relax.nn.conv3d_transpose": "DHW",
}
#: Fewer outputs than this leave most of a vector empty.
_FEW_OUTPUTS = 8


@tvm.transform.module_pass(opt_level=0, name="SplitTransposedConvolutions")
class SplitTransposedConvolutions:
    """Rewrite transposed convolutions of known channels; the others are left to LegalizeOps."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Splitter(mod)) if calls_any(mod, TRANSPOSED) else mod


@dataclass(frozen=True)
class _Axis:
    """A spatial axis: the size of the kernel, and how it moves over data of any size.

    Place ``p`` of the result is step ``m`` of phase ``r``, ``p + offset = m * stride + r``, and
    reads the kernel's elements at ``tap * stride + r - shift``, each times the data at
    ``m + first - tap``. One place of the data makes ``grown`` of the result, one more ``stride``.
    """

    grown: int
    kernel: int
    stride: int
    dilation: int
    before: int
    offset: int = 0

    @property
    def shift(self) -> int:
        return (self.offset - self.before) % self.stride

    @property
    def first(self) -> int:
        return (self.before - self.offset + self.shift) // self.stride

    @property
    def reach(self) -> int:
        """The length of the dilated kernel."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def taps(self) -> int:
        return ceil((self.shift + self.reach) / self.stride)

    @property
    def more_steps(self) -> int:
        """Steps of the result, beyond the places of the data."""
        return ceil((self.offset + self.grown) / self.stride) - 1

    def result(self, size: Any) -> Any:
        return (size - 1) * self.stride + self.grown

    def without_shift(self) -> _Axis:
        """The same with the fewest taps."""
        return replace(self, offset=self.before % self.stride)

    def inside(self, step: Any, tap: Any, size: Any) -> list[Any]:
        """The conditions under which data are read from inside, but those that always hold."""
        place = step + self.first - tap
        conditions = [place >= 0] if self.first - self.taps + 1 < 0 else []
        return [*conditions, *([place < size] if self.more_steps + self.first > 0 else [])]

    def exists(self, phase: Any, tap: Any) -> list[Any]:
        """The conditions under which the kernel has an element for a tap, but those that always
        hold."""
        place = tap * self.stride + phase
        conditions = [place >= self.shift] if self.shift else []
        end = self.shift + self.reach
        return [*conditions, *([place < end] if end < self.taps * self.stride else [])]


@dataclass(frozen=True)
class _TransposedConvolution:
    """``[batch, *spatial, groups * outputs]`` from ``[batch, *spatial, groups * inputs]``.

    ``channel_axis`` of data and result is wherever the layout has it; ``inputs`` and ``outputs``
    are those of one group. Phases that have too few outputs for a vector are outputs of one
    convolution (``merged``), and a copy puts them where they belong.
    """

    groups: int
    inputs: int
    outputs: int
    axes: tuple[_Axis, ...]
    channel_axis: int
    dtype: str
    merged: bool

    @property
    def name(self) -> str:
        return f"conv{len(self.axes)}d_transpose"

    def split_kernel(self, kernel: te.Tensor) -> te.Tensor:
        """The kernel ``[groups * inputs, outputs, *spatial]`` as ``[group, *phases, *taps, input,
        output]``, or ``[group, *taps, input, phases and output]``."""
        rank = len(self.axes)

        def element(group: Any, *place: Any) -> Any:
            phases, taps, (channel, output) = place[:rank], place[rank : 2 * rank], place[-2:]
            conditions, where = [], []
            for axis, phase, tap in zip(self.axes, phases, taps, strict=True):
                at = tap * axis.stride + phase - axis.shift
                conditions += axis.exists(phase, tap)
                conditions += [tirx.floormod(at, axis.dilation) == 0] if axis.dilation > 1 else []
                where.append(tirx.floordiv(at, axis.dilation))
            value = kernel(group * self.inputs + channel, output, *where)
            zero = tirx.const(0, kernel.dtype)
            return tirx.if_then_else(tirx.all(*conditions), value, zero) if conditions else value

        taps = [axis.taps for axis in self.axes]
        shape = [self.groups, *self._strides, *taps, self.inputs, self.outputs]
        split = te.compute(_sizes(shape), element, name="split_kernel")
        if not self.merged:
            return split
        order = [0, *range(rank + 1, 2 * rank + 2), *range(1, rank + 1), 2 * rank + 2]
        merged = _sizes([self.groups, *taps, self.inputs, prod(self._strides) * self.outputs])
        return topi.reshape(topi.transpose(split, order), merged)

    def convolve(self, data: te.Tensor, kernel: te.Tensor) -> te.Tensor:
        """All phases, given the data and the split kernel: ``[batch, *steps, *phases, group,
        output]``, or ``[batch, *steps, group, phases and output]``."""
        rank = len(self.axes)
        phases = [] if self.merged else self._strides
        sizes = [*data.shape[1 : self.channel_axis], *data.shape[self.channel_axis + 1 :]]
        reduced = [te.reduce_axis((0, _size(axis.taps)), name="tap") for axis in self.axes]
        reduced.append(te.reduce_axis((0, _size(self.inputs)), name="channel"))
        *taps, channel = (axis.var for axis in reduced)

        def product(batch: Any, *place: Any) -> Any:
            steps, phase, (group, output) = place[:rank], place[rank:-2], place[-2:]
            conditions, where = [], []
            for axis, step, tap, size in zip(self.axes, steps, taps, sizes, strict=True):
                where.append(step + axis.first - tap)
                conditions += axis.inside(step, tap, size)
            if not self._is_depthwise:
                # Zeros of the kernel: only where a tap is many products it pays to ask.
                for axis, number, tap in zip(self.axes, phase, taps, strict=False):
                    conditions += axis.exists(number, tap)
            value = data(*self._placed(batch, where, group * self.inputs + channel))
            if conditions:
                zero = tirx.const(0, data.dtype)
                value = tirx.if_then_else(tirx.all(*conditions), value, zero)
            weight = kernel(group, *phase, *taps, channel, output).astype(self.dtype)
            return te.sum(value.astype(self.dtype) * weight, axis=reduced)

        steps = [size + axis.more_steps for axis, size in zip(self.axes, sizes, strict=True)]
        outputs = self.outputs * (prod(self._strides) if self.merged else 1)
        shape = [data.shape[0], *steps, *_sizes([*phases, self.groups, outputs])]
        return te.compute(shape, product, name="phases")

    def interleave(self, summed: te.Tensor) -> te.Tensor:
        """The result, given all phases."""

        def element(*place: Any) -> Any:
            places = list(place)
            channel = places.pop(self.channel_axis)
            batch, *places = places
            steps, phases = [], []
            for axis, at in zip(self.axes, places, strict=True):
                stride = _size(axis.stride)
                steps.append(tirx.floordiv(at + axis.offset, stride))
                phases.append(tirx.floormod(at + axis.offset, stride))
            outputs = _size(self.outputs)
            group, output = tirx.floordiv(channel, outputs), tirx.floormod(channel, outputs)
            if self.merged:
                number = _size(0)
                for phase, stride in zip(phases, self._strides, strict=True):
                    number = number * stride + phase
                return summed(batch, *steps, group, number * outputs + output)
            return summed(batch, *steps, *phases, group, output)

        steps = zip(self.axes, summed.shape[1:], strict=False)
        whole = [axis.result(count - axis.more_steps) for axis, count in steps]
        sizes = self._placed(summed.shape[0], whole, _size(self.groups * self.outputs))
        return te.compute(sizes, element, name="interleaved")

    def compute(self, data: te.Tensor, kernel: te.Tensor) -> te.Tensor:
        """The result, given the data and the split kernel."""
        return self.interleave(self.convolve(data, kernel))

    @property
    def _strides(self) -> list[int]:
        return [axis.stride for axis in self.axes]

    @property
    def _is_depthwise(self) -> bool:
        return self.inputs == self.outputs == 1

    def _placed(self, batch: Any, places: Sequence[Any], channel: Any) -> list[Any]:
        """Indices, or sizes, in the order of the layout."""
        found = [batch, *places]
        found.insert(self.channel_axis, channel)
        return found


def _size(number: int) -> Any:
    return tirx.const(number, "int64")


def _sizes(numbers: Sequence[int]) -> list[Any]:
    return list(map(_size, numbers))


@relax.expr_functor.mutator
class _Splitter(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        found = _transposed_convolution(call) if operator_name(call) in TRANSPOSED else None
        if found is None:
            return call
        data, kernel = call.args
        name = found.name
        split = self.builder_.emit_te(
            found.split_kernel, kernel, primfunc_name_hint=f"{name}_kernel"
        )
        if found.merged:
            phases = self.builder_.emit(self._anchor(found.convolve, data, split, name))
            return self.builder_.call_te(
                found.interleave, phases, primfunc_name_hint=f"{name}_interleave"
            )
        return self._anchor(found.compute, data, split, name)

    def _anchor(self, compute: Any, data: Any, kernel: Any, name: str) -> Any:
        """A call of a computation that takes element-wise operators behind it."""
        made = self.builder_.call_te(compute, data, kernel, primfunc_name_hint=name)
        func = self.builder_.get()[made.args[0]]
        self.builder_.update_func(made.args[0], func.with_attr("op_pattern", ANCHOR))
        return made


def _transposed_convolution(call: Any) -> _TransposedConvolution | None:
    """What a call computes; ``None`` if shapes are not known or empty, or a layout has blocks.

    The batch, and sizes in space, may be as large as the run finds.
    """
    attrs, letters = call.attrs, TRANSPOSED[operator_name(call)]
    layout, kernel_layout = str(attrs.data_layout), str(attrs.kernel_layout)
    shapes = _shapes(call)
    plain = sorted(layout) == sorted(f"NC{letters}") and kernel_layout == f"IO{letters}"
    if not shapes or not plain or str(attrs.out_layout) != layout or layout[0] != "N":
        return None
    data, kernel, result = shapes
    groups, places = int(attrs.groups), [layout.index(letter) for letter in letters]
    numbers = (attrs.strides, attrs.dilation, attrs.padding)
    axes = []
    for place, size, *moves in zip(places, kernel[2:], *numbers, strict=False):
        stride, dilation, before = map(int, moves)
        grown = sym.Analyzer().simplify(result[place] - (data[place] - 1) * stride)
        if not isinstance(grown, tirx.IntImm):
            return None
        axes.append(_Axis(int(grown), int(size), stride, dilation, before))
    inputs, outputs = int(data[layout.index("C")]) // groups, int(kernel[1])
    phases = prod(axis.stride for axis in axes)
    merged = outputs < _FEW_OUTPUTS and phases > 1 and not inputs == outputs == 1
    if merged:
        axes = [axis.without_shift() for axis in axes]
    return _TransposedConvolution(
        groups,
        inputs,
        outputs,
        tuple(axes),
        layout.index("C"),
        str(call.ty.dtype),
        merged,
    )


def _shapes(call: Any) -> list[list[Any]] | None:
    """The sizes of data, kernel and result; none is 0, and those of channels are known."""
    tensors = (*call.args, call)
    if not all(isinstance(each.ty.shape, relax.ShapeExpr) for each in tensors):
        return None
    found = [list(each.ty.shape.values) for each in tensors]
    if any(isinstance(size, tirx.IntImm) and not int(size) for sizes in found for size in sizes):
        return None
    channels = found[0][str(call.attrs.data_layout).index("C")]
    is_known = all(isinstance(size, tirx.IntImm) for size in (channels, *found[1]))
    return found if is_known else None
