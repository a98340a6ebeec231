"""A function of any number of places, which calls kernels for some of them over and over.

Large blocks are computed where all that they touch is inside, and touch it where it lies; small
ones everything else, on copies of what they read, of whose results the places that exist are
copied back. Where there are few places, all blocks are smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tvm import s_tir, tirx

from tvm_rammer.kernel.cut_operators import Block
from tvm_rammer.kernel.kernel_call import KernelCall, integer, like, whole
from tvm_rammer.kernel.loops import ceil_div

#: So many of the smallest blocks, and of others, are few places.
_FEW, _MANY = 2, 8


def in_blocks(
    blocks: Sequence[Block], kernels: Sequence[tirx.PrimFunc], shared: Sequence[bool]
) -> tirx.PrimFunc:
    """A function of whole tensors.

    Parameters
    ----------
    blocks : sequence of Block
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
    for place, (windows, together) in enumerate(zip(blocks[0].windows, shared, strict=True)):
        if windows:
            given.append([whole(first.params[place], windows)])
        else:
            own = kernels[:1] if together else kernels
            given.append([like(kernel.params[place]) for kernel in own])

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
        return small.on_copies([tirx.Select(number < before, number, number + (behind - before))])

    def inside(number: Any) -> tirx.Stmt:
        return large.in_place([number])

    loops = [
        _loop("inside", begin, tirx.max(end - begin, 0), inside),
        _loop("outside", integer(0), left, outside),
    ]
    return tirx.SeqStmt(loops), [*large.strided.values(), *small.copies.values()]


class _Calls(KernelCall):
    """A kernel for blocks of one size, along one axis."""

    def __init__(self, blocks: Block, kernel: tirx.PrimFunc, tensors: Sequence[Any]) -> None:
        super().__init__(blocks.windows, kernel, tensors)
        self.places = blocks.places

    @property
    def whole_places(self) -> Any:
        """How many results there are along the axis."""
        result = self.params[-1]
        (window,) = self.windows[result]
        return self.whole[result].shape[window.axis]

    def inside(self) -> tuple[int, Any]:
        """The first block of which everything is inside, and the first one behind those."""
        begin, ends = 0, []
        for param, (window,) in self.windows.items():
            size = self.whole[param].shape[window.axis]
            room = size - (window.first + window.length)
            if window.stride:
                begin = max(begin, -(window.first // window.stride))
                ends.append(tirx.floordiv(room, integer(window.stride)) + 1)
            elif window.first < 0:
                ends.append(integer(0))
            else:
                everything = tirx.floordiv(self.whole_places, integer(self.places))
                ends.append(tirx.Select(room >= 0, everything, integer(0)))
        return begin, reduce(tirx.min, ends)


def _loop(name: str, first: Any, count: Any, body: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
    number = tirx.Var(name, "int64")
    return tirx.For(number, integer(0), count, tirx.ForKind.SERIAL, body(number + first))
