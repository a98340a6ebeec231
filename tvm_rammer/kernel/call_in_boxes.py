"""A function of images of any height and width, which calls kernels for boxes of their places.

What kernels find zeros around is copied first, with the zeros, so that every box is computed where
it lies. Places of two boxes are computed by the same core, one box after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import mul
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from tvm_rammer.kernel.cut_operators import Block, Window
from tvm_rammer.kernel.kernel_call import KernelCall, integer, like, whole
from tvm_rammer.kernel.loops import ceil_div
from tvm_rammer.kernel.run_time_boxes import Boxes


def in_boxes(
    boxes: Boxes, kernels: Sequence[tirx.PrimFunc], shared: Sequence[bool]
) -> tirx.PrimFunc:
    """A function of whole tensors; parameters as for :func:`~.call_in_blocks.in_blocks`."""
    first = kernels[0]
    given = []
    for place, windows in enumerate(boxes.single.windows):
        own = kernels[:1] if windows or shared[place] else kernels
        params = [kernel.params[place] for kernel in own]
        given.append([whole(each, windows) if windows else like(each) for each in params])
    *wide, single = (
        _Kind(boxes, block, kernel, [each[min(number, len(each) - 1)] for each in given])
        for number, (block, kernel) in enumerate(zip(boxes.blocks, kernels, strict=True))
    )
    rows, columns = wide[-1].lengths[-2:]
    fit = tirx.all(single.sizes[-2] >= rows, single.sizes[-1] >= columns)
    body = tirx.IfThenElse(fit, _covered(wide), _covered([single]))
    root = s_tir.SBlock([], [], [], "root", body)
    params = [buffer for each in given for buffer in each]
    return tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root), attrs=first.attrs)


class _Kind:
    """Boxes of one size, computed by one kernel.

    Parameters
    ----------
    boxes : Boxes
    block : Block
        One of them.
    kernel : tirx.PrimFunc
    tensors : sequence of buffers
        The function's, in the order of the kernel's parameters.
    """

    def __init__(
        self, boxes: Boxes, block: Block, kernel: tirx.PrimFunc, tensors: Sequence[Any]
    ) -> None:
        self.units, self.in_rows, self.tensors = boxes.units, boxes.in_rows, list(tensors)
        self.windows, self.lengths = list(block.windows), block.lengths
        self.kernel = kernel.with_body(_on_one_core(kernel.body)) if boxes.in_rows else kernel
        shape = self.tensors[-1].shape
        self.sizes = [shape[window.axis] for window in self.windows[-1]]

    @property
    def steps(self) -> list[int]:
        """Units of a box, along each axis."""
        return [length // unit for length, unit in zip(self.lengths, self.units, strict=True)]

    def padded(self, place: int) -> Any:
        """A buffer for a parameter and the zeros around it; ``None`` if it needs none."""
        windows = [each for each in self.windows[place] if each.filled]
        if not windows:
            return None
        given = self.tensors[place]
        shape = list(given.shape)
        for window in windows:
            unit, size = self.units[window.along], self.sizes[window.along]
            last = tirx.floordiv(size - self.lengths[window.along], integer(unit))
            # Of no places at all there is no box, but a copy.
            shape[window.axis] = tirx.max(last, integer(0)) * window.stride + window.length
        return tirx.decl_buffer(shape, str(given.dtype), f"{given.name}_padded")

    def call(self, copies: Sequence[Any]) -> KernelCall:
        """The kernel on padded copies, where there are some."""
        tensors, windows = list(self.tensors), list(self.windows)
        for place, copy in enumerate(copies):
            if copy is not None:
                tensors[place] = copy
                windows[place] = tuple(
                    replace(each, first=0 if each.filled else each.first, filled=False)
                    for each in windows[place]
                )
        return KernelCall(windows, self.kernel, tensors)


def _covered(kinds: Sequence[_Kind]) -> tirx.Stmt:
    """Everything, by boxes of several widths; by the narrowest what the others leave."""
    kind = kinds[-1]
    copies = [kind.padded(place) for place in range(len(kind.windows))]
    steps = []
    for copy, given, windows in zip(copies, kind.tensors, kind.windows, strict=True):
        if copy is not None:
            steps.append(_copied(given, copy, {w.axis: w for w in windows if w.filled}))
    *counts, columns = (
        tirx.floordiv(size, integer(unit))
        for size, unit in zip(kind.sizes, kind.units, strict=True)
    )
    rows = list(map(ceil_div, counts, kind.steps))
    row = tirx.Var("row", "int64")
    starts = [
        # The last boxes begin where there are places enough.
        tirx.min(place * step, count - step) if step > 1 else place
        for place, step, count in zip(_taken_apart(row, rows), kind.steps, counts, strict=False)
    ]
    body = _columns(columns, kinds, [each.call(copies) for each in kinds], starts)
    # Two cores never compute the same place.
    loop = tirx.ForKind.PARALLEL if kind.in_rows else tirx.ForKind.SERIAL
    steps.append(tirx.For(row, integer(0), reduce(mul, rows), loop, body))
    return _block(steps, [copy for copy in copies if copy is not None])


def _columns(
    count: Any, kinds: Sequence[_Kind], calls: Sequence[KernelCall], starts: Sequence[Any]
) -> tirx.Stmt:
    """The boxes of a row, of each width one after the other."""
    done: Any = integer(0)
    loops = []
    for kind, call in zip(kinds, calls, strict=True):
        width = kind.steps[-1]
        left = count - done
        boxes = ceil_div(left, width) if kind is kinds[-1] else tirx.floordiv(left, integer(width))
        number = tirx.Var("number", "int64")
        start = tirx.min(done + number * width, count - width)
        box = _block([call.in_place([*starts, start])], list(call.strided.values()))
        loops.append(tirx.For(number, integer(0), boxes, tirx.ForKind.SERIAL, box))
        done = done + boxes * width
    return _block(loops, [])


def _copied(given: Any, copy: Any, windows: Mapping[int, Window]) -> tirx.Stmt:
    """Copies a tensor and puts zeros around it; lines are shared out."""
    last = max(windows)
    line, place = tirx.Var("line", "int64"), tirx.Var("place", "int64")
    outer = [*_taken_apart(line, copy.shape[:last]), place]
    shifted = {k: outer[k] + window.first for k, window in windows.items()}
    inside = [tirx.all(shifted[k] >= 0, shifted[k] < given.shape[k]) for k in sorted(windows)]

    def stored(has_value: bool) -> Any:
        inner = [tirx.Var(f"axis_{k}", "int64") for k in range(last + 1, len(copy.shape))]
        own = [*(shifted.get(k, axis) for k, axis in enumerate(outer)), *inner]
        zero = tirx.const(0, str(given.dtype))
        value = tirx.BufferLoad(given, own) if has_value else zero
        body: Any = tirx.BufferStore(copy, value, [*outer, *inner])
        for axis, extent in reversed(list(zip(inner, copy.shape[last + 1 :], strict=True))):
            body = tirx.For(axis, integer(0), extent, tirx.ForKind.SERIAL, body)
        return body

    body: Any = tirx.IfThenElse(tirx.all(*inside), stored(True), stored(False))
    body = tirx.For(place, integer(0), copy.shape[last], tirx.ForKind.SERIAL, body)
    lines = reduce(mul, copy.shape[:last], integer(1))
    return tirx.For(line, integer(0), lines, tirx.ForKind.PARALLEL, body)


def _taken_apart(number: Any, sizes: Sequence[Any]) -> list[Any]:
    """The places along axes that the number of a place says, the first axis outermost."""
    places: list[Any] = []
    for size in reversed(sizes[1:]):
        places.insert(0, tirx.floormod(number, size))
        number = tirx.floordiv(number, size)
    return [number, *places] if len(sizes) else []


def _on_one_core(body: Any) -> Any:
    def serial(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm_ffi.structural_map(body, (tirx.For, serial))


def _block(statements: Sequence[Any], allocated: Sequence[Any]) -> tirx.Stmt:
    """Statements, and what they allocate each time."""
    body = tirx.SeqStmt(list(statements)) if len(statements) > 1 else statements[0]
    if not allocated:
        return body
    block = s_tir.SBlock([], [], [], "box", body, alloc_buffers=list(allocated))
    return s_tir.SBlockRealize([], True, block)
