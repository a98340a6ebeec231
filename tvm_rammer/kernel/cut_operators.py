"""An operator that computes a block of its places: of axes whose size only the run tells.

Places are the rows of a product, the images of a batch, the samples of a sound, the pixels of an
image. An operator that computes every place from neighbours of the same place computes some at once
by a kernel for so many, which any rule may schedule. A block reads a window of each operand:
outside of it the last place again, or the zeros that a convolution finds there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from tvm_rammer.kernel.blocks import is_choice, is_reduced, is_zero, loads, variables
from tvm_rammer.kernel.guards import Guarded
from tvm_rammer.kernel.loop_nests import LoopNest, NotInBlocksError, func_of, tensors_of
from tvm_rammer.kernel.nodes import conjuncts, substitute

#: No window reaches so far.
_FARTHEST = 1 << 40


@dataclass(frozen=True)
class Window:
    """What a block touches of an axis: ``length`` places from ``stride * start + first`` on.

    Attributes
    ----------
    axis : int
        The one of which the run tells the size.
    stride, first, length : int
    along : int
        Which of the places that a block begins at it follows.
    filled : bool
        Whether what lies outside of the tensor is read as zeros.
    """

    axis: int
    stride: int
    first: int
    length: int
    along: int = 0
    filled: bool = False


@dataclass(frozen=True)
class Block:
    """An operator of a known number of places, to compute as many as there are.

    Attributes
    ----------
    func : tirx.PrimFunc
        It computes a block.
    windows : tuple of tuple of Window
        Of its parameters; those that every block reads whole have none.
    """

    func: tirx.PrimFunc
    windows: tuple[tuple[Window, ...], ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Results of a block along each axis of which the run tells the size."""
        return tuple(window.length for window in self.windows[-1])

    @property
    def places(self) -> int:
        """Results of a block along the first of them."""
        return self.lengths[0]


def open_axes(buffer: Any) -> list[int]:
    """The axes of which the run tells the size."""
    return [k for k, size in enumerate(buffer.shape) if not isinstance(size, tirx.IntImm)]


def open_sizes(func: tirx.PrimFunc) -> set[Any]:
    """The names in the shapes of its parameters."""
    return variables([size for param in tensors_of(func) for size in param.shape])


def cut(
    func: tirx.PrimFunc, nests: Sequence[LoopNest], lengths: Sequence[int], steps: Sequence[int]
) -> Block:
    """The operator of a block.

    Parameters
    ----------
    func : tirx.PrimFunc
    nests : sequence of LoopNest
        Its own.
    lengths : sequence of int
        Results of the block, along the axes of which the run tells the size.
    steps : sequence of int
        Blocks may begin at multiples of them.

    Raises
    ------
    NotInBlocksError
        A place is not computed from neighbours alone.
    """
    return _Cut(func, nests, lengths, steps).made()


class _Bounds:
    """What places of a nest are known to be.

    Expressions are simplified as if axes of one place had more: kernels are told from how indices
    are made.
    """

    def __init__(self) -> None:
        self._all, self._wide = sym.Analyzer(), sym.Analyzer()

    def bind(self, var: Any, domain: Any) -> None:
        self._all.bind(var, domain)
        if int(domain.extent) > 1:
            self._wide.bind(var, domain)

    def simplify(self, expression: Any) -> Any:
        return self._wide.simplify(expression)

    def reach(self, expression: Any) -> tuple[int, int]:
        """The least value, and the greatest."""
        bound = self._all.const_int_bound(expression)
        return int(bound.min_value), int(bound.max_value)


