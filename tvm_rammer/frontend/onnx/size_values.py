"""Small tensors of integers that are computed from sizes: what their elements are, as formulas.

Exporters write how a shape follows from other shapes as operators: a vector of sizes is cut,
joined, multiplied. Where all sizes are known, ONNX's own tools compute it. Where some are open, the
elements are formulas of TVM's names for them, and no operator is left of it. What is computed in
floats on the way to a size is followed as ``ratios``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from math import prod
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import TensorProto
from tvm import relax, sym, tirx

from tvm_rammer.frontend import ratios
from tvm_rammer.frontend.onnx.names import attributes_of
from tvm_rammer.frontend.ratios import SizeRatio
from tvm_rammer.frontend.sizes import FAR, as_number, as_size
from tvm_rammer.kernel.blocks import variables

#: Elements of the largest tensor that is looked at.
_MOST = 64
_INTEGERS = {TensorProto.INT64: "int64", TensorProto.INT32: "int32", TensorProto.BOOL: "bool"}
_FLOATS = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}

#: Operators that compare.
_TRUTHS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})

#: Elements, integers or formulas of int64, or ratios of floats; the type says what they are in the
#: model.
Elements = np.ndarray


class UnknownError(Exception):
    """A formula does not tell what is asked for."""


class SizeValues:
    """What is known of the values of one graph."""

    def __init__(self) -> None:
        self._analyzer = sym.Analyzer()
        self._bound: set[Any] = set()
        self._known: dict[Any, Elements] = {}

    def is_open(self, name: tirx.Var, least: int = 1) -> None:
        """Note that a name is a size; of an input, of which no run has an empty one."""
        domain = tvm.ir.Range(tirx.IntImm("int64", least), tirx.IntImm("int64", FAR))
        self._analyzer.bind(name, domain)
        self._bound.add(name)

    def simplified(self, size: Any) -> Any:
        """A formula in its simplest form."""
        if isinstance(size, SizeRatio):
            return SizeRatio(self.simplified(size.numerator), size.denominator)
        if isinstance(size, int):
            return size
        for name in variables(size) - self._bound:
            self.is_open(name, 0)
        return as_number(self._analyzer.simplify(size))

    def are_equal(self, size: Any, other: Any) -> bool:
        """Whether two sizes are the same in every run."""
        return is_number(self.simplified(as_size(size) - as_size(other)), 0)

    def elements(self, value: Any) -> Elements | None:
        """The elements of a value of the importer, where all are known."""
        if tvm.ir.is_prim_expr(value):
            return _filled([as_number(value)], ())
        if isinstance(value, relax.ShapeExpr):
            return _filled([as_number(size) for size in value.values], (len(value.values),))
        if isinstance(value, relax.Var):
            return self._known.get(value)
        return _constant(value) if isinstance(value, tvm.ir.GenericConst) else None

    def result(self, node: onnx.NodeProto, values: Sequence[Any]) -> tuple[Elements, str] | None:
        """The elements of a node's result and their type, given the values of the operands."""
        compute = _OPERATORS.get(node.op_type)
        if compute is None or node.domain not in ("", "ai.onnx") or len(node.output) != 1:
            return None
        operands = [None if value is None else self.elements(value) for value in values]
        given = [found for found, value in zip(operands, values, strict=True) if value is not None]
        if not given or any(found is None for found in given):
            return None
        attributes = attributes_of(node)
        try:
            found = compute(self, attributes, *operands)
        except (UnknownError, ValueError, IndexError, TypeError):
            # Who converts the node says what is wrong with it.
            return None
        if found.size > _MOST:
            return None
        simplest = [self.simplified(each) for each in found.ravel().tolist()]
        ratios_are_known = [isinstance(each, SizeRatio) and each.is_known for each in simplest]
        if simplest and all(ratios_are_known):
            # Floats that follow from constants are rounded as they are.
            return None
        return _filled(simplest, found.shape), _type_of(node, attributes, values)

    def note(self, tensor: relax.Var, elements: Elements) -> None:
        """Remember the elements of a tensor."""
        self._known[tensor] = elements

    def decided(self, condition: Any) -> bool:
        """Whether something is so in every run; an error where runs differ."""
        if isinstance(condition, bool | int):
            return bool(condition)
        found = self.simplified(condition)
        if not isinstance(found, int):
            raise UnknownError
        return bool(found)


