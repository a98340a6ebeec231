"""A decoder of ONNX with random weights, as ONNX Runtime's exporters write it, for some tokens.

Its keys and values are buffers of a fixed length (GroupQueryAttention of com.microsoft): what goes
in as ``past`` comes out as ``present`` with one more row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

_FLOAT, _INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32


@dataclass(frozen=True)
class DecoderSizes:
    """Of a decoder: places of its buffers, heads, heads of keys and values, and tokens of a run.

    Weights have so many ``bits``: of 4 or 8, neighbours of a column in blocks have a scale each.
    """

    places: int
    groups: int
    layers: int = 4
    heads: int = 8
    head_size: int = 64
    bits: int = 32
    block: int = 32
    tokens: int = 1

    @property
    def inner(self) -> int:
        """Elements between the products of a gated network."""
        return 3 * self.width

    @property
    def width(self) -> int:
        """Elements of a token."""
        return self.heads * self.head_size

    @property
    def data(self) -> list[int]:
        """The shape of the tokens."""
        return [1, self.tokens, self.width]

    @property
    def cache(self) -> list[int]:
        """The shape of the keys of a layer."""
        return [1, self.groups, self.places, self.head_size]

    def states(self) -> dict[str, str]:
        """What goes out by what goes in."""
        names = [f"{layer}.{kind}" for layer in range(self.layers) for kind in ("key", "value")]
        return {f"past.{name}": f"present.{name}" for name in names}

    def inputs(self) -> dict[str, np.ndarray]:
        """Tokens that begin in the middle of buffers of zeros."""
        caches = {name: np.zeros(self.cache, np.float32) for name in self.states()}
        token = np.random.default_rng(0).standard_normal(self.data).astype(np.float32)
        last = self.places // 2 + self.tokens - 1
        return {"token": token, "before": np.array([last], np.int32), **caches}


def decoder(sizes: DecoderSizes, rounds_data: bool = False) -> onnx.ModelProto:
    """The model; where weights are of a few bits, ONNX Runtime may round what they multiply."""
    graph = _Graph(sizes, rounds_data)
    token = "token"
    for layer in range(sizes.layers):
        token = graph.layer(f"{layer}", token)
    graph.add("Identity", [token], "result")
    inputs = {"token": (_FLOAT, sizes.data), "before": (_INT32, [1])}
    outputs = {"result": (_FLOAT, sizes.data)}
    for given, left in sizes.states().items():
        inputs[given] = outputs[left] = (_FLOAT, sizes.cache)
    made = helper.make_graph(
        graph.nodes,
        "decoder",
        [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
        [helper.make_tensor_value_info(name, *spec) for name, spec in outputs.items()],
        graph.weights,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=8)


@dataclass
class _Graph:
    sizes: DecoderSizes
    rounds_data: bool
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    generator: Any = field(default_factory=lambda: np.random.default_rng(1))

    def __post_init__(self) -> None:
        angles = np.arange(self.sizes.places)[:, None] / (1 + np.arange(self.sizes.head_size // 2))
        self.constant("cos", np.cos(angles))
        self.constant("sin", np.sin(angles))
        self.constant("scale", np.ones(self.sizes.width))
        self.constant("places", np.array(self.sizes.places), np.int32)

    def constant(self, name: str, value: np.ndarray, dtype: Any = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(value.astype(dtype), name))
        return name

    def add(self, kind: str, operands: list[str], result: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, operands, [result], result, **attributes))
        return result

    def product(self, name: str, data: str, rows: int, columns: int) -> str:
        if self.sizes.bits < 32:
            return self.product_of_few_bits(name, data, rows, columns)
        weight = self.generator.standard_normal((rows, columns)) / np.sqrt(rows)
        return self.add("MatMul", [data, self.constant(f"{name}.weight", weight)], name)

    def product_of_few_bits(self, name: str, data: str, rows: int, columns: int) -> str:
        bits, block = self.sizes.bits, self.sizes.block
        shape = (columns, rows // block, block * bits // 8)
        words = self.generator.integers(0, 256, shape, dtype=np.uint8)
        scale = self.generator.uniform(0.5, 1.5, shape[:2]) / np.sqrt(rows) / (1 << (bits - 2))
        parts = [
            self.constant(f"{name}.words", words, np.uint8),
            self.constant(f"{name}.scale", scale),
        ]
        node = helper.make_node(
            "MatMulNBits",
            [data, *parts],
            [name],
            name,
            domain="com.microsoft",
            K=rows,
            N=columns,
            bits=bits,
            block_size=block,
            accuracy_level=4 if self.rounds_data else 0,
        )
        self.nodes.append(node)
        return name

    def normed(self, name: str, data: str) -> str:
        return self.add("SimplifiedLayerNormalization", [data, "scale"], name, epsilon=1e-5)

    def layer(self, name: str, token: str) -> str:
        """An attention, and a gated network behind it; the token after both."""
        sizes, size = self.sizes, self.sizes.head_size
        data = self.normed(f"{name}.norm", token)
        widths = {"q": sizes.width, "k": sizes.groups * size, "v": sizes.groups * size}
        parts = [self.product(f"{name}.{k}", data, sizes.width, n) for k, n in widths.items()]
        kept = [f"{name}.key", f"{name}.value"]
        before = [*(f"past.{each}" for each in kept), "before", "places", "cos", "sin"]
        results = [f"{name}.attended", *(f"present.{each}" for each in kept)]
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [*parts, *before],
                results,
                results[0],
                domain="com.microsoft",
                num_heads=sizes.heads,
                kv_num_heads=sizes.groups,
                do_rotary=1,
            )
        )
        out = self.product(f"{name}.out", results[0], sizes.width, sizes.width)
        token = self.add("Add", [token, out], f"{name}.sum")
        data = self.normed(f"{name}.norm2", token)
        gate = self.product(f"{name}.gate", data, sizes.width, sizes.inner)
        opened = self.add("Sigmoid", [gate], f"{name}.opened")
        gate = self.add("Mul", [gate, opened], f"{name}.silu")
        up = self.product(f"{name}.up", data, sizes.width, sizes.inner)
        both = self.add("Mul", [gate, up], f"{name}.both")
        down = self.product(f"{name}.down", both, sizes.inner, sizes.width)
        return self.add("Add", [token, down], f"{name}.token")
