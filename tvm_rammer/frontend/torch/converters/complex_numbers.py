"""Complex numbers: a tensor of them is two real ones, :class:`Complex`, while it is converted.

What moves elements is done to both parts as it is to real tensors. Inputs and outputs of a program
are real: ``torch.view_as_complex`` and ``view_as_real`` lead in and out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import relax

from tvm_rammer.frontend.fourier import MOST_ELEMENTS, Fourier
from tvm_rammer.frontend.torch.converters.arithmetic import INTEGER_POWERS, integer_power
from tvm_rammer.frontend.torch.converters.elementwise import sign_bit
from tvm_rammer.frontend.torch.converters.layout import sliced
from tvm_rammer.frontend.torch.converters.product import product
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    are_numbers,
    dtype_of,
    shape_of,
)
from tvm_rammer.frontend.torch.size_symbols import Size

#: Of which on the hyperbolic tangent is 1, in doubles too.
_ONE_BEYOND = 20.0


@dataclass(frozen=True)
class Complex:
    """A tensor of complex numbers."""

    real: Any
    imaginary: Any


def complex_converters(real: Mapping[str, Converter]) -> dict[str, Converter]:
    """Converters of calls that have complex numbers; ``real`` are those of calls that have none."""
    return {
        **{name: _part_by_part(real[name]) for name in _MOVES},
        **{name: _part_by_part(real[name], places) for name, places in _OF_SEVERAL.items()},
        **_OWN,
    }


def _part_by_part(converter: Converter, places: tuple[int, ...] = ()) -> Converter:
    """The same for real and for imaginary parts.

    Operands at some places are numbers, and have imaginary parts, even where they are real; any
    other real operand is an index, a size or a condition.
    """

    def convert(call: OperatorCall, *values: Any) -> Any:
        numbers = [
            _as_complex(call, value) if place in places else value
            for place, value in enumerate(values)
        ]
        real, imaginary = (
            _results(call, converter(call, *(_part(value, name) for value in numbers)))
            for name in ("real", "imaginary")
        )
        if isinstance(real, list):
            return [Complex(*parts) for parts in zip(real, imaginary, strict=True)]
        return Complex(real, imaginary)

    return convert


def _part(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return [_part(each, name) for each in value]
    return getattr(value, name) if isinstance(value, Complex) else value


def _results(call: OperatorCall, made: Any) -> Any:
    """What a converter gives, with a tuple of Relax as a list."""
    if isinstance(made, list) or not hasattr(made.ty, "fields"):
        return made
    return [call.emit(made[number]) for number in range(len(made.ty.fields))]


def _as_complex(call: OperatorCall, value: Any, kind: str | None = None) -> Any:
    """A tensor, a number or a list of them as complex numbers, with parts of a type."""
    if isinstance(value, list):
        return [_as_complex(call, each, kind) for each in value]
    if isinstance(value, Complex):
        return value
    if not isinstance(value, relax.Expr):
        number = complex(value)
        return Complex(call.cast(number.real, kind), call.cast(number.imag, kind))
    value = call.cast(value, kind)
    zero = relax.const(0, dtype_of(value))
    return Complex(value, call.broadcast(zero, shape_of(value)))


def _from_real_and_imaginary(call: OperatorCall, x: Any, y: Any) -> Complex:
    shape = call.shape
    return Complex(call.broadcast(call.cast(x), shape), call.broadcast(call.cast(y), shape))


def _from_length_and_angle(call: OperatorCall, length: Any, angle: Any) -> Complex:
    return _from_real_and_imaginary(
        call,
        call.emit(relax.op.multiply(length, relax.op.cos(angle))),
        call.emit(relax.op.multiply(length, relax.op.sin(angle))),
    )


def _from_last_axis(call: OperatorCall, x: Any) -> Complex:
    axis = x.ty.ndim - 1
    real, imaginary = (call.reshape(sliced(call, x, axis, k, k + 1), call.shape) for k in (0, 1))
    return Complex(real, imaginary)


def _to_last_axis(call: OperatorCall, x: Complex) -> Any:
    parts = [call.reshape(part, (*call.shape[:-1], 1)) for part in (x.real, x.imaginary)]
    if 0 in call.shape:
        return call.reshape(x.real, call.shape)
    return call.emit(relax.op.concat(parts, len(call.shape) - 1))


def _cast(call: OperatorCall, x: Any, *_: Any) -> Any:
    """To complex numbers, or to real ones, which have no imaginary part."""
    if not call.node.meta["val"].is_complex():
        return call.cast(x.real)
    x = _as_complex(call, x)
    return Complex(call.cast(x.real), call.cast(x.imaginary))


def _conjugate(call: OperatorCall, x: Complex) -> Complex:
    return Complex(x.real, call.emit(relax.op.negative(x.imaginary)))


def _multiplied(
    call: OperatorCall, x: Any, y: Any, multiply: Callable[[Any, Any], Any] | None = None
) -> Complex:
    """A product of numbers, or of matrices of them; a real factor scales both parts."""
    times = multiply or (lambda a, b: call.emit(relax.op.multiply(a, b)))
    x, y = (_as_complex(call, value) if isinstance(value, complex) else value for value in (x, y))
    if not isinstance(x, Complex) and isinstance(x, relax.Expr):
        x = call.cast(x)
        return Complex(times(x, y.real), times(x, y.imaginary))
    if not isinstance(y, Complex) and isinstance(y, relax.Expr):
        y = call.cast(y)
        return Complex(times(x.real, y), times(x.imaginary, y))
    x, y = _as_complex(call, x), _as_complex(call, y)
    return Complex(
        call.emit(relax.op.subtract(times(x.real, y.real), times(x.imaginary, y.imaginary))),
        call.emit(relax.op.add(times(x.real, y.imaginary), times(x.imaginary, y.real))),
    )


def _matrix_product(call: OperatorCall, x: Any, y: Any) -> Complex:
    return _multiplied(call, x, y, partial(product, call))


def _divided(call: OperatorCall, x: Any, y: Any) -> Complex:
    if isinstance(y, Complex | complex):
        y = _as_complex(call, y)
        x = _multiplied(call, _as_complex(call, x), _conjugate(call, y))
        y = _square(call, y)
    y = call.cast(y)
    real, imaginary = (call.emit(relax.op.divide(part, y)) for part in (x.real, x.imaginary))
    return Complex(real, imaginary)


def _reciprocal(call: OperatorCall, x: Complex) -> Complex:
    return _divided(call, 1, x)


def _square(call: OperatorCall, x: Complex) -> Any:
    """Of the length."""
    return call.emit(
        relax.op.add(relax.op.multiply(x.real, x.real), relax.op.multiply(x.imaginary, x.imaginary))
    )


def _length(call: OperatorCall, x: Complex) -> Any:
    return call.emit(relax.op.sqrt(_square(call, x)))


def _angle(call: OperatorCall, x: Complex) -> Any:
    return call.emit(relax.op.atan2(x.imaginary, x.real))


def _exponential(call: OperatorCall, x: Complex) -> Complex:
    return _from_length_and_angle(call, call.emit(relax.op.exp(x.real)), x.imaginary)


def _of_sines(call: OperatorCall, x: Any, y: Any) -> tuple[Any, Any]:
    """``sinh(x) cos(y)`` and ``cosh(x) sin(y)``, the parts of the hyperbolic sine of x + iy."""
    first = relax.op.multiply(relax.op.sinh(x), relax.op.cos(y))
    return call.emit(first), call.emit(relax.op.multiply(relax.op.cosh(x), relax.op.sin(y)))


def _of_cosines(call: OperatorCall, x: Any, y: Any) -> tuple[Any, Any]:
    """``cosh(x) cos(y)`` and ``sinh(x) sin(y)``, the parts of the hyperbolic cosine."""
    first = relax.op.multiply(relax.op.cosh(x), relax.op.cos(y))
    return call.emit(first), call.emit(relax.op.multiply(relax.op.sinh(x), relax.op.sin(y)))


def _hyperbolic_sine(call: OperatorCall, x: Complex) -> Complex:
    return Complex(*_of_sines(call, x.real, x.imaginary))


def _hyperbolic_cosine(call: OperatorCall, x: Complex) -> Complex:
    return Complex(*_of_cosines(call, x.real, x.imaginary))


def _sine(call: OperatorCall, x: Complex) -> Complex:
    imaginary, real = _of_sines(call, x.imaginary, x.real)
    return Complex(real, imaginary)


def _cosine(call: OperatorCall, x: Complex) -> Complex:
    real, imaginary = _of_cosines(call, x.imaginary, x.real)
    return Complex(real, call.emit(relax.op.negative(imaginary)))


def _hyperbolic_tangent(call: OperatorCall, x: Complex) -> Complex:
    """By the formula that is exact near 0; beyond the limit it is 1 or -1 in every digit."""
    limit = relax.const(_ONE_BEYOND, dtype_of(x.real))
    real = relax.op.minimum(relax.op.maximum(x.real, relax.op.negative(limit)), limit)
    sinh, cosh = call.emit(relax.op.sinh(real)), relax.op.cosh(real)
    sin, cos = relax.op.sin(x.imaginary), call.emit(relax.op.cos(x.imaginary))
    below = relax.op.add(relax.op.multiply(sinh, sinh), relax.op.multiply(cos, cos))
    below = call.emit(below)
    parts = (relax.op.multiply(*pair) for pair in ((sinh, cosh), (sin, cos)))
    return Complex(*(call.emit(relax.op.divide(part, below)) for part in parts))


def _tangent(call: OperatorCall, x: Complex) -> Complex:
    turned = Complex(call.emit(relax.op.negative(x.imaginary)), x.real)
    found = _hyperbolic_tangent(call, turned)
    return Complex(found.imaginary, call.emit(relax.op.negative(found.real)))


def _logistic(call: OperatorCall, x: Complex) -> Complex:
    """``sigmoid``: half of 1 and the hyperbolic tangent of the half."""
    half = relax.const(0.5, dtype_of(x.real))
    parts = (call.emit(relax.op.multiply(part, half)) for part in (x.real, x.imaginary))
    found = _hyperbolic_tangent(call, Complex(*parts))
    real, imaginary = (relax.op.multiply(part, half) for part in (found.real, found.imaginary))
    return Complex(call.emit(relax.op.add(real, half)), call.emit(imaginary))


def _root(call: OperatorCall, x: Complex) -> Complex:
    """The one that is not to the left of zero; below the negative numbers it is below zero."""
    half = relax.const(0.5, dtype_of(x.real))
    zero = call.emit(relax.op.equal(_length(call, x), relax.const(0, dtype_of(x.real))))
    total = relax.op.add(_length(call, x), relax.op.abs(x.real))
    larger = call.emit(relax.op.sqrt(relax.op.multiply(half, total)))
    ratio = relax.op.divide(relax.op.multiply(half, relax.op.abs(x.imaginary)), larger)
    smaller = call.emit(relax.op.where(zero, relax.const(0, dtype_of(x.real)), ratio))
    right = call.emit(relax.op.greater_equal(x.real, relax.const(0, dtype_of(x.real))))
    size = call.emit(relax.op.where(right, smaller, larger))
    below = sign_bit(call, x.imaginary)
    return Complex(
        call.emit(relax.op.where(right, larger, smaller)),
        call.emit(relax.op.where(below, relax.op.negative(size), size)),
    )


def _logarithm(call: OperatorCall, x: Complex) -> Complex:
    return Complex(call.emit(relax.op.log(_length(call, x))), _angle(call, x))


def _power(call: OperatorCall, x: Complex, exponent: Any) -> Complex:
    if isinstance(exponent, complex):
        call.refuse("a complex number is no exponent here", "multiply the logarithm with it")
    if exponent == 0.5:
        return _root(call, x)
    if exponent != int(exponent) or not 0 < abs(exponent) <= INTEGER_POWERS:
        scaled = _multiplied(call, _logarithm(call, x), call.cast(float(exponent)))
        return _exponential(call, scaled)
    power = integer_power(x, abs(int(exponent)), partial(_multiplied, call))
    return power if exponent > 0 else _reciprocal(call, power)


def _equal(call: OperatorCall, x: Any, y: Any) -> Any:
    """Both parts are."""
    kind = dtype_of((x if isinstance(x, Complex) else y).real)
    x, y = (_as_complex(call, value, kind) for value in (x, y))
    parts = (relax.op.equal(x.real, y.real), relax.op.equal(x.imaginary, y.imaginary))
    return call.emit(relax.op.logical_and(*parts))


def _differs(call: OperatorCall, x: Any, y: Any) -> Any:
    return call.emit(relax.op.logical_not(_equal(call, x, y)))


def _scalar(call: OperatorCall, value: Any, *_: Any) -> Complex:
    return _as_complex(call, value)


def _filled(call: OperatorCall, _: Any, value: Any, *__: Any) -> Complex:
    number = complex(value)
    return Complex(call.filled(call.shape, number.real), call.filled(call.shape, number.imag))


def _evaluated(call: OperatorCall, *_: Any) -> Complex:
    """What depends on no tensor is what PyTorch computes now."""
    value = call.node.target(*call.node.args, **call.node.kwargs)
    parts = (relax.const(part.numpy(), call.dtype) for part in (value.real, value.imag))
    return Complex(*parts)


def _scale(normalization: int, sizes: list[Size]) -> dict[str, Any]:
    """Of a transform, by PyTorch's number: by nothing, the root of the size, the size."""
    return {"divisor": math.prod(sizes) if normalization else 1, "by_root": normalization == 1}