class _Cut:
    """Cuts a block out of an operator, from its result to its operands."""

    def __init__(
        self,
        func: tirx.PrimFunc,
        nests: Sequence[LoopNest],
        lengths: Sequence[int],
        steps: Sequence[int],
    ) -> None:
        self.func, self.nests, self.params = func, nests, tensors_of(func)
        self.starts = [tirx.Var(f"start_{along}", "int64") for along in range(len(lengths))]
        self.filled: set[tuple[Any, int]] = set()
        own = zip(self._axes(self.params[-1]), steps, lengths, strict=True)
        of_result = (Window(axis, step, 0, count, k) for k, (axis, step, count) in enumerate(own))
        self.windows = {self.params[-1]: tuple(of_result)}

    def made(self) -> Block:
        """The operator of one block, and what that touches."""
        moved = [self._moved(nest) for nest in reversed(self.nests)]
        windows = {
            buffer: tuple(replace(each, filled=(buffer, each.axis) in self.filled) for each in own)
            for buffer, own in self.windows.items()
        }
        shorter = {each: _shorter(each, own) for each, own in windows.items()}
        nests = [_shortened(nest, windows, shorter) for nest in reversed(moved)]
        allocated = [shorter.get(each, each) for each in self.func.body.block.alloc_buffers]
        nests, allocated = _without_copies(nests, allocated)
        params = [shorter.get(each, each) for each in self.params]
        func = func_of(params, nests, allocated, self.func.attrs)
        if variables(func.body) & {*self.starts, *open_sizes(self.func)}:
            # What block it is decides something, or how many there are.
            raise NotInBlocksError
        return Block(s_tir.renew_defs(func), tuple(windows.get(each, ()) for each in self.params))

    def _axes(self, buffer: Any) -> list[int]:
        """The axes of which the run tells the size, no more than of the result."""
        axes = open_axes(buffer)
        if len(axes) > len(self.starts):
            raise NotInBlocksError
        return axes

    def _moved(self, nest: LoopNest) -> LoopNest:
        """A nest as one block has it: its places count from ``stride * block``.

        What it reads of windows is known from here on.
        """
        written, bounds = nest.update.buffer, _Bounds()
        own, values = {}, {}
        windows = {window.axis: window for window in self.windows.get(written, ())}
        for axis in self._axes(written):
            place, window = nest.update.indices[axis], windows.get(axis)
            if window is None or not isinstance(place, tirx.Var):
                raise NotInBlocksError
            values[place] = self.starts[window.along] * window.stride + (place + window.first)
            own[place] = window
        variables = []
        for var in nest.block.iter_vars:
            extent, window = var.dom.extent, own.get(var.var)
            if window is not None:
                whole = sym.Analyzer().can_prove_equal(extent, written.shape[window.axis])
                if not whole or is_reduced(var):
                    raise NotInBlocksError
                extent = tirx.IntImm("int64", window.length)
            elif not isinstance(extent, tirx.IntImm):
                raise NotInBlocksError
            domain = ir.Range.from_min_extent(tirx.IntImm(extent.ty.dtype, 0), extent)
            bounds.bind(var.var, domain)
            variables.append(tirx.IterVar(domain, var.var, var.iter_type))
        block = s_tir.SBlock(variables, [], [], nest.block.name_hint, nest.block.body)
        update, init = (self._store(each, values, bounds) for each in (nest.update, nest.init))
        return LoopNest(block, update, init)

    def _store(self, store: Any, values: Mapping[Any, Any], bounds: _Bounds) -> Any:
        if store is None:
            return None
        refused: list[Exception] = []

        def load(node: Any) -> Any:
            try:
                indices = self._reached(node.source, node.indices, bounds)
            except NotInBlocksError as error:
                # TVM would make another exception of it.
                refused.append(error)
                return node
            return tirx.BufferLoad(node.source, indices)

        def moved(expression: Any) -> Any:
            found = tvm_ffi.structural_map(substitute(expression, values), (ir.TensorLoad, load))
            if refused:
                raise refused[0]
            return found

        value = moved(self._unpadded(store.value))
        value = bounds.simplify(value) if self._moves(value) else value
        indices = self._reached(store.buffer, list(map(moved, store.indices)), bounds)
        return tirx.BufferStore(store.buffer, value, indices)

    def _reached(self, buffer: Any, indices: Sequence[Any], bounds: _Bounds) -> list[Any]:
        """Indices without the beginning of the block, which make the buffer's windows larger."""
        found = [bounds.simplify(each) if self._moves(each) else each for each in indices]
        known = {window.axis: window for window in self.windows.get(buffer, ())}
        for axis in self._axes(buffer):
            along, stride = self._follows(found[axis], bounds)
            found[axis] = bounds.simplify(found[axis] - self.starts[along] * stride)
            first, last = bounds.reach(found[axis])
            if max(abs(first), abs(last)) > _FARTHEST:
                raise NotInBlocksError
            before = known.get(axis, Window(axis, stride, first, 0, along))
            if (before.stride, before.along) != (stride, along):
                raise NotInBlocksError
            first, end = min(first, before.first), max(last + 1, before.first + before.length)
            known[axis] = replace(before, first=first, length=end - first)
        if known:
            self.windows[buffer] = tuple(known[axis] for axis in sorted(known))
        return found

    def _follows(self, place: Any, bounds: _Bounds) -> tuple[int, int]:
        """Which of the starts a place follows, and how many places each time; of none 0."""
        if loads(place):
            # Data say which place it is.
            raise NotInBlocksError
        followed = []
        for along, start in enumerate(self.starts):
            stride = bounds.simplify(substitute(place, {start: start + 1}) - place)
            if not isinstance(stride, tirx.IntImm) or int(stride) < 0:
                raise NotInBlocksError
            if int(stride):
                followed.append((along, int(stride)))
        if len(followed) > 1:
            raise NotInBlocksError
        return followed[0] if followed else (0, 0)

    def _moves(self, expression: Any) -> bool:
        return not variables(expression).isdisjoint(self.starts)

    def _unpadded(self, value: Any) -> Any:
        """A value that reads zeros outside of operands, and does not ask whether it is outside."""

        def unpadded(choice: Any) -> Any:
            parts = _choice(choice)
            if parts is None:
                return choice
            condition, chosen, other = parts
            load = chosen.value if isinstance(chosen, tirx.Cast) else chosen
            if not is_zero(other) or not isinstance(load, ir.TensorLoad):
                return choice
            if not any(load.source.same_as(each) for each in self.params[:-1]):
                return choice
            left = asked = conjuncts(condition)
            for axis in self._axes(load.source):
                place = load.indices[axis]
                ends = place, load.source.shape[axis] - 1 - place
                more = [each for each in left if not _follows(each, ends)]
                if len(more) < len(left):
                    self.filled.add((load.source, axis))
                left = more
            if len(left) == len(asked):
                return choice
            return Guarded(tuple(left), chosen, other).under(left)

        return tvm_ffi.structural_map(value, ((ir.Call, tirx.Select), unpadded))


