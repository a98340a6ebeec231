"""ONNX models of single operators, in the shapes that detectors, U-Nets, vocoders and speech models
have them.

What no template takes well shows here first: every row is a few nodes on one input, so its time is
that of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import onnx

from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.models.layers import gelu

Shape = tuple[int, ...]
#: From a graph and the names of its inputs to the name of the result.
Body = Callable[..., str]


@dataclass(frozen=True)
class OperatorModel:
    """A row of a table; ``make`` builds the model."""

    table: str
    name: str
    make: Callable[[], onnx.ModelProto]


def operator_models() -> Iterator[OperatorModel]:
    """All models, table by table."""
    for table, rows in _TABLES.items():
        for name, (shapes, body) in rows.items():
            yield OperatorModel(table, name, partial(_model, name, shapes, body))


def _model(name: str, shapes: Sequence[Shape], body: Body) -> onnx.ModelProto:
    g = GraphBuilder(name)
    inputs = [g.input(f"x{number}", shape) for number, shape in enumerate(shapes)]
    g.output("out", body(g, *inputs))
    return g.build()


def conv(g: GraphBuilder, x: str, channels: int, kernel: Shape, **attributes: Any) -> str:
    """A convolution of any rank with bias; the attributes are ONNX's."""
    inner = g.shape(x)[1] // attributes.get("group", 1)
    weight = g.weight((channels, inner, *kernel), (inner * prod(kernel)) ** -0.5)
    return g.op("Conv", x, weight, g.weight((channels,), 0.05), **attributes)