def as_value(elements: Elements, dtype: str) -> Any:
    """The importer's value for elements: a constant, a shape, a size; ``None`` if it has none."""
    if all(isinstance(each, int) for each in elements.ravel().tolist()):
        return relax.const(elements.astype(dtype), dtype)
    if dtype != "int64" or elements.ndim > 1:
        return None
    if elements.ndim == 0:
        return elements.item()
    return relax.ShapeExpr(elements.tolist())


def _constant(value: tvm.ir.GenericConst) -> Elements | None:
    """The elements of a small constant of integers, or of floats that are short fractions."""
    dtype, shape = str(value.ty.dtype), [int(size) for size in value.ty.shape.values]
    if prod(shape) > _MOST:
        return None
    items = value.value.numpy().ravel()
    if dtype in _INTEGERS.values():
        return _filled(items.astype(np.int64).tolist(), shape)
    if dtype not in _FLOATS.values():
        return None
    found = list(map(ratios.ratio_of, items.tolist()))
    return None if None in found else _filled(found, shape)


def _type_of(node: onnx.NodeProto, attributes: Mapping[str, Any], values: Sequence[Any]) -> str:
    """The type of a node's result."""
    if node.op_type == "Cast":
        return (_INTEGERS | _FLOATS)[attributes["to"]]
    if node.op_type == "ConstantOfShape":
        return _INTEGERS[attributes["value"].data_type]
    if node.op_type in _TRUTHS:
        return "bool"
    value = values[1] if node.op_type == "Where" else values[0]
    is_tensor = isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType)
    return str(value.ty.dtype) if is_tensor else "int64"


def _filled(items: Sequence[Any], shape: Sequence[int]) -> Elements:
    """An array of objects; NumPy would look into formulas."""
    array = np.empty(len(items), object)
    for place, item in enumerate(items):
        array[place] = item
    return array.reshape(tuple(shape))


def _apply(function: Callable[..., Any], *arrays: Elements) -> Elements:
    """A function of the elements at each place."""
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    columns = [np.broadcast_to(array, shape).ravel().tolist() for array in arrays]
    return _filled([function(*each) for each in zip(*columns, strict=True)], shape)


def _integers(array: Elements | None) -> list[int]:
    """Elements that must be known before the run, such as axes."""
    items = [] if array is None else array.ravel().tolist()
    if not all(isinstance(item, int) for item in items):
        raise UnknownError
    return items


def _binary(of_sizes: Callable[[Any, Any], Any], of_ratios: Callable[..., SizeRatio]) -> Any:
    def function(one: Any, other: Any) -> Any:
        return of_ratios(one, other) if isinstance(one, SizeRatio) else of_sizes(one, other)

    return lambda values, attributes, *operands: reduce(partial(_apply, function), operands)


def _rounded(function: Callable[[SizeRatio], SizeRatio]) -> Any:
    def each(ratio: Any) -> SizeRatio:
        if not isinstance(ratio, SizeRatio):
            raise UnknownError
        return function(ratio)

    return lambda values, attributes, operand: _apply(each, operand)


def _compared(kind: Callable[[Any, Any], Any]) -> Any:
    def compare(values: SizeValues, attributes: Any, left: Elements, right: Elements) -> Elements:
        def each(one: Any, other: Any) -> int:
            if isinstance(one, SizeRatio):
                one, other = ratios.subtract(one, other).numerator, 0
            return int(values.decided(kind(as_size(one), as_size(other))))

        return _apply(each, left, right)

    return compare


