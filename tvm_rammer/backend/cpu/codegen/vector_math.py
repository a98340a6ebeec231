"""Elementary functions of float32 as arithmetic on vectors.

LLVM calls libm once per lane for them. Here every one is a handful of multiply-adds on whole
vectors: the argument is reduced to a small interval, a minimax polynomial (fitted by Remez'
algorithm for these intervals) gives the value there, and exponents are put back as bits.
Infinities, NaN, signed zeros and subnormal numbers come out as the C standard has them. Largest
errors seen, in units in the last place, with fused multiply-adds or without:

=======  ====  =======  ====  =======  ====
exp      1.02  log      0.87  tanh     2.55
exp2     1.05  log2     1.73  sigmoid  2.31
erf      1.35  log10    1.85  pow      0.53
sin      1.56  cos      1.56
=======  ====  =======  ====  =======  ====

``rsqrt`` and powers by small multiples of a quarter are square roots, products and quotients, each
rounded once. A vector with a lane beyond 2^18 asks libm for its sine or cosine there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tvm_rammer.backend.cpu.codegen.vector_math_text import Value

_INFINITY = math.inf
_LARGEST = float(np.finfo(np.float32).max)
_LOG2_E = math.log2(math.e)
#: ln 2 in two parts, the first exact in so few bits that its products with exponents are.
_LN2_HIGH = 0.693359375
_LN2_LOW = math.log(2) - _LN2_HIGH
#: log10 2 in the same way.
_LOG10_2_HIGH = 0.30078125
_LOG10_2_LOW = math.log10(2) - _LOG10_2_HIGH

#: Added to a small number, they leave its nearest integer in the low bits.
_ROUND, _ROUND_DOUBLE = 1.5 * 2.0**23, 1.5 * 2.0**52

#: (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2.
_EXP = (0.49999997, 0.16666538, 0.041667741, 0.0083673187, 0.0013837861)
#: (log(1 + t) - t + t^2 / 2) / t^3 for 1 + t from sqrt(1/2) to sqrt(2).
_LOG = (
    *(0.33333331, -0.25000823, 0.20001228, -0.16623336),
    *(0.14201719, -0.13160364, 0.12761962, -0.076344885),
)
#: erf(x) / x - 1 in powers of x^2 for |x| <= 1, -log(1 - erf(x)) in powers of x from there to 4.
_ERF_NEAR = (
    *(0.12837917, -0.37612626, 0.11283585, -0.026853813),
    *(0.0051883277, -8.0101937e-4, 7.8538615e-5),
)
_ERF_FAR = (
    *(0.0026101959, 1.1176516, 0.65420002),
    *(0.088825643, -0.01484004, 0.0011582349),
)
#: log2((1 + s) / (1 - s)) / s in powers of s^2, and 2^r for |r| <= 1/2, in double precision.
_LOG2_DOUBLE = (
    *(2.8853900817900864, 0.9617966733414881, 0.577083585024522),
    *(0.4116727157700423, 0.3407301600032603),
)
_EXP2_DOUBLE = (
    *(1.000000000555052, 0.6931472057671488, 0.24022646886081853, 0.05550328711796225),
    *(0.009618489244034535, 0.0013399957628007434, 0.00015345789062810576),
)
#: (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2 / 2) / r^4 for |r| a little beyond pi / 4, in powers
#: of r^2.
_SIN = (-0.16666652, 0.0083320131, -1.9495463e-4)
_COS = (0.041666642, -0.0013887116, 2.4410498e-5)
#: pi / 2 in two parts in double precision, the first of so few bits that its products with the
#: numbers of quarter turns are exact.
_HALF_PI_HIGH = math.floor(math.pi / 2 * 2**32) / 2**32
_HALF_PI_LOW = math.pi / 2 - _HALF_PI_HIGH + 6.123233995736766e-17
#: How far the number of quarter turns is known well enough in float32.
_FAR = 2.0**18


def exp(x: Value) -> Value:
    inside = x.at_least(-104.0).at_most(89.0)
    rest, exponent = _without_exponent(inside)
    return _scaled(1.0 + _exp_minus_one(rest), exponent)


def exp2(x: Value) -> Value:
    inside = x.at_least(-151.0).at_most(129.0)
    magic = inside + _ROUND
    rest = (inside - (magic - _ROUND)) * math.log(2)
    return _scaled(1.0 + _exp_minus_one(rest), _integer(magic))


def sigmoid(x: Value) -> Value:
    """``1 / (1 + exp(-x))``, written with the exponential that is at most 1."""
    rest, exponent = _without_exponent((-x.absolute()).at_least(-104.0))
    small = _scaled(1.0 + _exp_minus_one(rest), exponent)
    return (x < 0.0).where(small, 1.0) / (1.0 + small)


def tanh(x: Value) -> Value:
    """``d / (d + 2)`` with ``d = exp(2 |x|) - 1``, which is exact where ``x`` is small."""
    size = x.absolute().at_most(10.0)
    rest, exponent = _without_exponent(size + size)
    scale = _power_of_two(exponent)
    difference = _exp_minus_one(rest) * scale + (scale - 1.0)
    return _with_sign_of(difference / (difference + 2.0), x)


def erf(x: Value) -> Value:
    size = x.absolute().at_most(4.0)
    near = size + size * (size * size).polynomial(*_ERF_NEAR)
    rest, exponent = _without_exponent(-size.polynomial(*_ERF_FAR))
    far = 1.0 - (1.0 + _exp_minus_one(rest)) * _power_of_two(exponent)
    return _with_sign_of((size > 1.0).where(far, near), x)


def log(x: Value) -> Value:
    exponent, first, second = _log_parts(x)
    return _log_edges(x, exponent * _LN2_HIGH + (first + (second + exponent * _LN2_LOW)))


def log2(x: Value) -> Value:
    exponent, first, second = _log_parts(x)
    return _log_edges(x, exponent + (first + second) * _LOG2_E)


def log10(x: Value) -> Value:
    exponent, first, second = _log_parts(x)
    logarithm = (first + second) * math.log10(math.e)
    return _log_edges(x, exponent * _LOG10_2_HIGH + (logarithm + exponent * _LOG10_2_LOW))


def sin(x: Value) -> Value:
    # Rounding may take the sign of a zero.
    return x.equals(0.0).where(x, _circular(x, 0)).unless(x.absolute() > _FAR, "sin", x)


def cos(x: Value) -> Value:
    return _circular(x, 1).unless(x.absolute() > _FAR, "cos", x)


def nearbyint(x: Value) -> Value:
    """An instruction where there is one; for TVM it would be a call for each lane."""
    return x.rounded()


def rsqrt(x: Value) -> Value:
    return 1.0 / x.square_root()


def power(x: Value, y: Value) -> Value:
    """``2^(y log2 |x|)`` in double precision, then the sign and what has no logarithm."""
    size = x.absolute()
    # With a finite exponent the logarithm 0 of 1 gives 0, as it should.
    exponent = y.at_least(-_LARGEST).at_most(_LARGEST).widened()
    result = _exp2_double(_log2_double(size) * exponent).narrowed()
    # From 2^24 on every number is even.
    limited = y.clamped(-(2.0**24), 2.0**24)
    rounded = limited.truncated()
    whole = rounded.converted().equals(limited)
    sign = whole.where((rounded << 31) & x.bits(), 0)
    result = (result.bits() | sign).as_float()
    root_of_negative = (x < 0.0) & (size < _INFINITY)
    result = root_of_negative.where(whole.where(result, math.nan), result)
    return (x.equals(1.0) | y.equals(0.0)).where(1.0, result)


#: Powers with one of these exponents, in quarters, are :func:`power_by_roots`: those without an
#: intermediate result that overflows or underflows where the power itself does not.
QUARTERS = frozenset([-8, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16])


def power_by_roots(quarters: int) -> Callable[[Value], Value]:
    """``x`` to a power of :data:`QUARTERS` by products, square roots and a quotient."""
    whole, roots = divmod(abs(quarters), 4)

    def function(x: Value) -> Value:
        if not roots:
            return _product(1.0 / x if quarters < 0 else x, whole)
        # A power that is no integer is never negative: not of -0, not of -infinity.
        base = x.equals(-_INFINITY).where(_INFINITY, x + 0.0)
        root = base.square_root()
        fourth = root.square_root()
        result = (fourth, root, root * fourth)[roots - 1]
        if whole:
            result = base * result
        return 1.0 / result if quarters < 0 else result

    return function


def _product(x: Value, factors: int) -> Value:
    if factors == 1:
        return x
    square = x * x
    return {2: square, 3: square * x, 4: square * square}[factors]


def _circular(x: Value, quarters: int) -> Value:
    """The sine of ``x`` and some quarter turns, by what is left of ``x`` after whole ones."""
    magic = x * (2 / math.pi) + _ROUND
    number = (magic - _ROUND).widened()
    rest = (x.widened() - number * _HALF_PI_HIGH - number * _HALF_PI_LOW).narrowed()
    square = rest * rest
    sine = rest + rest * square * square.polynomial(*_SIN)
    cosine = 1.0 - square * 0.5 + square * square * square.polynomial(*_COS)
    quadrant = _integer(magic) + quarters
    chosen = (quadrant & 1).equals(1).where(cosine, sine)
    return (chosen.bits() ^ ((quadrant & 2) << 30)).as_float()


def _without_exponent(x: Value) -> tuple[Value, Value]:
    """``r`` and the integer ``n`` of ``x = r + n ln 2`` with ``r`` around zero."""
    magic = x * _LOG2_E + _ROUND
    number = magic - _ROUND
    rest = x - number * _LN2_HIGH - number * _LN2_LOW
    return rest, _integer(magic)


def _integer(magic: Value) -> Value:
    """The integer in the low bits of a number that :data:`_ROUND` was added to."""
    return magic.bits() - int(np.float32(_ROUND).view(np.int32))


def _exp_minus_one(rest: Value) -> Value:
    return rest * rest * rest.polynomial(*_EXP) + rest


def _power_of_two(exponent: Value) -> Value:
    return ((exponent + 127) << 23).as_float()


def _scaled(value: Value, exponent: Value) -> Value:
    """``value * 2^exponent`` in two steps: 2^128 is no float, and neither is 2^-150."""
    half = exponent >> 1
    return value * _power_of_two(half) * _power_of_two(exponent - half)


def _with_sign_of(size: Value, x: Value) -> Value:
    return (size.bits() | (x.bits() & -(2**31))).as_float()


def _log_parts(x: Value) -> tuple[Value, Value, Value]:
    """``e``, ``a`` and ``b`` of ``log(x) = e ln 2 + a + b``, the small part ``b`` apart."""
    subnormal = x < 2.0**-126
    bits = subnormal.where(x * 2.0**23, x).bits()
    exponent = (bits - int(np.float32(math.sqrt(0.5)).view(np.int32))) >> 23
    first = (bits - (exponent << 23)).as_float() - 1.0
    square = first * first
    second = square * first * first.polynomial(*_LOG) - square * 0.5
    return exponent.converted() - subnormal.where(x.number(23.0), 0.0), first, second


def _log_edges(x: Value, result: Value) -> Value:
    result = (x < _INFINITY).where(result, x)
    result = x.equals(0.0).where(-_INFINITY, result)
    return (x < 0.0).where(math.nan, result)


def _log2_double(size: Value) -> Value:
    """The logarithm of a float32 that is not negative, in double precision."""
    wide = size.widened()
    bits, one, half_root = wide.bits(), _double_bits(1.0), _double_bits(math.sqrt(0.5))
    biased = (bits + (one - half_root)).logical_shift(52)
    exponent = (biased | _double_bits(2.0**52)).as_float() - (2.0**52 + 1023)
    mantissa = (bits - (biased << 52) + one).as_float()
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    result = ratio * (ratio * ratio).polynomial(*_LOG2_DOUBLE) + exponent
    result = (size < _INFINITY).where(result, wide)
    return size.equals(0.0).where(-_INFINITY, result)


def _exp2_double(x: Value) -> Value:
    inside = x.at_least(-200.0).at_most(200.0)
    magic = inside + _ROUND_DOUBLE
    rest = inside - (magic - _ROUND_DOUBLE)
    exponent = (magic.bits() + 1023) << 52
    return rest.polynomial(*_EXP2_DOUBLE) * exponent.as_float()


def _double_bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))
