"""Recognises the chains of operators that front ends write attentions as."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import sym, te, tirx
from tvm.ir import GenericConst

from tvm_rammer.kernel.attention_blocks import attention
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.loops import unravel
from tvm_rammer.kernel.nodes import substitute
from tvm_rammer.relax_util import open_shape, operator_name, permutation_of
from tvm_rammer.transform.normalize import broadcast

#: Operators that scores are made of.
_POINTWISE: dict[str, Callable[..., Any]] = {
    "relax.add": lambda a, b: a + b,
    "relax.subtract": lambda a, b: a - b,
    "relax.multiply": lambda a, b: a * b,
    "relax.divide": lambda a, b: a / b,
    "relax.maximum": tirx.max,
    "relax.minimum": tirx.min,
    "relax.tanh": tirx.tanh,
    "relax.where": tirx.Select,
}
#: What gives the same elements another shape.
_VIEWS = frozenset({"relax.reshape", "relax.expand_dims", "relax.squeeze"})
#: And what gives them other places, or another type.
_MOVES = _VIEWS | {"relax.permute_dims", "relax.astype"}
#: Scores are made of so many operators at most, one behind the other.
_DEPTH = 8
#: What keys and values may be kept as.
_FLOATS = frozenset({"float32", "float16", "bfloat16"})

_Tensors = Sequence[te.Tensor]
#: An element of a matrix of a batch, given the operands' tensors, the batch, row and column.
_Element = Callable[[_Tensors, Any, Any, Any], Any]
#: A score, given the tensors, the product, its batch, row and place.
_Score = Callable[[_Tensors, Any, Any, Any, Any], Any]
#: A size: a number, or what the run decides.
_Size = Any


@dataclass(frozen=True)
class Attention:
    """``softmax(score(query @ key.T)) @ value``.

    Attributes
    ----------
    operands : tuple of Expr
        What it reads.
    sizes : tuple of int or PrimExpr
        Batches, rows, places, terms and columns, as :func:`.attention` has them.
    masked : bool
        Whether scores are made of something that differs from place to place, besides products.
    """

    operands: tuple[Any, ...]
    sizes: tuple[_Size, _Size, _Size, _Size, _Size]
    query: _Element
    key: _Element
    value: _Element
    score: _Score
    hidden_rows_are_zero: bool
    masked: bool

    @property
    def open_sizes(self) -> list[Any]:
        """Names of sizes that each run decides."""
        shapes = [open_shape(operand) or () for operand in self.operands]
        sizes = [size for shape in (*shapes, self.sizes) for size in shape]
        return sorted(variables([s for s in sizes if not isinstance(s, int)]), key=_name)

    def compute(self, *given: Any) -> te.Tensor:
        """The attention of tensors in the place of the operands, then what open sizes are."""
        tensors, names = given[: len(self.operands)], self.open_sizes
        known = dict(zip(names, *given[len(tensors) :], strict=True)) if names else {}

        def element(of: Callable[..., Any]) -> Any:
            return lambda *place: substitute(of(tensors, *place), known)

        def size(own: _Size) -> Any:
            return own if isinstance(own, int) else substitute(own, known)

        batches, rows, places, terms, columns = map(size, self.sizes)
        return attention(
            element(self.query),
            element(self.key),
            element(self.value),
            element(self.score),
            sizes=(batches, rows, places, terms, columns),
            hidden_rows_are_zero=self.hidden_rows_are_zero,
        )


def find_attention(call: Any, bound: Callable[[Any], Any], once: Set[Any]) -> Attention | None:
    """The attention whose last operator is the product ``call``.

    Parameters
    ----------
    call : Expr
    bound : callable
        What a variable is bound to; any other expression itself.
    once : set of Var
        Those that are read once. Weights that somebody else reads are computed anyway.
    """
    return _Reader(bound, once, []).attention(call)


@dataclass(frozen=True)
class _Products:
    """Queries times keys, of some shape."""

    query: _Element
    key: _Element
    shape: tuple[_Size, ...]
    terms: _Size


@dataclass
class _Reader:
    """Reads one chain from its end; ``operands`` are those that it has come to."""

    bound: Callable[[Any], Any]
    once: Set[Any]
    operands: list[Any]
    products: _Products | None = None
    masked: bool = False
    rows: _Size = 0

    def attention(self, call: Any) -> Attention | None:
        if operator_name(call) != "relax.matmul" or str(call.ty.dtype) != "float32":
            return None
        weights, values = call.args
        shapes = _shapes(weights, values, call)
        if not shapes or len(shapes[1]) < 3 or not _same(shapes[0][:-2], shapes[1][:-2]):
            return None
        *batch, rows, places = shapes[0]
        self.rows = rows
        softmax, zero = self._softmax(weights)
        if softmax is None or not self._is_last(softmax):
            return None
        score = self._score(softmax.args[0], places, 0)
        if score is None or self.products is None:
            return None
        value = self._matrices(values)
        if value is None or not _same(self.products.shape[-2:], (rows, places)):
            return None
        if not _same([prod(self.products.shape)], [prod(shapes[0])]):
            return None
        if zero is not None and not self._are_hidden(zero, softmax):
            return None
        sizes = (prod(batch), rows, places, self.products.terms, shapes[1][-1])
        own = self.products
        operands = tuple(self.operands)
        zeros = zero is not None
        return Attention(operands, sizes, own.query, own.key, value, score, zeros, self.masked)

    def _is_last(self, softmax: Any) -> bool:
        return int(softmax.attrs.axis) in (-1, softmax.ty.ndim - 1)

    def _operand(self, value: Any) -> int:
        for number, known in enumerate(self.operands):
            if known.same_as(value):
                return number
        self.operands.append(value)
        return len(self.operands) - 1

    def _softmax(self, weights: Any) -> tuple[Any, Any]:
        """The softmax behind views, and the condition under which its rows are zeros instead."""
        condition = None
        while weights in self.once:
            value = self.bound(weights)
            name = operator_name(value)
            if name == "relax.nn.softmax":
                return (value, condition) if str(value.ty.dtype) == "float32" else (None, None)
            if name in _VIEWS and _same_last(value, value.args[0]):
                weights = value.args[0]
            elif name == "relax.where" and condition is None and _is_all(value.args[1], 0.0):
                condition, weights = value.args[0], value.args[2]
                if self._asks_for_nan(condition, weights):
                    # It is read twice: by the question, and by who is asked for it.
                    softmax = self.bound(weights)
                    is_one = operator_name(softmax) == "relax.nn.softmax"
                    is_float = str(softmax.ty.dtype) == "float32"
                    return (softmax, condition) if is_one and is_float else (None, None)
            else:
                break
        return None, None

    def _asks_for_nan(self, condition: Any, weights: Any) -> bool:
        """Whether a condition asks if weights are NaN, as where all scores are minus infinity."""
        test = self.bound(condition)
        return operator_name(test) == "relax.isnan" and test.args[0].same_as(weights)

    def _are_hidden(self, condition: Any, softmax: Any) -> bool:
        """Whether a condition is true for those rows whose scores are all minus infinity."""
        # Of those that ask for NaN only questions about the softmax itself come this far.
        is_nan = operator_name(self.bound(condition)) == "relax.isnan"
        return is_nan or self._asks_for_any(condition, softmax.args[0])

    def _asks_for_any(self, condition: Any, scores: Any) -> bool:
        """Whether a condition asks if no score of a row is more than minus infinity."""
        test = self.bound(condition)
        if operator_name(test) != "relax.equal" or not _is_all(test.args[1], 0):
            return False
        some = self.bound(test.args[0])
        if operator_name(some) != "relax.max" or not some.attrs.keepdims:
            return False
        counts = self.bound(some.args[0])
        if operator_name(counts) != "relax.astype":
            return False
        finite = self.bound(counts.args[0])
        if operator_name(finite) != "relax.not_equal":
            return False
        axes = [int(axis) % scores.ty.ndim for axis in some.attrs.axis or ()]
        infinite = _is_all(finite.args[1], float("-inf"))
        return infinite and finite.args[0].same_as(scores) and axes == [scores.ty.ndim - 1]

    def _score(self, value: Any, places: _Size, depth: int) -> _Score | None:
        """What becomes of a product; ``None`` if nothing in ``value`` is one."""
        call, shape = self.bound(value), open_shape(value)
        name = operator_name(call)
        if not shape or not _same(shape[-1:], [places]) or depth > _DEPTH:
            return None
        if str(value.ty.dtype) != "float32":
            return None
        if name == "relax.matmul":
            return self._product(call)
        if name in _VIEWS and _same_last(call, call.args[0]):
            return self._score(call.args[0], places, depth + 1)
        if name not in _POINTWISE:
            return None
        arguments = list(call.args)
        for number, argument in enumerate(arguments):
            if (known := open_shape(argument)) is None or not _same([prod(known)], [prod(shape)]):
                continue
            inner = self._score(argument, places, depth + 1)
            if inner is not None:
                others = [
                    None if k == number else self._broadcast(other, shape)
                    for k, other in enumerate(arguments)
                ]
                if any(k != number and other is None for k, other in enumerate(others)):
                    return None
                return _applied(_POINTWISE[name], inner, others)
        return None

    def _broadcast(self, operand: Any, shape: tuple[_Size, ...]) -> _Score | None:
        """An operand of scores, at the place of one."""
        number = _number(operand)
        if number is not None:
            return lambda tensors, product, batch, row, place: number
        own = open_shape(operand)
        if own is None:
            return None
        position = self._operand(operand)
        self.masked |= _same(own[-1:], shape[-1:])
        rows, are_last = self.rows, _same(shape[-2:-1], [self.rows])

        def element(tensors: _Tensors, product: Any, batch: Any, row: Any, place: Any) -> Any:
            # Where rows are an axis of their own nothing needs to be divided.
            outer = unravel(batch, shape[:-2]) if are_last else ()
            inner = (row,) if are_last else unravel(batch * rows + row, shape[:-1])
            return tensors[position](*broadcast([*outer, *inner, place], own))

        return element

    def _product(self, call: Any) -> _Score | None:
        if self.products is not None:
            return None
        query, transposed = call.args
        shapes = _shapes(query, transposed, call)
        if not shapes or len(shapes[1]) < 3 or not _same(shapes[0][:-2], shapes[1][:-2]):
            return None
        known = len(self.operands)
        factor, transposed = self._scaled(transposed)
        keys = self._matrices(transposed, transposed=True)
        rows = _times(self._matrices(query), factor)
        if keys is None or rows is None:
            del self.operands[known:]
            return None
        self.products = _Products(rows, keys, shapes[2], shapes[0][-1])
        return lambda tensors, product, batch, row, place: product

    def _scaled(self, value: Any) -> tuple[Any, Any]:
        """A number that elements are multiplied by, or ``None``, and what is multiplied."""
        call = self.bound(value)
        if operator_name(call) != "relax.multiply":
            return None, value
        for factor, other in (call.args, reversed(call.args)):
            number, shape = _number(factor), open_shape(other)
            same = shape is not None and _same(shape, open_shape(value) or ())
            if number is not None and same and str(other.ty.dtype) == "float32":
                return number, other
        return None, value

    def _matrices(self, value: Any, transposed: bool = False) -> _Element | None:
        """Elements of a batch of matrices, which are read where they lie, whatever views them.

        Parameters
        ----------
        value : Expr
            Matrices as they are, or transposed: their rows are the last axis then.
        transposed : bool
        """
        shape = open_shape(value)
        if shape is None or str(value.ty.dtype) not in _FLOATS:
            return None
        if isinstance(value, GenericConst):
            return None
        batch = shape[:-2]

        def index(b: Any, row: Any, column: Any) -> tuple[Any, ...]:
            pair = (column, row) if transposed else (row, column)
            return (*unravel(b, batch), *pair)

        return self._read(value, index)

    def _is_open_repeat(self, call: Any, name: str) -> bool:
        """Whether heads are repeated; where all sizes are known, others see to that."""
        if name != "relax.broadcast_to":
            return False
        return not all(isinstance(size, int) for size in open_shape(call) or ())

    def _read(self, value: Any, index: Callable[..., tuple[Any, ...]]) -> _Element | None:
        """Elements of a tensor at indices, seen through what only moves or widens them."""
        call = self.bound(value)
        name = operator_name(call)
        source = call.args[0] if name in _MOVES or self._is_open_repeat(call, name) else None
        before = None if source is None else open_shape(source)
        if source is not None and before is not None and not isinstance(source, GenericConst):
            if name == "relax.permute_dims":
                axes = permutation_of(call)
                return self._read(source, _permuted(index, axes))
            if name == "relax.broadcast_to":
                return self._read(source, _repeated(index, before))
            if name == "relax.astype" and str(source.ty.dtype) in _FLOATS:
                return self._read(source, index)
            shape = open_shape(value) or ()
            if name in _VIEWS and _same(before[-2:], shape[-2:]):
                return self._read(source, _of_another_batch(index, shape[:-2], before[:-2]))
        position = self._operand(value)

        def element(tensors: _Tensors, b: Any, row: Any, column: Any) -> Any:
            loaded = tensors[position](*index(b, row, column))
            return loaded.astype("float32") if str(loaded.ty) != "float32" else loaded

        return element


def _applied(
    operator: Callable[..., Any], inner: _Score, others: Sequence[_Score | None]
) -> _Score:
    """An operator on a score and its operands."""

    def score(*place: Any) -> Any:
        return operator(*(inner(*place) if other is None else other(*place) for other in others))

    return score


def _times(element: _Element | None, factor: Any) -> _Element | None:
    """Elements times a number."""
    if element is None or factor is None:
        return element
    return lambda *place: element(*place) * factor


def _repeated(
    index: Callable[..., tuple[Any, ...]], before: tuple[_Size, ...]
) -> Callable[..., tuple[Any, ...]]:
    """Indices of a tensor whose axes of size 1 are repeated."""
    return lambda *place: tuple(broadcast(list(index(*place)), before))


def _permuted(
    index: Callable[..., tuple[Any, ...]], axes: tuple[int, ...]
) -> Callable[..., tuple[Any, ...]]:
    def before(*place: Any) -> tuple[Any, ...]:
        found = index(*place)
        return tuple(found[axes.index(axis)] for axis in range(len(axes)))

    return before


def _of_another_batch(
    index: Callable[..., tuple[Any, ...]], batch: tuple[_Size, ...], before: tuple[_Size, ...]
) -> Callable[..., tuple[Any, ...]]:
    """Indices where the axes before the last two are others, of the same number of matrices."""

    def other(*place: Any) -> tuple[Any, ...]:
        *outer, row, column = index(*place)
        number: Any = tirx.const(0, "int64")
        for each, extent in zip(outer, batch, strict=True):
            number = number * extent + each
        return (*unravel(number, before), row, column)

    return other


def _same_last(one: Any, other: Any) -> bool:
    """Whether two tensors have as many elements along their last axes."""
    shapes = _shapes(one, other)
    return bool(shapes) and all(shapes) and _same(shapes[0][-1:], shapes[1][-1:])


def _shapes(*values: Any) -> list[tuple[_Size, ...]]:
    """The shapes of all, or none if one is not known or has no elements."""
    shapes = map(open_shape, values)
    found = [shape for shape in shapes if shape is not None and not _has_zero(shape)]
    return found if len(found) == len(values) else []


def _name(size: Any) -> str:
    return str(size.name)


def _has_zero(shape: Sequence[_Size]) -> bool:
    return any(isinstance(size, int) and size == 0 for size in shape)


def _same(sizes: Sequence[_Size], others: Sequence[_Size]) -> bool:
    """Whether sizes are those of another tensor, in every run."""
    if len(sizes) != len(others):
        return False
    for size, other in zip(sizes, others, strict=True):
        if isinstance(size, int) and isinstance(other, int):
            if size != other:
                return False
        elif not sym.Analyzer().can_prove_equal(size, other):
            return False
    return True


def _number(value: Any) -> Any:
    """A constant of one element."""
    if not isinstance(value, GenericConst):
        return None
    array = value.value.numpy()
    dtype = str(value.ty.dtype)
    return tirx.const(array.reshape(-1)[0].item(), dtype) if array.size == 1 else None


def _is_all(value: Any, number: float) -> bool:
    """Whether a constant is one number all over."""
    return isinstance(value, GenericConst) and bool((value.value.numpy() == number).all())
