"""Elementary functions of float32 on vectors: as exact as libm's, at the edges too, and inlined."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.backend.cpu.codegen.vector_math import QUARTERS

HOST = resolve_target(None)
ON_X86 = HOST.attrs["mtriple"].startswith("x86_64") if "mtriple" in HOST.attrs else False
TARGETS: dict[str, Any] = {"host": HOST}
if ON_X86:
    TARGETS["avx2"] = resolve_target({"kind": "llvm", "mcpu": "core-avx2"})
    TARGETS["sse2"] = resolve_target({"kind": "llvm", "mcpu": "x86-64"})
NEON = resolve_target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"})


def libm(function: Callable[..., float]) -> Callable[..., Any]:
    return np.vectorize(function, otypes=[np.float64])


#: TVM's function, the same in double precision, and the error it may have, in ulp.
FUNCTIONS: dict[str, tuple[Any, Callable[..., Any], float]] = {
    "exp": (tirx.exp, np.exp, 1.1),
    "exp2": (tirx.exp2, np.exp2, 1.1),
    "sigmoid": (tirx.sigmoid, lambda x: np.exp(np.minimum(x, 0)) / (1 + np.exp(-abs(x))), 2.4),
    "tanh": (tirx.tanh, np.tanh, 2.6),
    "erf": (tirx.erf, libm(math.erf), 1.5),
    "log": (tirx.log, np.log, 0.9),
    "log2": (tirx.log2, np.log2, 1.8),
    "log10": (tirx.log10, np.log10, 1.9),
    "sin": (tirx.sin, np.sin, 1.6),
    "cos": (tirx.cos, np.cos, 1.6),
    "nearbyint": (tirx.nearbyint, np.rint, 0),
    "rsqrt": (tirx.rsqrt, lambda x: 1 / np.sqrt(x), 1.5),
}
TINY, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
SPECIAL = np.array(
    [
        *(0.0, 1.0, math.inf, math.nan, TINY, TINY / 2, 1e-45, LARGEST, 0.5, 2.0, 3.0, 1.5),
        *(88.72, 88.73, 89.1, 87.3, 87.4, 103.9, 104.1, 126.0, 127.99, 128.0, 149.0, 150.0, 151.0),
        *(2.0**22 + 0.5, 2.0**23 + 1, 2.0**24 - 1, 2.0**24, 2.0**24 + 2, 2.0**31, 1e30),
        *(1 - 2.0**-24, 1 + 2.0**-23, 3.9, 4.1, 9.0, 10.1, 1e-30),
    ],
    np.float32,
)
SPECIAL = np.concatenate([SPECIAL, -SPECIAL])


def compiled(function: Any, num_inputs: int, count: int, lanes: int, target: Any) -> Any:
    """A module whose ``main`` applies a function of TVM to arrays, ``lanes`` at a time."""
    inputs = [te.placeholder((count,), name=f"x{k}") for k in range(num_inputs)]
    output = te.compute((count,), lambda i: function(*(x[i] for x in inputs)), name="y")
    sch = Schedule(te.create_prim_func([*inputs, output]))
    if lanes > 1:
        (loop,) = sch.get_loops(sch.get_sblock("y"))
        sch.vectorize(sch.split(loop, [None, lanes])[1])
    func = sch.mod["main"].with_attrs({"global_symbol": "main", "s_tir": True})
    module = tvm.IRModule({"main": func})
    return tvm.tirx.build(module, target, pipeline=lowering_pipeline())


def evaluate(function: Any, arrays: list[np.ndarray], lanes: int, target: Any) -> np.ndarray:
    pad = -arrays[0].size % lanes
    padded = [np.pad(array, (0, pad), constant_values=1.0) for array in arrays]
    module = compiled(function, len(arrays), padded[0].size, lanes, target)
    result = tvm.runtime.tensor(np.zeros_like(padded[0]))
    module["main"](*map(tvm.runtime.tensor, padded), result)
    return result.numpy()[: arrays[0].size]


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distances in units of the last place of the wanted float32; infinite where the kind differs.

    A wanted value that float32 cannot hold is the infinity that it rounds to.
    """
    with np.errstate(over="ignore"):
        rounded = want.astype(np.float32)
    ordinary = np.isfinite(rounded) & np.isfinite(got)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    units = np.spacing(np.maximum(np.abs(np.where(ordinary, rounded, 1)), np.float32(TINY / 2**23)))
    distances = np.abs(np.where(ordinary, got.astype(np.float64) - want, 0.0)) / units
    return np.where(ordinary, distances, np.where(same, 0.0, np.inf))


