"""Operators of as many places as the run finds, as blocks of a number of places that is known.

Places are the rows of a product, the images of a batch, the samples of a sound: one axis of the
result has a size that only the run tells. An operator that computes every place from neighbours of
the same place computes some at once by a kernel for so many, which any rule may schedule. A block
reads a window of each operand: outside of it the last place again, or the zeros that a convolution
finds there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from tvm_rammer.kernel.blocks import is_choice, is_reduced, is_zero, loads, variables
from tvm_rammer.kernel.guards import Guarded
from tvm_rammer.kernel.loop_nests import (
    LoopNest,
    NotInBlocksError,
    func_of,
    nests_of,
    tensors_of,
)
from tvm_rammer.kernel.nodes import conjuncts, substitute

#: Terms of sums that a block has at least, if its results are no more elements than that: else
#: handing it out takes longer.
_TERMS, _ELEMENTS = 1 << 21, 1 << 16
#: Places that a block has at least: as many times its weights are used.
_LEAST_PLACES = 32
#: Of what whole blocks leave, one of so many parts is computed at a time.
_SMALLER = 4
#: Where nothing is summed, elements that come at once are so many at least: fewer are soon made.
_LEAST_ELEMENTS = 8
#: No window reaches so far.
_FARTHEST = 1 << 40


@dataclass(frozen=True)
class Window:
    """What a block touches of a tensor: ``length`` places from ``stride * block + first`` on.

    Attributes
    ----------
    axis : int
        The one of which the run tells the size.
    stride, first, length : int
    filled : bool
        Whether what lies outside of the tensor is read as zeros.
    """

    axis: int
    stride: int
    first: int
    length: int
    filled: bool = False


@dataclass(frozen=True)
class RunTimeBlocks:
    """An operator of an unknown number of places, by blocks of one size.

    Attributes
    ----------
    func : tirx.PrimFunc
        It computes a block.
    windows : tuple of Window or None
        Of its parameters; those that every block reads whole have none.
    """

    func: tirx.PrimFunc
    windows: tuple[Window | None, ...]

    @property
    def places(self) -> int:
        """Results of a block along the axis."""
        result = self.windows[-1]
        assert result is not None
        return result.length


def run_time_blocks(func: tirx.PrimFunc) -> tuple[RunTimeBlocks, ...]:
    """The blocks of an operator, the largest first; none if it cannot be cut.

    That is where a place is not computed from neighbours alone, or takes too little to be worth it.
    Parameters that are numbers are sizes, which blocks do not ask for.
    """
    symbols = variables([size for param in tensors_of(func) for size in param.shape])
    if len(symbols) != 1:
        return ()
    try:
        nests = nests_of(func)
        (symbol,) = symbols
        places = _places(func, nests, symbol)
        return tuple(_Cut(func, nests, symbol, each).made() for each in places)
    except NotInBlocksError:
        return ()


def _long_axis(buffer: Any) -> int | None:
    """The axis of which the run tells the size, if there is one."""
    axes = [k for k, size in enumerate(buffer.shape) if not isinstance(size, tirx.IntImm)]
    if len(axes) > 1:
        raise NotInBlocksError
    return axes[0] if axes else None


def _places(func: tirx.PrimFunc, nests: Sequence[LoopNest], symbol: Any) -> list[int]:
    """How many places blocks have: as many as come at once, times a power of two."""
    result = func.params[-1]
    axis = _long_axis(result)
    if axis is None:
        raise NotInBlocksError
    size = result.shape[axis]
    step = sym.Analyzer().simplify(substitute(size, {symbol: symbol + 1}) - size)
    unit = max(1, int(step)) if isinstance(step, tirx.IntImm) else 1
    elements = prod(int(each) for k, each in enumerate(result.shape) if k != axis)
    if unit * elements < _LEAST_ELEMENTS and not any(nest.sums for nest in nests):
        raise NotInBlocksError
    known = (
        [int(var.dom.extent) for var in nest.block.iter_vars if _is_known(var)]
        for nest in nests
        if nest.sums
    )
    terms = max(1, sum(map(prod, known)))
    wanted = min(_ELEMENTS // max(1, elements), max(_LEAST_PLACES, _TERMS // terms))
    counts = [wanted, wanted // _SMALLER]
    if any(nest.sums for nest in nests):
        # A block of a product takes as long for the places that there are none of.
        counts += [min(_LEAST_PLACES, counts[-1]), 1]
    lengths = (unit << max(0, (count // unit).bit_length() - 1) for count in counts)
    return list(dict.fromkeys(lengths))


def _is_known(var: Any) -> bool:
    return isinstance(var.dom.extent, tirx.IntImm)


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
    """Cuts an operator into blocks of some places, from its result to its operands."""

    def __init__(
        self, func: tirx.PrimFunc, nests: Sequence[LoopNest], symbol: Any, places: int
    ) -> None:
        self.func, self.nests, self.params = func, nests, tensors_of(func)
        self.block, self.symbol = tirx.Var("block", "int64"), symbol
        self.filled: set[Any] = set()
        axis = _long_axis(self.params[-1])
        assert axis is not None
        self.windows = {self.params[-1]: Window(axis, places, 0, places)}

    def made(self) -> RunTimeBlocks:
        """The operator of one block, and what that touches."""
        moved = [self._moved(nest) for nest in reversed(self.nests)]
        windows = {
            buffer: replace(window, filled=buffer in self.filled)
            for buffer, window in self.windows.items()
        }
        shorter = {each: _shorter(each, window) for each, window in windows.items()}
        nests = [_shortened(nest, windows, shorter) for nest in reversed(moved)]
        allocated = [shorter.get(each, each) for each in self.func.body.block.alloc_buffers]
        nests, allocated = _without_copies(nests, allocated)
        params = [shorter.get(each, each) for each in self.params]
        func = func_of(params, nests, allocated, self.func.attrs)
        if variables(func.body) & {self.block, self.symbol}:
            # What block it is decides something, or how many there are.
            raise NotInBlocksError
        return RunTimeBlocks(s_tir.renew_defs(func), tuple(map(windows.get, self.params)))

    def _moved(self, nest: LoopNest) -> LoopNest:
        """A nest as one block has it: its places count from ``stride * block``.

        What it reads of windows is known from here on.
        """
        written, bounds = nest.update.buffer, _Bounds()
        axis, own, values = _long_axis(written), None, {}
        window = self.windows.get(written)
        if axis is not None:
            own = nest.update.indices[axis]
            if window is None or not isinstance(own, tirx.Var):
                raise NotInBlocksError
            values[own] = self.block * window.stride + (own + window.first)
        variables = []
        for var in nest.block.iter_vars:
            extent = var.dom.extent
            if window is not None and axis is not None and var.var.same_as(own):
                whole = sym.Analyzer().can_prove_equal(extent, written.shape[axis])
                if not whole or is_reduced(var):
                    raise NotInBlocksError
                extent = tirx.IntImm("int64", window.length)
            elif not _is_known(var):
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
        """Indices without the beginning of the block, which make the buffer's window larger."""
        found = [bounds.simplify(each) if self._moves(each) else each for each in indices]
        axis = _long_axis(buffer)
        if axis is None:
            return found
        place = found[axis]
        if loads(place):
            # Data say which place it is.
            raise NotInBlocksError
        stride = bounds.simplify(substitute(place, {self.block: self.block + 1}) - place)
        if not isinstance(stride, tirx.IntImm) or int(stride) < 0:
            raise NotInBlocksError
        found[axis] = bounds.simplify(place - self.block * stride)
        first, last = bounds.reach(found[axis])
        if max(abs(first), abs(last)) > _FARTHEST:
            raise NotInBlocksError
        known = self.windows.get(buffer, Window(axis, int(stride), first, 0))
        if known.stride != int(stride):
            raise NotInBlocksError
        first, end = min(first, known.first), max(last + 1, known.first + known.length)
        self.windows[buffer] = Window(axis, known.stride, first, end - first)
        return found

    def _moves(self, expression: Any) -> bool:
        return self.block in variables(expression)

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
            axis = _long_axis(load.source)
            if axis is None or not any(load.source.same_as(each) for each in self.params[:-1]):
                return choice
            place = load.indices[axis]
            ends = place, load.source.shape[axis] - 1 - place
            asked = conjuncts(condition)
            left = [each for each in asked if not _follows(each, ends)]
            if len(left) == len(asked):
                return choice
            self.filled.add(load.source)
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


def _shorter(buffer: Any, window: Window) -> Any:
    shape = list(buffer.shape)
    shape[window.axis] = tirx.IntImm("int64", window.length)
    return tirx.decl_buffer(shape, str(buffer.dtype), buffer.name)


def _shortened(
    nest: LoopNest, windows: Mapping[Any, Window], shorter: Mapping[Any, Any]
) -> LoopNest:
    """A nest on buffers that are as long as their windows."""

    def indices(buffer: Any, given: Sequence[Any]) -> list[Any]:
        places, window = list(given), windows.get(buffer)
        if window is not None and window.first:
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