def is_number(size: Any, number: int) -> bool:
    """Whether a size is a number, which one."""
    return isinstance(size, int) and size == number


def _extreme(
    of_numbers: Callable[..., Any],
    of_formulas: Callable[..., Any],
    of_ratios: Callable[..., SizeRatio],
) -> Any:
    def either(one: Any, other: Any) -> Any:
        if isinstance(one, int) and isinstance(other, int):
            return of_numbers(one, other)
        return of_formulas(as_size(one), as_size(other))

    return _binary(either, of_ratios)


def _clipped(
    values: SizeValues, attributes: Mapping[str, Any], data: Elements, *limits: Elements | None
) -> Elements:
    for limit, bounded in zip(limits, ("Max", "Min"), strict=False):
        if limit is not None:
            data = _OPERATORS[bounded](values, {}, data, limit)
    return data


def _divided(divide: Callable[[Any, Any], Any]) -> Any:
    """Of what is not negative: quotients of integers are cut."""

    def of_all(values: SizeValues, attributes: Any, left: Elements, right: Elements) -> Elements:
        def each(one: Any, other: Any) -> Any:
            if isinstance(one, SizeRatio):
                quotient = None if divide is tirx.floormod else ratios.divide(one, other)
                if quotient is None:
                    raise UnknownError
                return quotient
            if not values.decided(as_size(one) >= 0) or not values.decided(as_size(other) > 0):
                raise UnknownError
            return divide(as_size(one), as_size(other))

        return _apply(each, left, right)

    return of_all


def _cast(values: SizeValues, attributes: Mapping[str, Any], operand: Elements) -> Elements:
    target = attributes["to"]

    def whole(size: Any) -> Any:
        if not isinstance(size, SizeRatio):
            return size
        if size.denominator > 1 and not values.decided(as_size(size.numerator) >= 0):
            # Floats are cut towards 0.
            raise UnknownError
        return ratios.floor(size).numerator

    if target in _FLOATS:
        return _apply(
            lambda size: size if isinstance(size, SizeRatio) else SizeRatio(size), operand
        )
    if target not in _INTEGERS:
        raise UnknownError
    if _INTEGERS[target] == "bool":
        return _apply(lambda size: int(values.decided(tirx.NE(as_size(size), 0))), operand)
    return _apply(whole, operand)


def _negated(values: SizeValues, attributes: Any, operand: Elements) -> Elements:
    def negated(size: Any) -> Any:
        return ratios.subtract(SizeRatio(0), size) if isinstance(size, SizeRatio) else 0 - size

    return _apply(negated, operand)


def _transposed(values: SizeValues, attributes: Mapping[str, Any], operand: Elements) -> Elements:
    return np.transpose(operand, attributes.get("perm"))


def _where(
    values: SizeValues, attributes: Any, condition: Elements, chosen: Elements, other: Elements
) -> Elements:
    return _apply(
        lambda which, one, two: one if values.decided(which) else two, condition, chosen, other
    )


def _gathered(
    values: SizeValues, attributes: Mapping[str, Any], data: Elements, indices: Elements
) -> Elements:
    places = np.array(_integers(indices), np.int64).reshape(indices.shape)
    return np.asarray(np.take(data, places, attributes.get("axis", 0)), object)


def _joined(values: SizeValues, attributes: Mapping[str, Any], *parts: Elements) -> Elements:
    return np.concatenate(parts, attributes["axis"])


def _axes(attributes: Mapping[str, Any], axes: Elements | None) -> tuple[int, ...]:
    return tuple(attributes.get("axes") or _integers(axes))


def _unsqueezed(
    values: SizeValues, attributes: Mapping[str, Any], data: Elements, axes: Elements | None = None
) -> Elements:
    return np.expand_dims(data, _axes(attributes, axes))