def random_bits(count: int, seed: int = 0) -> np.ndarray:
    """Every kind of float32: about one in 256 is infinite, NaN or subnormal."""
    numbers = np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)
    return numbers.view(np.float32)


def between(low: float, high: float, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, count).astype(np.float32)


def assert_accurate(got: np.ndarray, want: np.ndarray, limit: float, arguments: Any) -> None:
    found = errors(got, want)
    worst = int(found.argmax())
    place = [float(argument[worst]) for argument in arguments]
    assert found[worst] <= limit, (place, got[worst], want[worst], found[worst])
    both = ~np.isnan(got)
    np.testing.assert_array_equal(np.signbit(got)[both], np.signbit(want)[both])


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors(name, target):
    """Of numbers of random bits, and of as many from where the function is not constant."""
    function, exact, limit = FUNCTIONS[name]
    count = 1 << (19 if target is HOST else 16)
    spread = between(-20, 20, count // 2), between(-1.6, 1.6, count // 2)
    x = np.concatenate([SPECIAL, random_bits(count), *spread])
    got = evaluate(function, [x], 16, target)
    with np.errstate(all="ignore"):
        assert_accurate(got, exact(x.astype(np.float64)), limit, [x])


def test_infinities_and_nan():
    x = np.array([-math.inf, math.inf, math.nan, 0.0, -0.0, -1.0], np.float32)
    nan, inf = math.nan, math.inf
    wanted = {
        "exp": [0, inf, nan, 1, 1, np.float32(math.exp(-1))],
        "sigmoid": [0, 1, nan, 0.5, 0.5, np.float32(1 / (1 + math.e))],
        "tanh": [-1, 1, nan, 0.0, -0.0, np.float32(math.tanh(-1))],
        "erf": [-1, 1, nan, 0.0, -0.0, np.float32(math.erf(-1))],
        "log": [nan, inf, nan, -inf, -inf, nan],
        "rsqrt": [nan, 0, nan, inf, -inf, nan],
    }
    for name, values in wanted.items():
        got = evaluate(FUNCTIONS[name][0], [x], 2, HOST)
        np.testing.assert_array_max_ulp(got[:5], np.array(values[:5], np.float32), 0)
        np.testing.assert_allclose(got[5], values[5], 1e-6)


def c_power(x: float, y: float) -> float:
    """``pow`` of the C standard, where Python raises an exception instead."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        if x == 0:
            return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
        return math.nan


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_powers(target):
    """Every pair of special numbers, random bits, and bases whose powers are finite."""
    first, second = (side.ravel() for side in np.meshgrid(SPECIAL, SPECIAL))
    count = 1 << 16
    integers = np.random.default_rng(0).integers(-20, 21, (2, count)).astype(np.float32)
    x = [first, random_bits(count), np.exp2(between(-126, 127, count)), between(0.5, 2, count)]
    y = [second, random_bits(count, 1), between(-3, 3, count, 1), between(-130, 130, count, 1)]
    base, exponent = np.concatenate([*x, integers[0]]), np.concatenate([*y, integers[1]])
    got = evaluate(tirx.pow, [base, exponent], 16, target)
    with np.errstate(all="ignore"):
        want = libm(c_power)(base.astype(np.float64), exponent.astype(np.float64))
        assert_accurate(got, want, 0.6, (base, exponent))


@pytest.mark.parametrize("quarters", sorted(QUARTERS))
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_powers_by_roots(quarters, target):
    """Constant exponents such as 2, 1/2 and 3/4 need no logarithm."""
    constant = tirx.const(quarters / 4, "float32")
    x = np.concatenate([SPECIAL, random_bits(1 << 12), between(0, 9, 1 << 12)])
    got = evaluate(lambda base: tirx.pow(base, constant), [x], 16, target)
    with np.errstate(all="ignore"):
        assert_accurate(got, libm(c_power)(x.astype(np.float64), quarters / 4), 3.8, [x])


APART = ("sin", "cos")


@pytest.mark.parametrize("name", APART)
def test_one_lane_far_from_zero_changes_no_other(name):
    function, exact, limit = FUNCTIONS[name]
    x = between(-9, 9, 64)
    alone = evaluate(function, [x], 16, HOST)
    x[[3, 40]] = 1e30, -3e6
    x[50] = np.nan
    got = evaluate(function, [x], 16, HOST)
    assert_accurate(got, exact(x.astype(np.float64)), limit, [x])
    others = ~np.isin(np.arange(64), [3, 40, 50])
    np.testing.assert_array_equal(got[others], alone[others])


@pytest.mark.parametrize("name", APART)
def test_around_all_quarter_turns(name):
    """Where a sine or a cosine is nearly zero, the last bits of pi decide."""
    function, exact, limit = FUNCTIONS[name]
    turns = (np.arange(-167000, 167001) * (math.pi / 2)).astype(np.float32)
    x = np.concatenate([turns, np.nextafter(turns, np.float32(0)), turns * np.float32(1.01)])
    got = evaluate(function, [x], 16, HOST)
    assert_accurate(got, exact(x.astype(np.float64)), limit, [x])


def every_function(x: Any) -> Any:
    return sum_of(FUNCTIONS, x)


def sum_of(names: Iterable[str], x: Any) -> Any:
    values = [FUNCTIONS[name][0](x) for name in names]
    return sum([*values[1:], tirx.pow(x, x)], values[0])


@pytest.mark.parametrize("lanes", [1, 2, 3, 12, 64])
def test_any_number_of_lanes(lanes):
    """Vectors that no register holds, and scalars, compute the same bits.

    But for sines and cosines of scalars, where LLVM puts products behind branches: not all fuse.
    """
    x = between(0.1, 4, 600)
    names = [name for name in FUNCTIONS if lanes > 1 or name not in APART]
    got, want = (evaluate(lambda x: sum_of(names, x), [x], count, HOST) for count in (lanes, 16))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", APART)
def test_sines_and_cosines_of_scalars(name):
    function, exact, limit = FUNCTIONS[name]
    x = np.concatenate([SPECIAL, random_bits(1 << 12), between(-20, 20, 1 << 12)])
    got = evaluate(function, [x], 1, HOST)
    with np.errstate(all="ignore"):
        assert_accurate(got, exact(x.astype(np.float64)), limit, [x])


@pytest.mark.parametrize("target", [*TARGETS.values(), NEON], ids=[*TARGETS, "neon"])
@pytest.mark.parametrize("lanes", [1, 16])
def test_nothing_is_called(target, lanes):
    """Neither libm nor our own functions: they are inlined, and multiply-adds need no library.

    Only sines and cosines of what is far from zero are called, for one lane after the other.
    """
    module = compiled(every_function, 1, 64, lanes, target)
    text = module.inspect_source("ll")
    assert "@rammer_" not in text
    assert sorted(re.findall(r"call float @llvm\.(sin|cos)\.f32", text)) == ["cos", "sin"]
    assert not re.search(r"@llvm\.(sin|cos)\.v", text)
    assert not re.search(r"@llvm\.(exp|log|pow|fma)", text)
    called = re.findall(r"\b(?:call|callq|jmp|bl)\s+(\w+)", module.inspect_source("s"))
    assert called
    assert not [name for name in called if re.search("exp|log|pow|tanh|erf|fma", name)]


@pytest.mark.skipif(not ON_X86, reason="needs an x86 CPU")
def test_multiply_adds_are_fused_where_the_target_has_them():
    fused = {
        name: "vfmadd" in compiled(tirx.exp, 1, 64, 4, TARGETS[name]).inspect_source("s")
        for name in ("avx2", "sse2")
    }
    assert fused == {"avx2": True, "sse2": False}


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types_stay_with_libm(dtype):
    x = te.placeholder((16,), dtype, name="x")
    func = te.create_prim_func([x, te.compute((16,), lambda i: tirx.exp(x[i]))])
    module = tvm.IRModule({"main": func.with_attrs({"global_symbol": "main", "s_tir": True})})
    text = tvm.tirx.build(module, HOST, pipeline=lowering_pipeline()).inspect_source("ll")
    assert re.search(r"@llvm\.exp\.", text)


def test_copies_of_an_expression_stay_calls():
    """TVM copies expressions and simplifies every copy: as arithmetic this would take minutes."""

    def nested(value):
        for _ in range(5):
            value = tirx.sigmoid(value) * tirx.tanh(value) + tirx.exp(value)
        return value

    alone, all_of_them = (
        compiled(function, 1, 64, 16, HOST).inspect_source("s").count("\n")
        for function in (tirx.exp, nested)
    )
    assert all_of_them < 4 * alone
