"""A function of any number of places, which calls kernels for some of them over and over.

Large blocks are computed where all that they touch is inside, and touch it where it lies; small
ones everything else, on copies of what they read, of whose results the places that exist are
copied back. Where there are few places, all blocks are smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_rammer.kernel.blocks import loads
from tvm_rammer.kernel.loops import ceil_div
from tvm_rammer.kernel.nodes import collect, substitute
from tvm_rammer.kernel.run_time_blocks import RunTimeBlocks, Window

#: So many of the smallest blocks, and of others, are few places.
_FEW, _MANY = 2, 8


def in_blocks(
    blocks: Sequence[RunTimeBlocks], kernels: Sequence[tirx.PrimFunc], shared: Sequence[bool]
) -> tirx.PrimFunc:
    """A function of whole tensors.

    Parameters
    ----------
    blocks : sequence of RunTimeBlocks
        The largest first.
    kernels : sequence of tirx.PrimFunc
        What their functions became, scheduled; parameters without a window may have other shapes.
    shared : sequence of bool
        Of every parameter, whether all kernels take the same tensor. What they do not share, the
        function takes once for each of them, one behind the other.
    """
    first = kernels[0]
    #: What the function takes, of every parameter, for each of the kernels.
    given: list[list[Any]] = []
    for place, (window, together) in enumerate(zip(blocks[0].windows, shared, strict=True)):
        if window is not None:
            given.append([_whole(first.params[place], window.axis)])
        else:
            own = kernels[:1] if together else kernels
            given.append([_like(kernel.params[place]) for kernel in own])

    def calls(number: int) -> _Calls:
        own = [each[min(number, len(each) - 1)] for each in given]
        return _Calls(blocks[number], kernels[number], own)

    last = min(1, len(blocks) - 1)
    body, copies = _covered(calls(0), calls(last))
    for number in range(last + 1, len(blocks)):
        fewer, more = _covered(calls(number), calls(number))
        copies += more
        # Of a few places each is computed alone; else some of what is computed may be for nothing.
        most = blocks[number].places * (_FEW if number == len(blocks) - 1 else _MANY)
        body = tirx.IfThenElse(calls(number).whole_places <= most, fewer, body)
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=copies)
    params = [buffer for each in given for buffer in each]
    return tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root), attrs=first.attrs)


def _covered(large: _Calls, small: _Calls) -> tuple[tirx.Stmt, list[Any]]:
    """All places by large blocks, and by small ones what those leave; what is allocated for it."""
    begin, end = large.inside()
    ratio = large.places // small.places
    before, behind = begin * ratio, tirx.max(end, begin) * ratio
    left = before + ceil_div(small.whole_places, small.places) - behind

    def outside(number: Any) -> tirx.Stmt:
        return small.on_copies(tirx.Select(number < before, number, number + (behind - before)))

    loops = [
        _loop("inside", begin, tirx.max(end - begin, 0), large.in_place),
        _loop("outside", _int(0), left, outside),
    ]
    return tirx.SeqStmt(loops), [*large.strided.values(), *small.copies.values()]


class _Calls:
    """A kernel for blocks of one size, on parts of the tensors of a function.

    Parameters
    ----------
    blocks : RunTimeBlocks
    kernel : tirx.PrimFunc
    tensors : sequence of buffers
        The function's, in the order of the kernel's parameters.
    """

    def __init__(
        self, blocks: RunTimeBlocks, kernel: tirx.PrimFunc, tensors: Sequence[Any]
    ) -> None:
        kernel = s_tir.renew_defs(kernel)
        self.places, self.params, self.body = blocks.places, list(kernel.params), kernel.body
        self.whole = dict(zip(self.params, tensors, strict=True))
        pairs = zip(self.params, blocks.windows, strict=True)
        self.windows: dict[Any, Window] = {each: window for each, window in pairs if window}
        self.kept = {each: self.whole[each] for each in self.params if each not in self.windows}
        self.copies = {each: _like(each) for each in self.windows}
        accessed = {each for each in self.windows if _is_accessed_only(self.body, each)}
        #: What a kernel reads and writes as one piece, or asks the place of.
        self.strided = {each: _like(each) for each in self.windows if each not in accessed}

    @property
    def whole_places(self) -> Any:
        """How many results there are along the axis."""
        result = self.params[-1]
        return self.whole[result].shape[self.windows[result].axis]

    def inside(self) -> tuple[int, Any]:
        """The first block of which everything is inside, and the first one behind those."""
        begin, ends = 0, []
        for param, window in self.windows.items():
            size = self.whole[param].shape[window.axis]
            room = size - (window.first + window.length)
            if window.stride:
                begin = max(begin, -(window.first // window.stride))
                ends.append(tirx.floordiv(room, _int(window.stride)) + 1)
            elif window.first < 0:
                ends.append(_int(0))
            else:
                result = self.windows[self.params[-1]]
                everything = tirx.floordiv(self.whole_places, _int(result.stride))
                ends.append(tirx.Select(room >= 0, everything, _int(0)))
        return begin, reduce(tirx.min, ends)

    def in_place(self, block: Any) -> tirx.Stmt:
        """A block that is inside."""
        moved = {each: (self.whole[each], _start(w, block), w.axis) for each, w in self._direct()}
        body = substitute(_on_whole(self.body, moved), {**self.kept, **self.strided})
        return self._around(body, self.strided, block)

    def on_copies(self, block: Any) -> tirx.Stmt:
        """A block anywhere."""
        return self._around(substitute(self.body, {**self.kept, **self.copies}), self.copies, block)

    def _direct(self) -> list[tuple[Any, Window]]:
        return [each for each in self.windows.items() if each[0] not in self.strided]

    def _around(self, body: Any, copies: Mapping[Any, Any], block: Any) -> tirx.Stmt:
        """What a kernel does, between copying what it reads and copying back its result."""
        *read, result = self.params
        steps = [self._copied(each, copies[each], block, False) for each in read if each in copies]
        steps.append(body)
        if result in copies:
            steps.append(self._copied(result, copies[result], block, True))
        return tirx.SeqStmt(steps) if len(steps) > 1 else body

    def _copied(self, param: Any, part: Any, block: Any, back: bool) -> tirx.Stmt:
        """Copies a window, or of what was computed the places that exist."""
        whole, window = self.whole[param], self.windows[param]
        axes = [tirx.Var(f"axis_{axis}", "int64") for axis in range(len(part.shape))]
        size, place = whole.shape[window.axis], _start(window, block) + axes[window.axis]

        def at(where: Any) -> list[Any]:
            return [where if k == window.axis else axis for k, axis in enumerate(axes)]

        exists = tirx.all(place >= 0, place < size)
        if back:
            copy: Any = tirx.BufferStore(whole, tirx.BufferLoad(part, axes), at(place))
            copy = tirx.IfThenElse(exists, copy, None)
        else:
            value: Any = tirx.BufferLoad(whole, at(tirx.max(tirx.min(place, size - 1), 0)))
            if window.filled:
                value = tirx.BufferLoad(whole, at(place))
                value = tirx.if_then_else(exists, value, tirx.const(0, str(part.dtype)))
            copy = tirx.BufferStore(part, value, axes)
        for var, extent in reversed(list(zip(axes, part.shape, strict=True))):
            copy = tirx.For(var, _int(0), extent, tirx.ForKind.SERIAL, copy)
        return copy


def _is_accessed_only(body: Any, buffer: Any) -> bool:
    """Whether a kernel knows of a buffer only what elements it has."""
    read = [each.source for each in loads(body)]
    stores = [each.buffer for each in collect(body, tirx.BufferStore)]
    named = [each for each in collect(body, tirx.Var) if each.same_as(buffer)]
    return len(named) == sum(each.same_as(buffer) for each in (*read, *stores))


def _on_whole(body: Any, moved: Mapping[Any, tuple[Any, Any, int]]) -> Any:
    """A body that accesses other buffers, where windows begin."""

    def indices(buffer: Any, given: Sequence[Any]) -> list[Any]:
        _, start, axis = moved[buffer]
        return [each + start if k == axis else each for k, each in enumerate(given)]

    def load(node: Any) -> Any:
        if node.source not in moved:
            return node
        return tirx.BufferLoad(moved[node.source][0], indices(node.source, node.indices))

    def store(node: Any) -> Any:
        if node.buffer not in moved:
            return node
        return tirx.BufferStore(
            moved[node.buffer][0], node.value, indices(node.buffer, node.indices)
        )

    return tvm_ffi.structural_map(body, ((ir.TensorLoad, load), (tirx.BufferStore, store)))


def _loop(name: str, first: Any, count: Any, body: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
    number = tirx.Var(name, "int64")
    return tirx.For(number, _int(0), count, tirx.ForKind.SERIAL, body(number + first))


def _start(window: Window, block: Any) -> Any:
    return block * window.stride + window.first


def _whole(part: Any, axis: int) -> Any:
    shape = list(part.shape)
    shape[axis] = tirx.Var("places", "int64")
    return tirx.decl_buffer(shape, str(part.dtype), part.name)


def _like(buffer: Any) -> Any:
    return tirx.decl_buffer(buffer.shape, str(buffer.dtype), buffer.name)


def _int(value: int) -> Any:
    return tirx.IntImm("int64", value)