def _squeezed(
    values: SizeValues, attributes: Mapping[str, Any], data: Elements, axes: Elements | None = None
) -> Elements:
    return np.squeeze(data, _axes(attributes, axes) or None)


def _sliced(
    values: SizeValues,
    attributes: Mapping[str, Any],
    data: Elements,
    *given: Elements | None,
) -> Elements:
    starts, ends, axes, steps = (_integers(each) for each in (*given, None, None, None, None)[:4])
    starts = starts or list(attributes.get("starts", ()))
    ends = ends or list(attributes.get("ends", ()))
    axes = axes or list(attributes.get("axes", range(len(starts))))
    parts = [slice(None)] * data.ndim
    for axis, *part in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        first, last, step = part
        # Behind the first place backwards there is none, which -1 does not say.
        parts[axis] = slice(first, None if last < -data.shape[axis] else last, step)
    return data[tuple(parts)]


def _reshaped(
    values: SizeValues, attributes: Mapping[str, Any], data: Elements, shape: Elements
) -> Elements:
    sizes = _integers(shape)
    if not attributes.get("allowzero", 0):
        sizes = [size or data.shape[axis] for axis, size in enumerate(sizes)]
    return data.reshape(sizes)


def _expanded(
    values: SizeValues, attributes: Mapping[str, Any], data: Elements, shape: Elements
) -> Elements:
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(_integers(shape))))


def _filled_with(values: SizeValues, attributes: Mapping[str, Any], shape: Elements) -> Elements:
    given = attributes.get("value")
    value = np.zeros(1, np.float32) if given is None else onnx.numpy_helper.to_array(given)
    if value.dtype.kind not in "bi":
        raise UnknownError
    sizes = _integers(shape)
    if prod(sizes) > _MOST:
        raise UnknownError
    return _filled([int(value.item())] * prod(sizes), sizes)


def _reduced(join: Callable[[Any, Any], Any]) -> Any:
    def reduce_all(
        values: SizeValues,
        attributes: Mapping[str, Any],
        data: Elements,
        axes: Elements | None = None,
    ) -> Elements:
        over = _axes(attributes, axes) or tuple(range(data.ndim))
        if any(isinstance(size, SizeRatio) for size in data.ravel().tolist()):
            raise UnknownError
        if data.ndim > 1 or not data.size or not over:
            raise UnknownError
        found = reduce(join, data.tolist()) if data.ndim else data.item()
        return _filled([found], (1,) * data.ndim if attributes.get("keepdims", 1) else ())

    return reduce_all


_OPERATORS: dict[str, Callable[..., Elements]] = {
    "Add": _binary(lambda one, other: one + other, ratios.add),
    "Cast": _cast,
    "Ceil": _rounded(ratios.ceil),
    "Clip": _clipped,
    "Concat": _joined,
    "ConstantOfShape": _filled_with,
    "Div": _divided(tirx.floordiv),
    "Equal": _compared(tirx.EQ),
    "Expand": _expanded,
    "Floor": _rounded(ratios.floor),
    "Gather": _gathered,
    "Greater": _compared(tirx.GT),
    "GreaterOrEqual": _compared(tirx.GE),
    "Identity": lambda values, attributes, operand: operand,
    "Less": _compared(tirx.LT),
    "LessOrEqual": _compared(tirx.LE),
    "Max": _extreme(max, tirx.max, ratios.most),
    "Min": _extreme(min, tirx.min, ratios.least),
    "Mod": _divided(tirx.floormod),
    "Mul": _binary(lambda one, other: one * other, ratios.multiply),
    "Neg": _negated,
    "ReduceProd": _reduced(lambda one, other: one * other),
    "ReduceSum": _reduced(lambda one, other: one + other),
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Squeeze": _squeezed,
    "Sub": _binary(lambda one, other: one - other, ratios.subtract),
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
    "Where": _where,
}