def _along(
    call: OperatorCall, axis: int, transform: Callable[..., Any], *parts: Any
) -> tuple[Any, ...]:
    """The results of a transform of the last axis, done along another axis."""
    order = [k for k in range(parts[0].ty.ndim) if k != axis] + [axis]
    back = sorted(range(len(order)), key=order.__getitem__)
    size = shape_of(parts[0])[axis]
    if are_numbers(size) and size > MOST_ELEMENTS:
        call.refuse(f"it transforms more than {MOST_ELEMENTS} elements of an axis")
    results = transform(call.builder, *(call.permute(part, order) for part in parts))
    return tuple(call.permute(part, back) for part in results)


def _complex_transform(
    call: OperatorCall, x: Complex, dim: list[int], normalization: int, forward: bool
) -> Complex:
    return _transformed(call, x, dim, forward, normalization, dim)


def _transformed(
    call: OperatorCall,
    x: Complex,
    dim: list[int],
    forward: bool,
    normalization: int = 0,
    scaled: list[int] | tuple[int, ...] = (),
) -> Complex:
    shape = shape_of(x.real)
    scale = _scale(normalization, [shape[axis] for axis in scaled])
    parts: tuple[Any, ...] = x.real, x.imaginary
    for number, axis in enumerate(dim):
        size = shape[axis]
        fourier = Fourier(size, not forward, **(scale if number == 0 else {}))
        transform = partial(fourier.of_complex, kept=size)
        parts = _along(call, axis % len(shape), transform, *parts)
    return Complex(*parts)


