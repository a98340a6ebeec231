"""Functions of statistics: those of Gauss, gamma functions, Bessel functions.

In doubles, so that results in float32 are right to the last place or the one before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tvm import relax

from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall, double

_Function = Callable[[OperatorCall, Any], Any]


def _in_doubles(function: _Function) -> Converter:
    """What a function of a tensor of doubles gives, in the result's type."""

    def convert(call: OperatorCall, x: Any) -> Any:
        return call.cast(function(call, call.cast(x, "float64")))

    return convert


def _polynomial(call: OperatorCall, x: Any, coefficients: Sequence[float]) -> Any:
    """By Horner's rule, the coefficient of the largest power first."""
    result = double(coefficients[0])
    for coefficient in coefficients[1:]:
        result = relax.op.add(relax.op.multiply(result, x), double(coefficient))
    return call.emit(result)


def _ratio(call: OperatorCall, x: Any, above: Sequence[float], below: Sequence[float]) -> Any:
    """Of two polynomials."""
    dividend, divisor = _polynomial(call, x, above), _polynomial(call, x, below)
    return call.emit(relax.op.divide(dividend, divisor))


def _where(call: OperatorCall, condition: Any, x: Any, y: Any) -> Any:
    x, y = (double(value) if isinstance(value, float) else value for value in (x, y))
    return call.emit(relax.op.where(condition, x, y))


def _below(x: Any, limit: float) -> Any:
    return relax.op.less(x, double(limit))


# The error function, by W. J. Cody, "Rational Chebyshev approximations for the error function".

