"""A kernel for a block, as statements on parts of the tensors of a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_rammer.kernel.blocks import loads
from tvm_rammer.kernel.cut_operators import Window
from tvm_rammer.kernel.nodes import collect, substitute


class KernelCall:
    """A kernel for blocks of one size.

    Parameters
    ----------
    windows : sequence of sequence of Window
        Of the kernel's parameters.
    kernel : tirx.PrimFunc
    tensors : sequence of buffers
        The function's, in the order of the kernel's parameters.
    """

    def __init__(
        self, windows: Sequence[Sequence[Window]], kernel: tirx.PrimFunc, tensors: Sequence[Any]
    ) -> None:
        kernel = s_tir.renew_defs(kernel)
        self.params, self.body = list(kernel.params), kernel.body
        self.whole = dict(zip(self.params, tensors, strict=True))
        pairs = zip(self.params, windows, strict=True)
        self.windows: dict[Any, Sequence[Window]] = {each: own for each, own in pairs if own}
        self.kept = {each: self.whole[each] for each in self.params if each not in self.windows}
        self.copies = {each: like(each) for each in self.windows}
        accessed = {each for each in self.windows if _is_accessed_only(self.body, each)}
        #: What a kernel reads and writes as one piece, or asks the place of.
        self.strided = {each: like(each) for each in self.windows if each not in accessed}

    def in_place(self, starts: Sequence[Any]) -> tirx.Stmt:
        """A block that touches nothing outside of the tensors."""
        moved = {
            each: (self.whole[each], {w.axis: _first(w, starts) for w in own})
            for each, own in self.windows.items()
            if each not in self.strided
        }
        body = substitute(_on_whole(self.body, moved), {**self.kept, **self.strided})
        return self._around(body, self.strided, starts)

    def on_copies(self, starts: Sequence[Any]) -> tirx.Stmt:
        """A block anywhere."""
        body = substitute(self.body, {**self.kept, **self.copies})
        return self._around(body, self.copies, starts)

    def _around(self, body: Any, copies: Mapping[Any, Any], starts: Sequence[Any]) -> tirx.Stmt:
        """What a kernel does, between copying what it reads and copying back its result."""
        *read, result = self.params
        steps = [self._copied(each, copies[each], starts, False) for each in read if each in copies]
        steps.append(body)
        if result in copies:
            steps.append(self._copied(result, copies[result], starts, True))
        return tirx.SeqStmt(steps) if len(steps) > 1 else body

    def _copied(self, param: Any, part: Any, starts: Sequence[Any], back: bool) -> tirx.Stmt:
        """Copies a window, or of what was computed the places that exist."""
        whole = self.whole[param]
        axes = [tirx.Var(f"axis_{axis}", "int64") for axis in range(len(part.shape))]
        places, nearest, exist, filled = list(axes), list(axes), [], []
        for window in self.windows[param]:
            size = whole.shape[window.axis]
            place = _first(window, starts) + axes[window.axis]
            is_there = tirx.all(place >= 0, place < size)
            exist.append(is_there)
            if window.filled:
                filled.append(is_there)
            places[window.axis] = place
            last = place if window.filled else tirx.max(tirx.min(place, size - 1), 0)
            nearest[window.axis] = last
        if back:
            copy: Any = tirx.BufferStore(whole, tirx.BufferLoad(part, axes), places)
            copy = tirx.IfThenElse(tirx.all(*exist), copy, None)
        else:
            value: Any = tirx.BufferLoad(whole, nearest)
            if filled:
                zero = tirx.const(0, str(part.dtype))
                value = tirx.if_then_else(tirx.all(*filled), value, zero)
            copy = tirx.BufferStore(part, value, axes)
        for var, extent in reversed(list(zip(axes, part.shape, strict=True))):
            copy = tirx.For(var, integer(0), extent, tirx.ForKind.SERIAL, copy)
        return copy


def whole(part: Any, windows: Sequence[Window]) -> Any:
    """A buffer as a block has it, but for the sizes that the run tells."""
    shape = list(part.shape)
    for window in windows:
        shape[window.axis] = tirx.Var("places", "int64")
    return tirx.decl_buffer(shape, str(part.dtype), part.name)


def like(buffer: Any) -> Any:
    """Another buffer of the same shape."""
    return tirx.decl_buffer(buffer.shape, str(buffer.dtype), buffer.name)


def integer(value: int) -> Any:
    """A number, as sizes are."""
    return tirx.IntImm("int64", value)


def _first(window: Window, starts: Sequence[Any]) -> Any:
    return starts[window.along] * window.stride + window.first


def _is_accessed_only(body: Any, buffer: Any) -> bool:
    """Whether a kernel knows of a buffer only what elements it has."""
    read = [each.source for each in loads(body)]
    stores = [each.buffer for each in collect(body, tirx.BufferStore)]
    named = [each for each in collect(body, tirx.Var) if each.same_as(buffer)]
    return len(named) == sum(each.same_as(buffer) for each in (*read, *stores))


def _on_whole(body: Any, moved: Mapping[Any, tuple[Any, Mapping[int, Any]]]) -> Any:
    """A body that accesses other buffers, where windows begin."""

    def indices(buffer: Any, given: Sequence[Any]) -> list[Any]:
        _, starts = moved[buffer]
        return [each + starts[k] if k in starts else each for k, each in enumerate(given)]

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
