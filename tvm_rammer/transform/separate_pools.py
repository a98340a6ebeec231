"""A compiler pass that takes pools of large windows apart into pools along one axis.

The maximum of a window is that of the maxima of its rows, and so is its average, as padding counts
in every row alike. Windows that overlap have rows in common, which are computed once. A long row is
a few short ones with the same distance, of which neighbours share all but one: a maximum of 31 is
one of 5 of maxima of 7 (the doubling of windows, to any base). Detectors pool windows of 13 x 13
around every place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import relax

from tvm_rammer.relax_util import calls_any, known_shapes, operator_name, rewrite

_POOLS = {
    "relax.nn.max_pool1d": relax.op.nn.max_pool1d,
    "relax.nn.max_pool2d": relax.op.nn.max_pool2d,
    "relax.nn.avg_pool2d": relax.op.nn.avg_pool2d,
}
#: Windows of fewer elements are computed at once.
_FEW_ELEMENTS = 16
#: Longer rows are taken apart.
_LONG_ROW = 16
#: What storing and loading an element between two pools costs, in elements of a window.
_BETWEEN = 2


@tvm.transform.module_pass(opt_level=0, name="SeparatePools")
class SeparatePools:
    """Rewrite pools of which the parts have less to do than the whole."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        return rewrite(mod, _Separator(mod)) if calls_any(mod, _POOLS) else mod


@dataclass(frozen=True)
class _Window:
    """The window along one axis, from ``size`` elements of the data to ``result``."""

    elements: int
    stride: int
    dilation: int
    before: int
    after: int
    size: int
    result: int

    @property
    def is_trivial(self) -> bool:
        """Whether a pool along this axis changes nothing."""
        return self.elements == self.stride == 1 and self.size == self.result

    def parts(self) -> list[_Window]:
        """The same maximum as that of maxima: the fewest elements in all."""
        if self.elements <= _LONG_ROW:
            return [self]

        def cut(count: int) -> tuple[int, int, int, int]:
            distance = self.elements // count
            first = self.elements - distance * (count - 1)
            return first + count, first, count, distance

        _, elements, count, distance = min(map(cut, range(2, self.elements)))
        end = (elements - 1) * self.dilation
        between = self.before + self.size + self.after - end
        one = _Window(elements, 1, self.dilation, self.before, self.after, self.size, between)
        other = _Window(count, self.stride, distance * self.dilation, 0, 0, between, self.result)
        return [*one.parts(), *other.parts()]


@relax.expr_functor.mutator
class _Separator(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        name = operator_name(call)
        shapes = known_shapes(*call.args, call) if name in _POOLS else []
        if not shapes or str(call.attrs.out_layout) != str(call.attrs.layout):
            return call
        data, result = shapes
        places = [k for k, letter in enumerate(str(call.attrs.layout)) if letter in "HW"]
        windows = _windows(call.attrs, [data[k] for k in places], [result[k] for k in places])
        is_maximum = "max" in name
        if not is_maximum and not str(call.ty.dtype).startswith("float"):
            return call
        parts = [
            (axis, part)
            for axis, window in enumerate(windows)
            if not window.is_trivial
            for part in (window.parts() if is_maximum and not call.attrs.ceil_mode else [window])
        ]
        if prod(w.elements for w in windows) < _FEW_ELEMENTS or not _pays(windows, parts):
            return call
        value = call.args[0]
        for number, (axis, part) in enumerate(parts):
            value = _pool(call, value, len(windows), axis, part)
            if number + 1 < len(parts):
                value = self.builder_.emit(value)
        return value


def _windows(attrs: Any, sizes: Sequence[int], results: Sequence[int]) -> list[_Window]:
    rank = len(sizes)
    moves = [list(map(int, a)) for a in (attrs.pool_size, attrs.strides, attrs.dilation)]
    padding = list(map(int, attrs.padding))
    ends = (padding[:rank], padding[rank:])
    return [_Window(*numbers) for numbers in zip(*moves, *ends, sizes, results, strict=True)]


def _pays(windows: Sequence[_Window], parts: Sequence[tuple[int, _Window]]) -> bool:
    """Whether the parts read fewer elements than the whole, what is between them included."""
    whole = prod(window.elements * window.result for window in windows)
    sizes = [window.size for window in windows]
    total = 0
    for axis, part in parts:
        sizes[axis] = part.result
        total += prod(sizes) * (part.elements + _BETWEEN)
    return total < whole


def _pool(call: Any, data: Any, rank: int, axis: int, window: _Window) -> Any:
    """A pool like another, along one axis only."""

    def only(value: int, other: int) -> list[int]:
        return [value if place == axis else other for place in range(rank)]

    attrs = call.attrs
    options: dict[str, Any] = (
        {} if "max" in call.op.name else {"count_include_pad": bool(attrs.count_include_pad)}
    )
    return _POOLS[operator_name(call)](
        data,
        pool_size=only(window.elements, 1),
        strides=only(window.stride, 1),
        padding=[*only(window.before, 0), *only(window.after, 0)],
        dilation=only(window.dilation, 1),
        ceil_mode=bool(attrs.ceil_mode),
        layout=str(attrs.layout),
        **options,
    )