def _choice(value: Any) -> tuple[Any, Any, Any] | None:
    """Condition, what is chosen, and what otherwise."""
    if isinstance(value, tirx.Select):
        return value.condition, value.true_value, value.false_value
    return tuple(value.args) if is_choice(value) else None


def _follows(condition: Any, ends: Sequence[Any]) -> bool:
    """Whether a comparison holds wherever the ends, one of them, are not negative."""
    if isinstance(condition, tirx.GT | tirx.GE):
        less, more, strict = condition.b, condition.a, isinstance(condition, tirx.GT)
    elif isinstance(condition, tirx.LT | tirx.LE):
        less, more, strict = condition.a, condition.b, isinstance(condition, tirx.LT)
    else:
        return False
    analyzer = sym.Analyzer()
    left = (analyzer.simplify(more - less - int(strict) - end) for end in ends)
    return any(isinstance(each, tirx.IntImm) and int(each) >= 0 for each in left)


def _shorter(buffer: Any, windows: Sequence[Window]) -> Any:
    shape = list(buffer.shape)
    for window in windows:
        shape[window.axis] = tirx.IntImm("int64", window.length)
    return tirx.decl_buffer(shape, str(buffer.dtype), buffer.name)


def _shortened(
    nest: LoopNest, windows: Mapping[Any, Sequence[Window]], shorter: Mapping[Any, Any]
) -> LoopNest:
    """A nest on buffers that are as long as their windows."""

    def indices(buffer: Any, given: Sequence[Any]) -> list[Any]:
        places = list(given)
        for window in windows.get(buffer, ()):
            if window.first:
                places[window.axis] = sym.Analyzer().simplify(places[window.axis] - window.first)
        return places

    def load(node: Any) -> Any:
        buffer = node.source
        return tirx.BufferLoad(shorter.get(buffer, buffer), indices(buffer, node.indices))

    def store(given: Any) -> Any:
        if given is None:
            return None
        value = tvm_ffi.structural_map(given.value, (ir.TensorLoad, load))
        buffer = given.buffer
        return tirx.BufferStore(shorter.get(buffer, buffer), value, indices(buffer, given.indices))

    return LoopNest(nest.block, store(nest.update), store(nest.init))


def _without_copies(
    nests: Sequence[LoopNest], allocated: Sequence[Any]
) -> tuple[list[LoopNest], list[Any]]:
    """Nests and what they allocate, without what is a copy of another buffer.

    What a convolution pads is one, as its windows have the zeros.
    """
    same: dict[Any, Any] = {}
    kept = []
    for nest in nests:
        store, read = nest.update, nest.update.value
        is_copy = (
            any(store.buffer.same_as(each) for each in allocated)
            and isinstance(read, ir.TensorLoad)
            and tvm_ffi.structural_equal(read.indices, store.indices)
            and tvm_ffi.structural_equal(read.source.shape, store.buffer.shape)
        )
        if is_copy:
            same[store.buffer] = same.get(read.source, read.source)
        else:
            kept.append(nest)
    if not same:
        return kept, list(allocated)
    kept = [
        LoopNest(
            nest.block, substitute(nest.update, same), nest.init and substitute(nest.init, same)
        )
        for nest in kept
    ]
    return kept, [each for each in allocated if each not in same]