def _transform_of_real(
    call: OperatorCall, x: Any, dim: list[int], normalization: int, onesided: bool
) -> Complex:
    shape, last = shape_of(x), dim[-1]
    size = shape[last]
    fourier = Fourier(size, **_scale(normalization, [shape[axis] for axis in dim]))
    transform = partial(fourier.of_real, kept=size // 2 + 1 if onesided else size)
    parts = _along(call, last % len(shape), transform, call.cast(x))
    return _transformed(call, Complex(*parts), dim[:-1], True)


def _transform_to_real(
    call: OperatorCall, x: Complex, dim: list[int], normalization: int, size: Size
) -> Any:
    x = _transformed(call, x, dim[:-1], False)
    scale = _scale(normalization, [call.shape[axis] for axis in dim])
    fourier = Fourier(size, True, **scale)

    def transform(builder: relax.BlockBuilder, *parts: Any) -> tuple[Any]:
        return (fourier.to_real(builder, *parts),)

    (result,) = _along(call, dim[-1] % len(call.shape), transform, x.real, x.imaginary)
    return result


#: What moves elements and does not compute with them, or computes with real and imaginary parts
#: by themselves.
_MOVES = (
    *("view.default", "reshape.default", "_unsafe_view.default", "as_strided.default"),
    *("squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default"),
    *("permute.default", "transpose.int", "expand.default", "repeat.default", "roll.default"),
    *("split_with_sizes.default", "slice.Tensor", "select.int", "flip.default"),
    *("index.Tensor", "index_select.default", "gather.default", "embedding.default"),
    *("alias.default", "clone.default", "contiguous.default", "detach.default"),
    *("lift_fresh_copy.default", "neg.default", "_neg_view.default", "constant_pad_nd.default"),
    *("sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "cumsum.default"),
    *("empty.memory_format", "empty_like.default", "empty_permuted.default"),
    *("diagonal.default", "tril.default", "triu.default"),
)

#: What combines tensors whose real ones have imaginary parts of zero, and where these stand.
_OF_SEVERAL = {
    "add.Tensor": (0, 1),
    "sub.Tensor": (0, 1),
    "rsub.Scalar": (0, 1),
    "cat.default": (0,),
    "where.self": (1, 2),
    "slice_scatter.default": (0, 1),
    "index_put.default": (0, 2),
    "select_scatter.default": (0, 1),
    "copy.default": (1,),
}

_OWN: dict[str, Converter] = {
    "complex.default": _from_real_and_imaginary,
    "polar.default": _from_length_and_angle,
    "view_as_complex.default": _from_last_axis,
    "view_as_real.default": _to_last_axis,
    "_to_copy.default": _cast,
    "_conj.default": _conjugate,
    "_conj_physical.default": _conjugate,
    "mul.Tensor": _multiplied,
    "div.Tensor": _divided,
    "mm.default": _matrix_product,
    "bmm.default": _matrix_product,
    "reciprocal.default": _reciprocal,
    "mv.default": _matrix_product,
    "dot.default": _matrix_product,
    "scalar_tensor.default": _scalar,
    **{f"eq.{of}": _equal for of in ("Tensor", "Scalar")},
    **{f"ne.{of}": _differs for of in ("Tensor", "Scalar")},
    "sqrt.default": _root,
    "log.default": _logarithm,
    "abs.default": _length,
    "angle.default": _angle,
    "exp.default": _exponential,
    "sin.default": _sine,
    "cos.default": _cosine,
    "tan.default": _tangent,
    "sinh.default": _hyperbolic_sine,
    "cosh.default": _hyperbolic_cosine,
    "tanh.default": _hyperbolic_tangent,
    "sigmoid.default": _logistic,
    "square.default": lambda call, x: _multiplied(call, x, x),
    "rsqrt.default": lambda call, x: _reciprocal(call, _root(call, x)),
    "pow.Tensor_Scalar": _power,
    "full.default": _filled,
    "full_like.default": _filled,
    "fill.Scalar": _filled,
    **{name: _evaluated for name in ("eye.default", "eye.m", "linspace.default")},
    "_fft_r2c.default": _transform_of_real,
    "_fft_c2c.default": _complex_transform,
    "_fft_c2r.default": _transform_to_real,
}