_SMALL = 0.46875
_ERROR = (
    (
        0.18577770618460315,
        3.1611237438705655,
        113.86415415105016,
        377.485237685302,
        3209.3775891384694,
    ),
    (1, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
_MEDIUM = 4.0
_COMPLEMENT = (
    (
        2.1531153547440383e-08,
        0.5641884969886701,
        8.883149794388377,
        66.11919063714163,
        298.6351381974001,
        881.952221241769,
        1712.0476126340707,
        2051.0783778260716,
        1230.3393547979972,
    ),
    (
        1,
        15.744926110709835,
        117.6939508913125,
        537.1811018620099,
        1621.3895745666903,
        3290.7992357334597,
        4362.619090143247,
        3439.3676741437216,
        1230.3393548037495,
    ),
)
_TAIL = (
    (
        0.016315387137302097,
        0.30532663496123236,
        0.36034489994980445,
        0.12578172611122926,
        0.016083785148742275,
        0.0006587491615298378,
    ),
    (
        1,
        2.568520192289822,
        1.8729528499234673,
        0.5279051029514285,
        0.06051834131244132,
        0.0023352049762686918,
    ),
)


def _small_error(call: OperatorCall, x: Any) -> Any:
    """``erf`` of what is near zero."""
    square = call.emit(relax.op.multiply(x, x))
    return call.emit(relax.op.multiply(x, _ratio(call, square, *_ERROR)))


def _scaled_complement(call: OperatorCall, size: Any) -> Any:
    """``exp(x * x) * erfc(x)`` of what is not negative and not near zero."""
    medium = _ratio(call, size, *_COMPLEMENT)
    inverse = call.emit(relax.op.divide(double(1), size))
    square = call.emit(relax.op.multiply(inverse, inverse))
    less = relax.op.multiply(square, _ratio(call, square, *_TAIL))
    large = relax.op.multiply(inverse, relax.op.subtract(double(1 / math.sqrt(math.pi)), less))
    return _where(call, relax.op.less_equal(size, double(_MEDIUM)), medium, call.emit(large))


def _complement(call: OperatorCall, x: Any) -> Any:
    """``erfc``, which is far from zero too where it is small."""
    size = call.emit(relax.op.abs(x))
    falling = call.emit(relax.op.exp(relax.op.negative(relax.op.multiply(size, size))))
    tail = call.emit(relax.op.multiply(falling, _scaled_complement(call, size)))
    far = _where(call, _below(x, 0), relax.op.subtract(double(2), tail), tail)
    near = relax.op.subtract(double(1), _small_error(call, x))
    return _where(call, _below(size, _SMALL), call.emit(near), far)


def _scaled_complement_of_all(call: OperatorCall, x: Any) -> Any:
    """``erfcx``."""
    size = call.emit(relax.op.abs(x))
    rising = call.emit(relax.op.exp(relax.op.multiply(x, x)))
    tail = _scaled_complement(call, size)
    reflected = relax.op.subtract(relax.op.multiply(double(2), rising), tail)
    far = _where(call, _below(x, 0), call.emit(reflected), tail)
    complement = relax.op.subtract(double(1), _small_error(call, x))
    near = call.emit(relax.op.multiply(rising, complement))
    return _where(call, _below(size, _SMALL), near, far)


# Quantiles of the normal distribution, by M. J. Wichura's algorithm AS 241.

_CENTRE = 0.425
_CENTRAL = (
    (
        2509.0809287301227,
        33430.57558358813,
        67265.7709270087,
        45921.95393154987,
        13731.69376550946,
        1971.5909503065513,
        133.14166789178438,
        3.3871328727963665,
    ),
    (
        5226.495278852854,
        28729.085735721943,
        39307.89580009271,
        21213.794301586597,
        5394.196021424751,
        687.1870074920579,
        42.31333070160091,
        1,
    ),
)
_BESIDE = (
    (
        0.0007745450142783414,
        0.022723844989269184,
        0.2417807251774506,
        1.2704582524523684,
        3.6478483247632045,
        5.769497221460691,
        4.630337846156546,
        1.4234371107496835,
    ),
    (
        1.0507500716444169e-09,
        0.0005475938084995345,
        0.015198666563616457,
        0.14810397642748008,
        0.6897673349851,
        1.6763848301838038,
        2.053191626637759,
        1,
    ),
)
_FAR = (
    (
        2.0103343992922881e-07,
        2.7115555687434876e-05,
        0.0012426609473880784,
        0.026532189526576124,
        0.29656057182850487,
        1.7848265399172913,
        5.463784911164114,
        6.657904643501103,
    ),
    (
        2.0442631033899397e-15,
        1.421511758316446e-07,
        1.8463183175100548e-05,
        0.0007868691311456133,
        0.014875361290850615,
        0.1369298809227358,
        0.599832206555888,
        1,
    ),
)


def _quantile(call: OperatorCall, shifted: Any, tail: Any) -> Any:
    """Where the distribution is ``0.5 + shifted``; ``tail`` is what is left to its nearer end."""
    rest = relax.op.subtract(double(_CENTRE**2), relax.op.multiply(shifted, shifted))
    centre = call.emit(relax.op.multiply(shifted, _ratio(call, call.emit(rest), *_CENTRAL)))
    root = call.emit(relax.op.sqrt(relax.op.negative(relax.op.log(tail))))
    beside = _ratio(call, call.emit(relax.op.subtract(root, double(1.6))), *_BESIDE)
    far = _ratio(call, call.emit(relax.op.subtract(root, double(5))), *_FAR)
    size = _where(call, relax.op.less_equal(root, double(5)), beside, far)
    size = _where(call, relax.op.equal(tail, double(0)), math.inf, size)
    outside = _where(call, _below(shifted, 0), relax.op.negative(size), size)
    near = relax.op.less_equal(relax.op.abs(shifted), double(_CENTRE))
    return _where(call, near, centre, outside)


def _normal_quantile(call: OperatorCall, x: Any) -> Any:
    """``ndtri``."""
    shifted = call.emit(relax.op.subtract(x, double(0.5)))
    return _quantile(call, shifted, call.emit(relax.op.minimum(relax.op.subtract(double(1), x), x)))


def _inverse_error(call: OperatorCall, x: Any) -> Any:
    """``erfinv``."""
    half = call.emit(relax.op.multiply(x, double(0.5)))
    tail = call.emit(relax.op.subtract(double(0.5), relax.op.abs(half)))
    return call.emit(relax.op.multiply(_quantile(call, half, tail), double(1 / math.sqrt(2))))


# Gamma functions: series for what is large, recurrence and reflection lead there.

_LARGE = 8


def _large(call: OperatorCall, x: Any) -> tuple[Any, Any, list[Any]]:
    """``x`` or, where that is less than 8, 8 more; where it is; and what was stepped over."""
    less = call.emit(_below(x, _LARGE))
    large = _where(call, less, relax.op.add(x, double(_LARGE)), x)
    return large, less, [call.emit(relax.op.add(x, double(k))) for k in range(_LARGE)]


def _series(call: OperatorCall, x: Any, term: Callable[[int, float], float]) -> Any:
    """A sum over even powers of ``1 / x``, with Bernoulli's numbers."""
    inverse = call.emit(relax.op.divide(double(1), x))
    square = call.emit(relax.op.multiply(inverse, inverse))
    terms = [term(2 * k, number) for k, number in enumerate(_BERNOULLI, 1)]
    return _polynomial(call, square, terms[::-1])


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _from_whole(call: OperatorCall, x: Any) -> Any:
    """How far the nearest whole number is, which is exact."""
    return call.emit(relax.op.subtract(x, relax.op.round(x)))


def _log_gamma(call: OperatorCall, x: Any) -> Any:
    """``log(|gamma(x)|)``; below 1/2 ``gamma(x) * gamma(1 - x) = pi / sin(pi * x)``."""
    reflected = call.emit(_below(x, 0.5))
    result = _log_gamma_of_positive(
        call, _where(call, reflected, relax.op.subtract(double(1), x), x)
    )
    sine = relax.op.sin(relax.op.multiply(double(math.pi), _from_whole(call, x)))
    below = relax.op.log(relax.op.divide(double(math.pi), relax.op.abs(sine)))
    below = call.emit(relax.op.subtract(below, result))
    pole = relax.op.logical_and(
        relax.op.less_equal(x, double(0)), relax.op.equal(x, relax.op.floor(x))
    )
    result = _where(call, reflected, below, result)
    return _where(call, pole, math.inf, result)


def _log_gamma_of_positive(call: OperatorCall, x: Any) -> Any:
    large, less, steps = _large(call, x)
    # In this form nothing is infinite but the result.
    result = relax.op.multiply(
        relax.op.subtract(large, double(0.5)), relax.op.subtract(relax.op.log(large), double(1))
    )
    rest = _series(call, large, lambda n, number: number / (n * (n - 1)))
    result = relax.op.add(result, relax.op.divide(rest, large))
    result = call.emit(relax.op.add(result, double(0.5 * math.log(2 * math.pi) - 0.5)))
    product = relax.op.log(reduce(relax.op.multiply, steps))
    stepped = call.emit(relax.op.subtract(result, product))
    return _where(call, less, stepped, result)


def _digamma(call: OperatorCall, x: Any) -> Any:
    """The derivative of ``log(gamma(x))``; infinite at zero, of the other sign."""
    reflected = call.emit(_below(x, 0))
    result = _digamma_of_positive(call, _where(call, reflected, relax.op.subtract(double(1), x), x))
    angle = call.emit(relax.op.multiply(double(math.pi), _from_whole(call, x)))
    # Of whole numbers that is infinite.
    cotangent = relax.op.divide(relax.op.cos(angle), relax.op.sin(angle))
    below = relax.op.subtract(result, relax.op.multiply(double(math.pi), cotangent))
    whole = relax.op.equal(x, relax.op.floor(x))
    below = _where(call, whole, math.nan, call.emit(below))
    result = _where(call, reflected, below, result)
    at_zero = call.emit(relax.op.divide(double(-1), x))
    return _where(call, relax.op.equal(x, double(0)), at_zero, result)


def _digamma_of_positive(call: OperatorCall, x: Any) -> Any:
    large, less, steps = _large(call, x)
    square = relax.op.multiply(large, large)
    result = relax.op.subtract(relax.op.log(large), relax.op.divide(double(0.5), large))
    rest = _series(call, large, lambda n, number: number / n)
    result = call.emit(relax.op.subtract(result, relax.op.divide(rest, square)))
    stepped = result
    for step in steps:
        stepped = relax.op.subtract(stepped, relax.op.divide(double(1), step))
    return _where(call, less, call.emit(stepped), result)


# Modified Bessel functions: the series of powers, and for large numbers that of inverse powers.

_SERIES_END = 18.0
_POWERS, _INVERSE_POWERS = 44, 24


def _bessel(order: int, scaled: bool) -> _Function:
    """``I`` of an order; scaled by ``exp(-|x|)``."""

    def function(call: OperatorCall, x: Any) -> Any:
        size = call.emit(relax.op.abs(x))
        falling = call.emit(relax.op.exp(relax.op.negative(size)))
        inside = relax.op.less(size, double(_SERIES_END))
        small = _small_bessel(call, size, order)
        large = _large_bessel(call, size, order)
        if scaled:
            small = call.emit(relax.op.multiply(small, falling))
        else:
            large = call.emit(relax.op.multiply(large, relax.op.exp(size)))
        result = _where(call, inside, small, large)
        if order % 2 == 0:
            return result
        return _where(call, _below(x, 0), relax.op.negative(result), result)

    return function


def _small_bessel(call: OperatorCall, size: Any, order: int) -> Any:
    half = call.emit(relax.op.multiply(size, double(0.5)))
    terms = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(_POWERS)]
    result = _polynomial(call, call.emit(relax.op.multiply(half, half)), terms[::-1])
    for _ in range(order):
        result = call.emit(relax.op.multiply(result, half))
    return result


def _large_bessel(call: OperatorCall, size: Any, order: int) -> Any:
    """Scaled by ``exp(-|x|)``."""
    terms = [1.0]
    for k in range(1, _INVERSE_POWERS):
        terms.append(-terms[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    inverse = call.emit(relax.op.divide(double(1), size))
    root = relax.op.sqrt(relax.op.multiply(inverse, double(1 / (2 * math.pi))))
    return call.emit(relax.op.multiply(root, _polynomial(call, inverse, terms[::-1])))


CONVERTERS: dict[str, Converter] = {
    "erfc.default": _in_doubles(_complement),
    "erfinv.default": _in_doubles(_inverse_error),
    "special_erfcx.default": _in_doubles(_scaled_complement_of_all),
    "special_ndtri.default": _in_doubles(_normal_quantile),
    "lgamma.default": _in_doubles(_log_gamma),
    "digamma.default": _in_doubles(_digamma),
    "i0.default": _in_doubles(_bessel(0, scaled=False)),
    "special_i0e.default": _in_doubles(_bessel(0, scaled=True)),
    "special_i1.default": _in_doubles(_bessel(1, scaled=False)),
    "special_i1e.default": _in_doubles(_bessel(1, scaled=True)),
}
