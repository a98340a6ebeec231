"""A compiler pass that evaluates operators on constants with numpy.

TVM's own FoldConstant compiles a function per operator and shape, 10 to 30 seconds for a network
with batch norms; numpy needs milliseconds. What is not in the table is left to FoldConstant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.tirx import FloatImm, IntImm

from tvm_rammer.relax_util import (
    bind_again,
    bound_value,
    has_several_entries,
    operator_name,
    permutation_of,
    rewrite,
    static_shape,
    variables_read,
)
from tvm_rammer.tensors import as_array, constant
from tvm_rammer.transform.remove_dead_code import clean_up

#: Floats of 16 bits; numpy takes the second for no float.
_SHORT = ("float16", "bfloat16")

#: Gives nothing where TVM's result is another one.
Evaluate = Callable[[Any, list[np.ndarray]], np.ndarray | None]


def _unary(function: Callable[[np.ndarray], np.ndarray]) -> Evaluate:
    return lambda call, args: function(args[0])


def _binary(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Evaluate:
    return lambda call, args: function(args[0], args[1])


def _reshape(call: Any, args: list[np.ndarray]) -> np.ndarray:
    return args[0].reshape(static_shape(call) or ())


def _broadcast(call: Any, args: list[np.ndarray]) -> np.ndarray:
    return np.broadcast_to(args[0], static_shape(call) or ())


def _transpose(call: Any, args: list[np.ndarray]) -> np.ndarray:
    axes = call.attrs.axes
    return args[0].transpose(None if axes is None else [int(axis) for axis in axes])


def _axes(call: Any) -> tuple[int, ...] | None:
    """Those that a reduction goes along, ``None`` for all."""
    return None if call.attrs.axis is None else tuple(map(int, call.attrs.axis))


def _axis(call: Any) -> int | None:
    """The only one, ``None`` for all elements in order."""
    return None if call.attrs.axis is None else int(call.attrs.axis)


def _reduction(function: np.ufunc) -> Evaluate:
    def reduce(call: Any, args: list[np.ndarray]) -> np.ndarray | None:
        (data,) = args
        # TVM compares from the first to the last, and what is left of a NaN hangs on where it is.
        if not data.size or (data.dtype.kind == "f" and np.isnan(data).any()):
            return None
        return function.reduce(data, _axes(call), keepdims=bool(call.attrs.keepdims))

    return reduce


def _of_truths(function: np.ufunc) -> Evaluate:
    """Of numbers TVM has the bits instead."""
    return lambda call, args: function(*args) if all(x.dtype.kind == "b" for x in args) else None


def _shift(function: np.ufunc) -> Evaluate:
    """By as many bits as there are, or by a negative number, processors differ."""

    def shift(call: Any, args: list[np.ndarray]) -> np.ndarray | None:
        data, bits = args
        inside = (bits >= 0) & (bits < data.itemsize * 8)
        return function(data, bits) if inside.all() else None

    return shift


def _whole_division(function: np.ufunc) -> Evaluate:
    """Of integers, by anything but zero."""

    def divide(call: Any, args: list[np.ndarray]) -> np.ndarray | None:
        whole = all(x.dtype.kind in "iu" for x in args)
        return function(*args) if whole and args[1].all() else None

    return divide


def _sum(call: Any, args: list[np.ndarray]) -> np.ndarray:
    return args[0].sum(_axes(call), dtype=str(call.ty.dtype), keepdims=bool(call.attrs.keepdims))


def _mean(call: Any, args: list[np.ndarray]) -> np.ndarray:
    total = _sum(call, args)
    return total / (args[0].size / total.size if total.size else 1)


def _cumsum(call: Any, args: list[np.ndarray]) -> np.ndarray | None:
    if call.attrs.exclusive:
        return None
    return args[0].cumsum(_axis(call), dtype=str(call.ty.dtype))


def _sign(call: Any, args: list[np.ndarray]) -> np.ndarray | None:
    return None if np.isnan(args[0]).any() else np.sign(args[0])


def _softmax(call: Any, args: list[np.ndarray]) -> np.ndarray | None:
    (data,), axis = args, int(call.attrs.axis)
    if not data.size:
        return None
    powers = np.exp(data - data.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _layer_norm(call: Any, args: list[np.ndarray]) -> np.ndarray | None:
    data, scale, shift = args
    if not (call.attrs.scale and call.attrs.center):
        return None
    axes = [int(axis) % data.ndim for axis in call.attrs.axes]
    spread = np.where(np.isin(np.arange(data.ndim), axes), data.shape, 1)
    middle = data.mean(tuple(axes), keepdims=True)
    variance = np.square(data - middle).mean(tuple(axes), keepdims=True)
    found = (data - middle) / np.sqrt(variance + np.float32(call.attrs.epsilon))
    return found * scale.reshape(spread) + shift.reshape(spread)


def _take(call: Any, args: list[np.ndarray]) -> np.ndarray | None:
    if call.attrs.mode not in ("fast", "clip", "wrap"):
        return None
    wrap = call.attrs.mode == "wrap"
    return args[0].take(args[1], _axis(call), mode="wrap" if wrap else "clip")


def _cast(call: Any, args: list[np.ndarray]) -> np.ndarray | None:
    # What becomes of a float that no such integer is near, of a NaN in fewer bits, or of what may
    # be rounded twice, hangs on who converts it.
    (data,), dtype = args, str(call.ty.dtype)
    plain = True
    if dtype in _SHORT:
        plain = data.itemsize <= 4 and not (_is_float(data) and np.isnan(data).any())
    elif "float" in dtype:
        plain = dtype in ("float32", "float64")
    elif _is_float(data) and dtype != "bool":
        limits = np.iinfo(dtype)
        plain = bool(((data >= limits.min) & (data < limits.max)).all())
    return data.astype(dtype) if plain else None


def _slice(call: Any, args: list[np.ndarray]) -> np.ndarray | None:
    fields = [getattr(field, "fields", [None])[:] for field in call.args[1:]]
    if not all(isinstance(number, IntImm) for field in fields for number in field):
        return None
    axes, *cuts = (list(map(int, field)) for field in fields)
    slices = [slice(None)] * args[0].ndim
    for axis, *cut in zip(axes, *cuts, strict=True):
        slices[axis] = slice(*cut)
    found = args[0][tuple(slices)]
    return found if found.shape == static_shape(call) else None


#: By what is called the reduction of what meets in a place.
_MEETING: dict[str, Any] = {"add": np.add, "mul": np.multiply}


def _scatter_nd(call: Any, args: list[np.ndarray]) -> np.ndarray | None:
    data, indices, updates = args
    places = tuple(np.moveaxis(indices, -1, 0))
    inside = all(
        ((place >= 0) & (place < extent)).all()
        for place, extent in zip(places, data.shape, strict=False)
    )
    meeting = _MEETING.get(call.attrs.reduction)
    if not inside or (meeting is None and call.attrs.reduction != "update"):
        return None
    found = data.copy()
    if meeting is None:
        found[places] = updates
    else:
        meeting.at(found, places, updates)
    return found


def _quantize(call: Any, args: list[np.ndarray]) -> np.ndarray:
    data, scale, zero_point = _along_axis(call, args)
    limits = np.iinfo(str(call.attrs.out_dtype))
    steps = np.rint(data / scale) + zero_point.astype(data.dtype)
    below = np.where(steps < limits.max, steps, limits.max)
    return np.where(below > limits.min, below, limits.min)


def _dequantize(call: Any, args: list[np.ndarray]) -> np.ndarray:
    data, scale, zero_point = _along_axis(call, args)
    return (data.astype(np.int32) - zero_point.astype(np.int32)).astype(np.float32) * scale


def _along_axis(call: Any, args: list[np.ndarray]) -> list[np.ndarray]:
    """Data, scales and zero points, which broadcast."""
    data, *others = args
    sizes = np.where(np.arange(data.ndim) == int(call.attrs.axis) % max(1, data.ndim), -1, 1)
    return [data, *(each.reshape(sizes) if each.size > 1 else each.reshape(()) for each in others)]


#: Only operators whose numpy result is the TVM result, for every dtype; but sums of floats may be
#: made in another order.
_EXACT: dict[str, Evaluate] = {
    "add": _binary(np.add),
    "subtract": _binary(np.subtract),
    "multiply": _binary(np.multiply),
    # numpy's own would make a NaN of a NaN on either side, TVM's compare.
    "maximum": _binary(lambda a, b: np.where(a > b, a, b)),
    "minimum": _binary(lambda a, b: np.where(a < b, a, b)),
    **{
        name: _binary(getattr(np, name))
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
    **{name: _of_truths(getattr(np, name)) for name in ("logical_and", "logical_or")},
    "logical_not": _of_truths(np.logical_not),
    **{name: _binary(getattr(np, name)) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "bitwise_not": _unary(np.bitwise_not),
    "left_shift": _shift(np.left_shift),
    "right_shift": _shift(np.right_shift),
    "floor_divide": _whole_division(np.floor_divide),
    "floor_mod": _whole_division(np.mod),
    "where": lambda call, args: np.where(*args),
    "isnan": _unary(np.isnan),
    "sum": _sum,
    "cumsum": _cumsum,
    "max": _reduction(np.maximum),
    "min": _reduction(np.minimum),
    "astype": _cast,
    "take": _take,
    "strided_slice": _slice,
    "scatter_nd": _scatter_nd,
    "negative": _unary(np.negative),
    "abs": _unary(np.abs),
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "flatten": _reshape,
    "permute_dims": _transpose,
    "broadcast_to": _broadcast,
    # Without an axis, vectors are concatenated.
    "concat": lambda call, args: np.concatenate(args, int(call.attrs.axis or 0)),
}

#: Changes of scale; only those between integers of up to 32 bits and float32 are folded.
_OF_SCALES: dict[str, Evaluate] = {"quantize": _quantize, "dequantize": _dequantize}
_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int32"})

#: Operators that are folded on floating point only: integer division and roots differ.
_FLOATING: dict[str, Evaluate] = {
    "divide": _binary(np.divide),
    "round": _unary(np.rint),
    "sqrt": _unary(np.sqrt),
    "rsqrt": _unary(lambda x: 1 / np.sqrt(x)),
    "exp": _unary(np.exp),
    "log": _unary(np.log),
    "sin": _unary(np.sin),
    "cos": _unary(np.cos),
    "tanh": _unary(np.tanh),
    "floor": _unary(np.floor),
    "ceil": _unary(np.ceil),
    "trunc": _unary(np.trunc),
    "sign": _sign,
    "power": _binary(np.power),
    "mod": _binary(np.fmod),
    "floor_mod": _binary(np.mod),
    "mean": _mean,
    "nn.softmax": _softmax,
    "nn.layer_norm": _layer_norm,
    "sigmoid": _unary(lambda x: 1 / (1 + np.exp(-x))),
    "matmul": _binary(np.matmul),
}


@tvm.transform.module_pass(opt_level=0, name="FoldConstants")
class FoldConstants:
    """Evaluate operators whose operands are all constants."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Fold every Relax function of a module."""
        return rewrite(mod, _Folder(mod), clean_up)


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):
    """Constants that only other operators read are forgotten once these are evaluated.

    Weights that a model unpacks in ten steps would else take ten times the memory.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.found: dict[Any, Any] = {}
        self.read_last: dict[Any, list[Any]] = {}
        #: Functions for several shapes turn the same weights, which stay one.
        self.several = has_several_entries(mod)
        self.turned: dict[tuple[Any, ...], Any] = {}

    def visit_function_(self, func: Any) -> Any:
        self.read_last |= _read_last(func)
        return super().visit_function_(func)

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        for var in self.read_last.get(binding.var, ()):
            self.found.pop(var, None)
        if isinstance(value, GenericConst) and isinstance(binding.var, relax.DataflowVar):
            self.found[binding.var] = value
            return
        bind_again(self, binding, value)

    def visit_dataflow_var_(self, var: Any) -> Any:
        return self.found[var] if var in self.found else super().visit_dataflow_var_(var)

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        name = operator_name(call).removeprefix("relax.")
        if name in ("shape_of", "shape_to_tensor"):
            return self._of_shape(call)
        if not any(name in table for table in (_EXACT, _FLOATING, _OF_SCALES)):
            return call
        operands = self._operands(call)
        if operands is None or (shape := static_shape(call)) is None:
            return call
        dtype = str(call.ty.dtype)
        evaluate = _EXACT.get(name)
        if name in _OF_SCALES and _is_plain(operands[0].dtype.name, dtype):
            evaluate = _OF_SCALES[name]
        if name in _FLOATING and all(map(_is_float, operands)):
            evaluate = _FLOATING[name]
            # A product may be wider than its factors.
            operands = [x.astype(dtype) for x in operands]
        if evaluate is None:
            return call
        if name == "permute_dims" and self.several:
            return self._turned(call, operands[0])
        with np.errstate(all="ignore"):
            value = evaluate(call, operands)
        if value is None:
            return call
        return constant(np.asarray(value, dtype).reshape(shape))

    def _turned(self, call: Any, operand: np.ndarray) -> Any:
        """A constant with other axes, the same one for all functions that turn it so."""
        key = (bound_value(self, call.args[0]).value, permutation_of(call))
        if key not in self.turned:
            self.turned[key] = constant(_transpose(call, [operand]))
        return self.turned[key]

    def _of_shape(self, call: Any) -> Any:
        """A shape that is known, or the tensor of its sizes."""
        (operand,) = call.args
        if operator_name(call) == "relax.shape_of":
            shape = static_shape(operand)
            return call if shape is None else relax.ShapeExpr(shape)
        bound = bound_value(self, operand)
        sizes = list(bound.values) if isinstance(bound, relax.ShapeExpr) else []
        known = [int(size) for size in sizes if isinstance(size, IntImm)]
        if not sizes or len(known) < len(sizes):
            return call
        return constant(np.array(known, np.int64))

    def visit_tuple_getitem_(self, item: Any) -> Any:
        item = super().visit_tuple_getitem_(item)
        call = bound_value(self, item.tuple_value)
        if operator_name(call) != "relax.split":
            return item
        value = _value(bound_value(self, call.args[0]))
        if value is None:
            return item
        shapes = [tuple(map(int, field.shape)) for field in call.ty.fields]
        axis = int(call.attrs.axis)
        start = sum(shape[axis] for shape in shapes[: item.index])
        part = value.take(range(start, start + shapes[item.index][axis]), axis)
        return constant(part)

    def _operands(self, call: Any) -> list[np.ndarray] | None:
        """The values of all tensor operands, or ``None`` if one is not a constant."""
        values: list[np.ndarray] = []
        for argument in call.args[:]:
            bound = bound_value(self, argument)
            if isinstance(bound, relax.ShapeExpr):
                continue
            fields = bound.fields if isinstance(bound, relax.Tuple) else [bound]
            for field in (bound_value(self, field) for field in fields):
                value = _value(field)
                if value is None:
                    return None
                values.append(value)
        return values or None


def _read_last(func: Any) -> dict[Any, list[Any]]:
    """The variables that nobody reads after a binding, by its variable."""
    readers: dict[Any, Any] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            for var in variables_read(binding.value):
                readers[var] = binding.var
    found: dict[Any, list[Any]] = {}
    for var, reader in readers.items():
        found.setdefault(reader, []).append(var)
    return found


def _is_plain(operand: str, result: str) -> bool:
    """Whether one type is float32 and the other an integer, but for a result of 32 bits: float32
    does not have its limits.
    """
    types = {operand, result}
    return "float32" in types and not types.isdisjoint(_INTEGERS) and result != "int32"


def _is_float(data: np.ndarray) -> bool:
    return data.dtype.kind == "f" or data.dtype.name in _SHORT


def _value(expression: Any) -> np.ndarray | None:
    """The value of a constant tensor or an immediate scalar, ``None`` for anything else."""
    if isinstance(expression, GenericConst) and hasattr(expression.value, "numpy"):
        return as_array(expression.value)
    if isinstance(expression, FloatImm | IntImm):
        return np.asarray(expression.value, dtype=str(expression.ty.dtype))
    return None
