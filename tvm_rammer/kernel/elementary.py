"""Elementary functions of float32 as arithmetic that LLVM vectorises.

LLVM calls libm once per element for them, 2 to 6 ns each; the same polynomials that libm uses, on
whole vectors, take a tenth. Reductions of range and coefficients are those of the Cephes library
(Moshier, "Methods and Programs for Mathematical Functions", 1989); errors stay below 2e-7 relative
(``exp``, ``sigmoid``, ``tanh``), infinities and NaN come out as IEEE 754 has them, and results that
would be subnormal are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

_LOG2_E = 1.44269504088896341
# ln 2 in two parts, the first exact in few bits, so that x - n ln 2 loses nothing.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (
    *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
    *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)
_TANH = (
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)
#: exp overflows above, and is subnormal below.
_EXP_MAX, _EXP_MIN = 88.7228317, -87.3365448
#: Below it tanh is a polynomial, above it comes from exp.
_TANH_SPLIT = 0.625


def vectorisable(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A PrimFunc without ``exp``, ``sigmoid``, ``tanh`` and ``pow(x, 0.75)`` of float32."""

    def replace(call: Any) -> Any:
        rewrite = _REWRITES.get(getattr(call.op, "name", ""))
        if rewrite is None or str(call.ty) != "float32":
            return call
        rewritten = rewrite(*call.args)
        return call if rewritten is None else rewritten

    return tvm_ffi.structural_map(func, (tvm.ir.Call, replace))


def _number(value: float) -> Any:
    return tirx.const(value, "float32")


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Horner's scheme, the highest power first."""
    result = _number(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + _number(coefficient)
    return result


def _exp(x: Any) -> Any:
    # Comparisons with NaN are false, so it stays x here; a simplifier would not leave x != x alone.
    inside = tirx.Select(x > _number(_EXP_MAX), _number(_EXP_MAX), x)
    inside = tirx.Select(x < _number(_EXP_MIN), _number(_EXP_MIN), inside)
    power = tirx.floor(inside * _number(_LOG2_E) + _number(0.5))
    rest = inside - power * _number(_LN2_HIGH) - power * _number(_LN2_LOW)
    mantissa = _polynomial(rest, _EXP) * rest * rest + rest + _number(1.0)
    # No integer is NaN. 2^128 has no float of its own: half of the exponent first, then the rest.
    exponent = tirx.Select(power > _number(-256.0), power, _number(0.0)).astype("int32")
    half = exponent >> tirx.const(1, "int32")
    result = mantissa * _power_of_two(half) * _power_of_two(exponent - half)
    result = tirx.Select(x > _number(_EXP_MAX), tirx.const(float("inf"), "float32"), result)
    return tirx.Select(x < _number(_EXP_MIN), _number(0.0), result)


def _power_of_two(exponent: Any) -> Any:
    """``2**exponent`` from the bits of a float."""
    bits = (exponent + tirx.const(127, "int32")) << tirx.const(23, "int32")
    return tirx.reinterpret("float32", bits)


def _sigmoid(x: Any) -> Any:
    return _number(1.0) / (_number(1.0) + _exp(_number(0.0) - x))


def _tanh(x: Any) -> Any:
    square = x * x
    near = _polynomial(square, _TANH) * square * x + x
    size = tirx.Select(x < _number(0.0), _number(0.0) - x, x)
    far = _number(1.0) - _number(2.0) / (_exp(size + size) + _number(1.0))
    far = tirx.Select(x < _number(0.0), _number(0.0) - far, far)
    return tirx.Select(size < _number(_TANH_SPLIT), near, far)


def _pow(base: Any, exponent: Any) -> Any | None:
    """``pow(x, 3/4)``, which local response normalisation uses; other powers stay libm's."""
    if not isinstance(exponent, tirx.FloatImm) or float(exponent.value) != 0.75:
        return None
    root = tirx.sqrt(base)
    infinite = base < _number(-3.4028234e38)
    return tirx.Select(infinite, tirx.const(float("inf"), "float32"), root * tirx.sqrt(root))


_REWRITES: dict[str, Callable[..., Any]] = {
    "tirx.exp": _exp,
    "tirx.sigmoid": _sigmoid,
    "tirx.tanh": _tanh,
    "tirx.pow": _pow,
}
