"""Operators whose kernels are worth watching, each with a reference in numpy.

The shapes are those of well-known networks: what the templates were designed for, and what they
find hard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from tvm import relax

from bench import numpy_operators as ref

Array = npt.NDArray[Any]
Unit = Literal["GFLOP/s", "GB/s", "Gelem/s"]

_OP = relax.op
_LAYOUTS = {"data_layout": "NHWC", "kernel_layout": "OHWI"}


@dataclass(frozen=True)
class Problem:
    """An operator on inputs.

    Attributes
    ----------
    build : callable
        From Relax variables for ``inputs`` to the expression.
    inputs : tuple of array
    reference : callable
        From ``inputs`` to the result, in float64.
    amount : float
        Useful operations or elements of the result, whatever algorithm is used.
    """

    build: Callable[..., Any]
    inputs: tuple[Array, ...]
    reference: Callable[..., Array]
    amount: float


@dataclass(frozen=True)
class KernelCase:
    """A row of a table; ``make`` allocates what it takes, ``winograd`` allows that algorithm."""

    table: str
    name: str
    unit: Unit
    make: Callable[[], Problem]
    winograd: bool = False


def kernel_cases() -> tuple[KernelCase, ...]:
    """All cases, table by table."""
    return (
        *_convolutions(),
        *_grouped(),
        *_winograd(),
        *_products(),
        *_depthwise(),
        *_pooling(),
        *_elementwise(),
        *_rows(),
    )


def _convolutions() -> Iterator[KernelCase]:
    shapes = [
        (1, 1, 64, 64, 56),
        (3, 1, 64, 64, 56),
        (3, 1, 128, 128, 28),
        (3, 1, 256, 256, 14),
        (3, 1, 512, 512, 7),
        (1, 1, 256, 1024, 14),
        (1, 1, 1024, 256, 14),
        (1, 1, 2048, 512, 7),
        (7, 2, 3, 64, 224),
        (3, 2, 128, 128, 56),
        (5, 1, 32, 96, 14),
        (5, 1, 16, 32, 28),
        (1, 2, 256, 512, 56),
        (11, 4, 3, 96, 227),
        (3, 2, 3, 64, 224),
        *((3, 1, 64, 64, width) for width in (13, 17, 27, 55)),
        (1, 1, 512, 1000, 13),
    ]
    for shape in shapes:
        yield KernelCase("convolution", _label(*shape), "GFLOP/s", partial(_convolution, *shape))


def _winograd() -> Iterator[KernelCase]:
    squares = ((64, 56), (128, 28), (256, 14), (512, 7))
    short = [(3, 1, channels, channels, size) for channels, size in squares]
    for shape in (*short, (5, 1, 16, 32, 28), (5, 1, 32, 96, 14), (7, 1, 64, 64, 28)):
        make = partial(_convolution, *shape)
        yield KernelCase("winograd (useful)", _label(*shape), "GFLOP/s", make, winograd=True)
    make = partial(_convolution, 5, 1, 96, 256, 27, groups=2)
    yield KernelCase("winograd (useful)", "5x5 2 groups 96-256@27", "GFLOP/s", make, winograd=True)
    yield from _of_32_groups("winograd (useful)", (8, 16, 32), winograd=True)


def _grouped() -> Iterator[KernelCase]:
    yield from _of_32_groups("grouped convolution", (4, 8, 16, 32), winograd=False)


def _of_32_groups(table: str, sizes: tuple[int, ...], winograd: bool) -> Iterator[KernelCase]:
    for per_group in sizes:
        channels = 32 * per_group
        make = partial(_convolution, 3, 1, channels, channels, 14, groups=32)
        yield KernelCase(table, f"3x3 32 groups of {per_group} @14", "GFLOP/s", make, winograd)


def _depthwise() -> Iterator[KernelCase]:
    shapes = [
        (3, 1, 32, 112),
        (3, 2, 96, 112),
        (3, 1, 144, 56),
        (3, 1, 384, 14),
        (3, 1, 960, 7),
        (5, 1, 240, 28),
        (5, 2, 672, 14),
    ]
    for kernel, stride, channels, size in shapes:
        make = partial(_convolution, kernel, stride, channels, channels, size, groups=channels)
        name = f"{kernel}x{kernel}s{stride} {channels}@{size}"
        yield KernelCase("depthwise convolution", name, "GFLOP/s", make)


def _label(kernel: int, stride: int, inputs: int, outputs: int, size: int) -> str:
    step = f"s{stride}" if stride > 1 else ""
    return f"{kernel}x{kernel}{step} {inputs}-{outputs}@{size}"


def _convolution(
    kernel: int, stride: int, inputs: int, outputs: int, size: int, groups: int = 1
) -> Problem:
    """A convolution with bias and relu; padded to keep the size, but for large strides."""
    padding = 0 if stride == 4 else kernel // 2
    x = _normal((1, size, size, inputs))
    weight = _normal((outputs, kernel, kernel, inputs // groups))
    weight /= np.float32(prod(weight.shape[1:]) ** 0.5)
    bias = _normal((outputs,))
    places = ((size + 2 * padding - kernel) // stride + 1) ** 2

    def build(data: Any) -> Any:
        options = {"strides": stride, "padding": padding, "groups": groups, **_LAYOUTS}
        return _OP.nn.relu(
            _OP.add(_OP.nn.conv2d(data, _constant(weight), **options), _constant(bias))
        )

    def reference(data: Array) -> Array:
        return np.maximum(ref.convolution(data, weight, stride, padding, groups) + bias, 0)

    return Problem(build, (x,), reference, 2.0 * places * weight.size)


def _products() -> Iterator[KernelCase]:
    shapes = [
        (16, 768, 768),
        (32, 768, 768),
        (64, 768, 768),
        (128, 768, 768),
        (128, 3072, 768),
        (128, 768, 3072),
        (128, 1024, 1024),
        (64, 1024, 4096),
    ]
    for rows, columns, depth in shapes:
        name = f"{rows}x{columns}x{depth}"
        yield KernelCase(
            "matmul (M x N x K)", name, "GFLOP/s", partial(_dense, rows, columns, depth)
        )
    for depth, columns in ((256, 1024), (1024, 1024), (2048, 1000), (4096, 4096)):
        make = partial(_dense, 1, columns, depth)
        yield KernelCase("matrix x vector", f"{depth} -> {columns}", "GB/s", make)
    make = partial(_convolution, 1, 1, 1024, 1000, 1)
    yield KernelCase("matrix x vector", "1x1 1024-1000@1", "GB/s", make)
    make = partial(_batch, 12, 1, 1025, 64, True)
    yield KernelCase("matrix x vector", "12 queries of 64 x 1025 keys", "GB/s", make)
    for name, sizes, transposed in (
        ("12x128x64x128 NN", (12, 128, 64, 128), False),
        ("12x128x128x64 NN", (12, 128, 128, 64), False),
        ("12x128x128x64 NT", (12, 128, 128, 64), True),
    ):
        yield KernelCase("batch matmul", name, "GFLOP/s", partial(_batch, *sizes, transposed))


def _dense(rows: int, columns: int, depth: int) -> Problem:
    x, weight = _normal((rows, depth)), _normal((depth, columns))
    weight /= np.float32(depth**0.5)
    return Problem(
        lambda data: _OP.matmul(data, _constant(weight)),
        (x,),
        lambda data: data.astype(np.float64) @ weight,
        2.0 * rows * columns * depth,
    )


def _batch(batch: int, rows: int, columns: int, depth: int, transposed: bool) -> Problem:
    x = _normal((batch, rows, depth))
    y = _normal((batch, columns, depth) if transposed else (batch, depth, columns))

    def build(a: Any, b: Any) -> Any:
        return _OP.matmul(a, _OP.permute_dims(b, [0, 2, 1]) if transposed else b)

    def reference(a: Array, b: Array) -> Array:
        return a.astype(np.float64) @ (b.transpose(0, 2, 1) if transposed else b)

    return Problem(build, (x, y), reference, 2.0 * batch * rows * columns * depth)


def _pooling() -> Iterator[KernelCase]:
    options = [
        ("max 3x3s2 64@112", _OP.nn.max_pool2d, ref.max_pool, 64, 112, 2),
        ("max 3x3s1 192@28", _OP.nn.max_pool2d, ref.max_pool, 192, 28, 1),
        ("average 3x3s1 64@56", _OP.nn.avg_pool2d, ref.average_pool, 64, 56, 1),
    ]
    for name, operator, reference, channels, size, stride in options:
        make = partial(_pool, operator, reference, channels, size, stride)
        yield KernelCase("pooling", name, "GB/s", make)
    yield KernelCase("pooling", "global average 832@7", "GB/s", _global_average)


def _pool(operator: Any, reference: Any, channels: int, size: int, stride: int) -> Problem:
    x = _normal((1, size, size, channels))
    options = {"pool_size": 3, "strides": stride, "padding": 1, "layout": "NHWC"}
    outputs = ((size - 1) // stride + 1) ** 2 * channels
    return Problem(
        lambda data: operator(data, **options), (x,), partial(reference, stride=stride), outputs
    )


def _global_average() -> Problem:
    x = _normal((1, 7, 7, 832))
    return Problem(
        lambda data: _OP.mean(data, [1, 2]), (x,), lambda data: data.mean((1, 2), np.float64), 832
    )


def _elementwise() -> Iterator[KernelCase]:
    def power(data: Any) -> Any:
        return _OP.power(data, relax.const(0.75, "float32"))

    cases: list[tuple[str, Callable[[], Problem]]] = [
        ("add", partial(_binary, _OP.add, np.add)),
        ("divide", partial(_binary, _OP.divide, np.divide)),
        ("relu", partial(_unary, _OP.nn.relu, lambda x: np.maximum(x, 0))),
        ("sqrt", partial(_unary, _OP.sqrt, np.sqrt, positive=True)),
        ("rsqrt", partial(_unary, _OP.rsqrt, lambda x: 1 / np.sqrt(x), positive=True)),
        ("exp", partial(_unary, _OP.exp, np.exp)),
        ("sigmoid", partial(_unary, _OP.sigmoid, lambda x: 1 / (1 + np.exp(-x)))),
        ("tanh", partial(_unary, _OP.tanh, np.tanh)),
        ("erf", partial(_unary, _OP.erf, ref.erf)),
        ("gelu", partial(_unary, _OP.nn.gelu, lambda x: x * (1 + ref.erf(x / 2**0.5)) / 2)),
        ("log", partial(_unary, _OP.log, np.log, positive=True)),
        ("power 0.75", partial(_unary, power, lambda x: x**0.75, positive=True)),
    ]
    for name, make in cases:
        yield KernelCase("element-wise, 65536", name, "Gelem/s", make)


def _unary(operator: Any, reference: Any, positive: bool = False) -> Problem:
    x = _normal((65536,))
    x = np.abs(x) + np.float32(0.01) if positive else x
    return Problem(operator, (x,), lambda data: reference(data.astype(np.float64)), x.size)


def _binary(operator: Any, reference: Any) -> Problem:
    x, y = _normal((65536,)), np.abs(_normal((65536,), 1)) + np.float32(0.1)
    return Problem(operator, (x, y), lambda a, b: reference(a.astype(np.float64), b), x.size)


def _rows() -> Iterator[KernelCase]:
    for table, make in (("softmax", _softmax), ("layer norm", _layer_norm)):
        for shape in ((1536, 128), (128, 768)):
            name = f"{shape[0]}x{shape[1]}"
            yield KernelCase(table, name, "Gelem/s", partial(make, shape))


def _softmax(shape: tuple[int, int]) -> Problem:
    x = _normal(shape)
    return Problem(lambda data: _OP.nn.softmax(data, -1), (x,), ref.softmax, x.size)


def _layer_norm(shape: tuple[int, int]) -> Problem:
    x, scale, shift = _normal(shape), _normal(shape[1:], 1), _normal(shape[1:], 2)

    def build(data: Any) -> Any:
        return _OP.nn.layer_norm(data, _constant(scale), _constant(shift), axes=[-1])

    return Problem(build, (x,), lambda data: ref.layer_norm(data) * scale + shift, x.size)


def _normal(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def _constant(array: Array) -> Any:
    return relax.const(array, str(array.dtype))