def conv_transpose(g: GraphBuilder, x: str, channels: int, kernel: Shape, **attributes: Any) -> str:
    """A transposed convolution of any rank with bias; the attributes are ONNX's."""
    inner, group = g.shape(x)[1], attributes.get("group", 1)
    taps = prod(kernel) / prod(attributes.get("strides", [1]))
    weight = g.weight((inner, channels // group, *kernel), (inner / group * taps) ** -0.5)
    return g.op("ConvTranspose", x, weight, g.weight((channels,), 0.05), **attributes)


def max_pools(g: GraphBuilder, x: str, sizes: Sequence[int]) -> str:
    """Maxima over windows of several sizes at stride 1, side by side, as detectors have them."""
    pools = [
        g.op("MaxPool", x, kernel_shape=[k, k], strides=[1, 1], pads=[k // 2] * 4) for k in sizes
    ]
    return g.op("Concat", x, *pools, axis=1)


def resize(g: GraphBuilder, x: str, scale: float, **attributes: Any) -> str:
    """An image at another size."""
    return g.op("Resize", x, "", g.constant([1, 1, scale, scale]), **attributes)


def instance_norm(g: GraphBuilder, x: str) -> str:
    """Normalisation of each channel by itself."""
    channels = (g.shape(x)[1],)
    scale, shift = g.uniform(channels, 0.8, 1.2), g.weight(channels, 0.05)
    return g.op("InstanceNormalization", x, scale, shift)


def group_norm(g: GraphBuilder, x: str, groups: int) -> str:
    """Normalisation of groups of channels, as PyTorch exports it."""
    channels = g.shape(x)[1]
    grouped = g.op("Reshape", x, g.constant([0, groups, -1], "int64"))
    ones, zeros = g.constant([1.0] * groups), g.constant([0.0] * groups)
    normal = g.op("InstanceNormalization", grouped, ones, zeros)
    back = g.op("Reshape", normal, g.constant(g.shape(x), "int64"))
    scaled = g.op("Mul", back, g.uniform((channels, 1, 1), 0.8, 1.2))
    return g.op("Add", scaled, g.weight((channels, 1, 1), 0.05))


def layer_norm(g: GraphBuilder, x: str) -> str:
    """Normalisation over the last axis."""
    features = (g.shape(x)[-1],)
    scale, shift = g.uniform(features, 0.8, 1.2), g.weight(features, 0.05)
    return g.op("LayerNormalization", x, scale, shift, axis=-1)


def attention(g: GraphBuilder, q: str, k: str, v: str) -> str:
    """Softmax of products of queries and keys, times values."""
    products = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    scaled = g.op("Mul", products, g.constant(g.shape(q)[-1] ** -0.5))
    return g.op("MatMul", g.op("Softmax", scaled, axis=-1), v)


def apply(g: GraphBuilder, x: str, op: str, **attributes: Any) -> str:
    """One node on one value."""
    return g.op(op, x, **attributes)


def _same(*kernel: int) -> list[int]:
    """Pads that keep the size at stride 1."""
    return [k // 2 for k in kernel] * 2


def _rows(
    body: Callable[..., str], *rows: tuple[str, Shape, dict[str, Any]]
) -> dict[str, tuple[list[Shape], Body]]:
    return {name: ([shape], partial(body, **options)) for name, shape, options in rows}


def _attentions(*rows: tuple[str, Shape, int]) -> dict[str, tuple[list[Shape], Body]]:
    """By name, the shape of the queries and the number of keys."""
    found: dict[str, tuple[list[Shape], Body]] = {}
    for name, queries, keys in rows:
        held = (*queries[:2], keys, queries[3])
        found[name] = ([queries, held, held], attention)
    return found


_TABLES: dict[str, dict[str, tuple[list[Shape], Body]]] = {
    "transposed convolution": _rows(
        conv_transpose,
        *(
            (name, shape, {"channels": channels, "kernel": kernel, **options})
            for name, shape, channels, kernel, options in (
                ("2x2s2 128-64@28", (1, 128, 28, 28), 64, (2, 2), {"strides": [2, 2]}),
                ("2x2s2 64-1@80", (1, 64, 80, 80), 1, (2, 2), {"strides": [2, 2]}),
                (
                    "3x3s2 64-32@56",
                    (1, 64, 56, 56),
                    32,
                    (3, 3),
                    {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]},
                ),
                (
                    "4x4s2 256-128@16",
                    (1, 256, 16, 16),
                    128,
                    (4, 4),
                    {"strides": [2, 2], "pads": [1] * 4},
                ),
                ("4x4s2 64-3@64", (1, 64, 64, 64), 3, (4, 4), {"strides": [2, 2], "pads": [1] * 4}),
                (
                    "4x4s2 21 groups @32",
                    (1, 21, 32, 32),
                    21,
                    (4, 4),
                    {"strides": [2, 2], "group": 21},
                ),
                (
                    "3x3s2 4 groups 64-64@28",
                    (1, 64, 28, 28),
                    64,
                    (3, 3),
                    {"strides": [2, 2], "group": 4, "pads": [1] * 4},
                ),
                (
                    "3x3 64-64@28",
                    (1, 64, 28, 28),
                    64,
                    (3, 3),
                    {"pads": [1] * 4},
                ),
                ("16s8 256-128@100", (1, 256, 100), 128, (16,), {"strides": [8], "pads": [4, 4]}),
                ("4s2 64-32@3200", (1, 64, 3200), 32, (4,), {"strides": [2], "pads": [1, 1]}),
                ("7s4 48-1@4000", (1, 48, 4000), 1, (7,), {"strides": [4]}),
            )
        ),
    ),
    "large pool": {
        "max 5 9 13 256@20": ([(1, 256, 20, 20)], partial(max_pools, sizes=(5, 9, 13))),
        "max 5 9 13 512@13": ([(1, 512, 13, 13)], partial(max_pools, sizes=(5, 9, 13))),
        "max 5 128@20": ([(1, 128, 20, 20)], partial(max_pools, sizes=(5,))),
        **_rows(
            apply,
            (
                "max 31 1@64",
                (1, 1, 64, 64),
                {"op": "MaxPool", "kernel_shape": [31, 31], "pads": [15] * 4},
            ),
            (
                "max 8s8 64@64",
                (1, 64, 64, 64),
                {"op": "MaxPool", "kernel_shape": [8, 8], "strides": [8, 8]},
            ),
            (
                "average 7s1 64@28",
                (1, 64, 28, 28),
                {"op": "AveragePool", "kernel_shape": [7, 7], "pads": [3] * 4},
            ),
            (
                "average 15s1 32@64",
                (1, 32, 64, 64),
                {
                    "op": "AveragePool",
                    "kernel_shape": [15, 15],
                    "pads": [7] * 4,
                    "count_include_pad": 1,
                },
            ),
            (
                "average 16s16 64@64",
                (1, 64, 64, 64),
                {"op": "AveragePool", "kernel_shape": [16, 16], "strides": [16, 16]},
            ),
            (
                "average 25s1 8@4000",
                (1, 8, 4000),
                {"op": "AveragePool", "kernel_shape": [25], "pads": [12, 12]},
            ),
        ),
    },
    "convolution": _rows(
        conv,
        *(
            (name, shape, {"channels": channels, "kernel": kernel, **options})
            for name, shape, channels, kernel, options in (
                ("10s5 1-512@16000", (1, 1, 16000), 512, (10,), {"strides": [5]}),
                ("3s2 512-512@3199", (1, 512, 3199), 512, (3,), {"strides": [2]}),
                (
                    "7d3 32-32@6400",
                    (1, 32, 6400),
                    32,
                    (7,),
                    {"dilations": [3], "pads": [9, 9]},
                ),
                ("7 32-1@16000", (1, 32, 16000), 1, (7,), {"pads": [3, 3]}),
                (
                    "15 256 groups @200",
                    (1, 256, 200),
                    256,
                    (15,),
                    {"pads": [7, 7], "group": 256},
                ),
                ("7x7s4 3-32@256", (1, 3, 256, 256), 32, (7, 7), {"strides": [4, 4]}),
                (
                    "3x3s2 96 groups @112",
                    (1, 96, 112, 112),
                    96,
                    (3, 3),
                    {"strides": [2, 2], "group": 96, "pads": [1] * 4},
                ),
                (
                    "7x7 96 groups @56",
                    (1, 96, 56, 56),
                    96,
                    (7, 7),
                    {"group": 96, "pads": [3] * 4},
                ),
                (
                    "3x3 32 groups of 4 @56",
                    (1, 128, 56, 56),
                    128,
                    (3, 3),
                    {"group": 32, "pads": [1] * 4},
                ),
                (
                    "3x3 24 groups of 2 @28",
                    (1, 48, 28, 28),
                    48,
                    (3, 3),
                    {"group": 24, "pads": [1] * 4},
                ),
                (
                    "1x9 64-64@8x128",
                    (1, 64, 8, 128),
                    64,
                    (1, 9),
                    {"pads": _same(1, 9)},
                ),
                ("1x1 256-64@1x7", (1, 256, 1, 7), 64, (1, 1), {}),
                ("1x1 960-240@1", (1, 960, 1, 1), 240, (1, 1), {}),
                ("3x3 64-3@128", (1, 64, 128, 128), 3, (3, 3), {"pads": [1] * 4}),
                ("3x3 1-16@256", (1, 1, 256, 256), 16, (3, 3), {"pads": [1] * 4}),
                (
                    "3x3d6 64-64@33",
                    (1, 64, 33, 33),
                    64,
                    (3, 3),
                    {"pads": [6] * 4, "dilations": [6, 6]},
                ),
                ("3x3x3 8-16@16", (1, 8, 16, 16, 16), 16, (3, 3, 3), {"pads": [1] * 6}),
            )
        ),
    ),
    "resize": _rows(
        resize,
        *(
            (name, shape, {"scale": scale, **options})
            for name, shape, scale, options in (
                (
                    "nearest x2 128@40",
                    (1, 128, 40, 40),
                    2.0,
                    {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
                    | {"nearest_mode": "floor"},
                ),
                (
                    "linear x2 64@56",
                    (1, 64, 56, 56),
                    2.0,
                    {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
                ),
                (
                    "linear corners x2 64@56",
                    (1, 64, 56, 56),
                    2.0,
                    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
                ),
                (
                    "linear x8 21@33",
                    (1, 21, 33, 33),
                    8.0,
                    {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
                ),
            )
        ),
    ),
    "normalisation": {
        **_rows(
            instance_norm,
            ("instance 64@64", (1, 64, 64, 64), {}),
            ("instance 512@3199", (1, 512, 3199), {}),
        ),
        **_rows(
            group_norm,
            ("32 groups 128@32", (1, 128, 32, 32), {"groups": 32}),
            ("1 group 64@56", (1, 64, 56, 56), {"groups": 1}),
        ),
        **_rows(
            layer_norm,
            ("layer 197x192", (1, 197, 192), {}),
            ("layer 3136x31", (1, 3136, 31), {}),
            ("layer 50x1023", (1, 50, 1023), {}),
        ),
    },
    "rows": {
        **_rows(gelu, ("gelu 197x3072", (1, 197, 3072), {})),
        **_rows(
            apply,
            ("softmax 3000x21", (1, 3000, 21), {"op": "Softmax", "axis": -1}),
            ("softmax of channels 19@64", (1, 19, 64, 64), {"op": "Softmax", "axis": 1}),
            ("softmax 8x8400x16", (1, 4, 8400, 16), {"op": "Softmax", "axis": -1}),
            ("log softmax 100x5000", (1, 100, 5000), {"op": "LogSoftmax", "axis": -1}),
        ),
    },
    "attention": _attentions(
        ("1 query of 64 x 512, 12 heads", (1, 12, 1, 64), 512),
        ("5 queries of 32 x 100, 8 heads", (1, 8, 5, 32), 100),
        ("49 x 49 of 32, 64 windows x 3", (64, 3, 49, 32), 49),
        ("197 x 197 of 64, 6 heads", (1, 6, 197, 64), 197),
    ),
}
