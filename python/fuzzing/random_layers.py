"""Random ONNX models of layers that networks consist of, with sizes that nobody would choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
import onnx

from tvm_rammer.testing.models.builder import GraphBuilder

#: Primes and numbers beside powers of two: no multiples of vectors, tiles or warps.
_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 24, 31, 32, 33, 40, 64, 65)
_MOST_ELEMENTS = 20_000
#: Results that a layer may read; the newest are read more often.
_REACH = 6

Option = TypeVar("Option")
#: Adds a layer that reads a value; None if it does not take its shape.
Layer = Callable[["_Layers", str], str | None]


def random_layers(seed: int, layers: int = 12) -> onnx.ModelProto:
    """Make a model of layers that read images, sequences and rows.

    Parameters
    ----------
    seed : int
        The same seed gives the same model.
    layers : int
        How many there are, about: some consist of several operators.

    Returns
    -------
    model : onnx.ModelProto
        Its outputs are all results that nothing reads.
    """
    return _Layers(seed).write(layers)


class _Layers:
    """Writes a model, layer after layer."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = GraphBuilder(f"layers{seed}", seed)

    def write(self, layers: int) -> onnx.ModelProto:
        pick = self.pick
        height, width = pick(_SIZES[3:12]), pick(_SIZES[3:12])
        values = [
            self.graph.input("image", (pick((1, 1, 2)), pick(_SIZES[:14]), height, width)),
            self.graph.input("sequence", (pick((1, 2, 3)), pick(_SIZES[:12]), pick(_SIZES))),
            self.graph.input("rows", (pick(_SIZES[:10]), pick(_SIZES))),
        ]
        read: set[str] = set()
        kinds = [layer for layer, times in LAYERS.items() for _ in range(times)]
        made = 0
        while made < layers:
            before = self.pick(values if self.rng.random() < 0.3 else values[-_REACH:])
            result = self.pick(kinds)(self, before)
            if result is None:
                continue
            made += 1
            read.add(before)
            if prod(self.graph.shape(result)) <= _MOST_ELEMENTS:
                values.append(result)
        leaves = [value for value in values[3:] if value not in read]
        for number, value in enumerate(leaves):
            self.graph.output(f"result{number}", self.graph.op("Identity", value))
        return self.graph.build()

    def pick(self, options: Sequence[Option]) -> Option:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, part: float) -> bool:
        return bool(self.rng.random() < part)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.graph.op(kind, *inputs, **attributes)

    def weight(self, *shape: int, terms: int) -> str:
        return self.graph.weight(shape, 1.4 / terms**0.5)

    def numbers(self, *values: int) -> str:
        return self.graph.constant(list(values), "int64")

    def convolution(self, x: str) -> str | None:
        if not self._is_spatial(x):
            return None
        _, channels, *sizes = self.graph.shape(x)
        groups = self.pick([g for g in range(1, channels + 1) if channels % g == 0])
        if self.chance(0.4):
            groups = 1
        outputs = groups * self.pick((1, 1, 2, 3, 5)) if groups > 1 else self.pick(_SIZES[:16])
        kernel = [self.pick((1, 1, 2, 3, 3, 5)) for _ in sizes]
        dilations = [self.pick((1, 1, 1, 2)) for _ in sizes]
        extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        pads = [int(self.rng.integers(0, e)) for e in (*extents, *extents)]
        if any(
            size + before + after < e
            for size, before, after, e in zip(
                sizes, pads[: len(sizes)], pads[len(sizes) :], extents, strict=True
            )
        ):
            return None
        terms = channels // groups * prod(kernel)
        inputs = [x, self.weight(outputs, channels // groups, *kernel, terms=terms)]
        if self.chance(0.6):
            inputs.append(self.weight(outputs, terms=4))
        strides = [self.pick((1, 1, 1, 2, 3)) for _ in sizes]
        result = self.op(
            "Conv",
            *inputs,
            group=groups,
            kernel_shape=kernel,
            dilations=dilations,
            pads=pads,
            strides=strides,
        )
        return self.activation(result) if self.chance(0.5) else result

    def transposed_convolution(self, x: str) -> str | None:
        if not self._is_spatial(x):
            return None
        _, channels, *sizes = self.graph.shape(x)
        groups = self.pick([g for g in (1, 1, 2, channels) if channels % g == 0])
        outputs = self.pick((1, 2, 3, 5, 8, 12, 16))
        kernel = [self.pick((1, 2, 3, 4, 5)) for _ in sizes]
        strides = [self.pick((1, 2, 2, 3)) for _ in sizes]
        pads = [int(self.rng.integers(0, (k + 1) // 2)) for k in kernel] * 2
        extra = [int(self.rng.integers(0, s)) if self.chance(0.3) else 0 for s in strides]
        terms = channels // groups * max(1, prod(kernel) // prod(strides))
        whole = zip(sizes, strides, kernel, pads[: len(sizes)], strict=True)
        if any((n - 1) * s + k - 2 * p < 1 for n, s, k, p in whole):
            return None
        return self.op(
            "ConvTranspose",
            x,
            self.weight(channels, outputs, *kernel, terms=terms),
            group=groups,
            strides=strides,
            pads=pads,
            output_padding=extra,
        )

    def pooling(self, x: str) -> str | None:
        if not self._is_spatial(x):
            return None
        _, _, *sizes = self.graph.shape(x)
        kernel = [self.pick((1, 2, 3, 3)) for _ in sizes]
        if any(n < k for n, k in zip(sizes, kernel, strict=True)):
            return None
        pads = [int(self.rng.integers(0, (k + 1) // 2)) for k in kernel] * 2
        strides = [self.pick((1, 2, 2, 3)) for _ in sizes]
        kind = self.pick(("MaxPool", "AveragePool"))
        more = {"count_include_pad": self.pick((0, 1))} if kind == "AveragePool" else {}
        ceil = self.pick((0, 0, 1))
        return self.op(
            kind, x, kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=ceil, **more
        )

    def whole_pooling(self, x: str) -> str | None:
        if not self._is_spatial(x):
            return None
        return self.op(self.pick(("GlobalAveragePool", "GlobalMaxPool")), x)

    def normalisation(self, x: str) -> str | None:
        shape = self.graph.shape(x)
        if len(shape) < 2:
            return None
        if len(shape) == 4 and self.chance(0.7):
            c = shape[1]
            scale, bias = self.graph.uniform((c,), 0.5, 1.5), self.weight(c, terms=4)
            if self.chance(0.5) and prod(shape[2:]) > 3:
                return self.op("InstanceNormalization", x, scale, bias, epsilon=1e-3)
            mean, variance = self.weight(c, terms=4), self.graph.uniform((c,), 0.5, 2.0)
            return self.op("BatchNormalization", x, scale, bias, mean, variance)
        if shape[-1] < 4:
            return None
        scale, bias = self.graph.uniform(shape[-1:], 0.5, 1.5), self.weight(shape[-1], terms=4)
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-3)

    def product(self, x: str) -> str | None:
        shape = self.graph.shape(x)
        if len(shape) not in (2, 3):
            return None
        outputs, terms = self.pick(_SIZES), shape[-1]
        weight = self.weight(terms, outputs, terms=terms)
        if len(shape) == 2 and self.chance(0.5):
            flipped = self.weight(outputs, terms, terms=terms)
            return self.op("Gemm", x, flipped, self.weight(outputs, terms=4), transB=1)
        result = self.op("MatMul", x, weight)
        if self.chance(0.5):
            result = self.op("Add", result, self.weight(outputs, terms=4))
        return self.activation(result) if self.chance(0.4) else result

    def attention(self, x: str) -> str | None:
        shape = self.graph.shape(x)
        if len(shape) != 3 or shape[-1] < 2:
            return None
        batch, tokens, width = shape
        heads, each = self.pick((1, 2, 3)), self.pick((1, 3, 8, 16))
        parts = []
        for _ in range(3):
            part = self.op("MatMul", x, self.weight(width, heads * each, terms=width))
            split = self.op("Reshape", part, self.numbers(batch, tokens, heads, each))
            parts.append(self.op("Transpose", split, perm=[0, 2, 1, 3]))
        keys = self.op("Transpose", parts[1], perm=[0, 1, 3, 2])
        scores = self.op("Mul", self.op("MatMul", parts[0], keys), self.graph.constant(each**-0.5))
        seen = self.op("MatMul", self.op("Softmax", scores, axis=-1), parts[2])
        back = self.op("Transpose", seen, perm=[0, 2, 1, 3])
        return self.op("Reshape", back, self.numbers(batch, tokens, heads * each))

    def recurrent(self, x: str) -> str | None:
        shape = self.graph.shape(x)
        if len(shape) != 3 or shape[0] > 8:
            return None
        steps, batch, width = shape
        hidden, (kind, gates) = self.pick((1, 3, 8, 16)), self.pick((("LSTM", 4), ("GRU", 3)))
        way, count = self.pick((("forward", 1), ("bidirectional", 2), ("reverse", 1)))
        states = self.graph.ops(
            kind,
            [
                x,
                self.weight(count, gates * hidden, width, terms=width),
                self.weight(count, gates * hidden, hidden, terms=hidden),
                self.weight(count, 2 * gates * hidden, terms=4),
            ],
            2,
            hidden_size=hidden,
            direction=way,
            **({"linear_before_reset": self.pick((0, 1))} if kind == "GRU" else {}),
        )
        turned = self.op("Transpose", states[0], perm=[0, 2, 1, 3])
        return self.op("Reshape", turned, self.numbers(steps, batch, count * hidden))

    def softmax(self, x: str) -> str | None:
        axis = int(self.rng.integers(len(self.graph.shape(x))))
        return self.op(self.pick(("Softmax", "LogSoftmax")), x, axis=axis)

    def reduction(self, x: str) -> str | None:
        shape = self.graph.shape(x)
        axes = sorted(self.rng.permutation(len(shape))[: self.rng.integers(1, len(shape) + 1)])
        keep = self.pick((0, 1)) if len(axes) < len(shape) else 1
        kind = self.pick(("Mean", "Max", "Min", "L2", "LogSumExp", "Sum"))
        if kind == "Sum":
            few = self.graph.constant(1 / prod(shape[a] for a in axes) ** 0.5)
            return self.op("ReduceSum", self.op("Mul", x, few), self.numbers(*axes), keepdims=keep)
        return self.op(f"Reduce{kind}", x, axes=[int(a) for a in axes], keepdims=keep)

    def running_sum(self, x: str) -> str | None:
        axis = int(self.rng.integers(len(self.graph.shape(x))))
        sums = self.op(
            "CumSum",
            x,
            self.graph.constant(axis, "int64"),
            exclusive=self.pick((0, 1)),
            reverse=self.pick((0, 1)),
        )
        return self.op("Tanh", sums)

    def activation(self, x: str) -> str:
        kind = self.pick(
            ("Relu", "Tanh", "Sigmoid", "Elu", "HardSwish", "Softplus", "Erf", "LeakyRelu", "Silu")
        )
        return self.op("Mul", x, self.op("Sigmoid", x)) if kind == "Silu" else self.op(kind, x)

    def with_constant(self, x: str) -> str:
        shape = list(self.graph.shape(x))
        for axis in range(len(shape)):
            if self.chance(0.5):
                shape[axis] = 1
        start = int(self.rng.integers(len(shape) + 1))
        return self.op(self.pick(("Add", "Mul", "Sub")), x, self.weight(*shape[start:], terms=2))

    def joined(self, x: str) -> str:
        """Two ways from one value that meet again."""
        ways = [self.activation(x), self.with_constant(x)]
        if self.chance(0.5):
            return self.op(self.pick(("Add", "Mul", "Max", "Sub")), *ways)
        return self.op("Concat", *ways, axis=int(self.rng.integers(len(self.graph.shape(x)))))

    def gated(self, x: str) -> str | None:
        shape = self.graph.shape(x)
        axes = [axis for axis, extent in enumerate(shape) if extent > 1]
        if not axes:
            return None
        axis = self.pick(axes)
        first = int(self.rng.integers(1, shape[axis]))
        sizes = self.numbers(first, shape[axis] - first)
        a, b = self.graph.ops("Split", [x, sizes], 2, axis=axis)
        if first * 2 == shape[axis]:
            return self.op("Mul", a, self.op("Sigmoid", b))
        return self.op("Concat", self.op("Tanh", b), a, axis=axis)

    def slice(self, x: str) -> str | None:
        shape = self.graph.shape(x)
        axis = int(self.rng.integers(len(shape)))
        if shape[axis] < 2:
            return None
        start, step = int(self.rng.integers(0, shape[axis] - 1)), self.pick((1, 1, 2, 3))
        if self.chance(0.2):
            operands = (shape[axis] - 1, -(1 << 40), axis, -step)
        else:
            operands = (start, int(self.rng.integers(start + 1, shape[axis] + 1)), axis, step)
        return self.op("Slice", x, *(self.numbers(each) for each in operands))

    def gather(self, x: str) -> str:
        shape = self.graph.shape(x)
        axis = int(self.rng.integers(len(shape)))
        count = self.pick((1, 2, 5))
        places = self.rng.integers(-shape[axis], shape[axis], count)
        return self.op("Gather", x, self.numbers(*places.tolist()), axis=axis)

    def padded(self, x: str) -> str | None:
        shape = self.graph.shape(x)
        mode = self.pick(("constant", "edge", "reflect"))
        most = [min(3, extent - 1) if mode == "reflect" else 2 for extent in shape] * 2
        pads = [int(self.rng.integers(0, m + 1)) if self.chance(0.4) else 0 for m in most]
        return self.op("Pad", x, self.numbers(*pads), mode=mode)

    def transposed(self, x: str) -> str:
        return self.op("Transpose", x, perm=self.rng.permutation(len(self.graph.shape(x))).tolist())

    def reshaped(self, x: str) -> str | None:
        shape = self.graph.shape(x)
        if len(shape) > 2 and self.chance(0.5):
            at = int(self.rng.integers(len(shape) - 1))
            shape = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
        else:
            axis = int(self.rng.integers(len(shape)))
            part = self.pick([n for n in (1, 2, 3, 4, 5, 8) if shape[axis] % n == 0])
            shape = (*shape[:axis], part, shape[axis] // part, *shape[axis + 1 :])
        if len(shape) > 4:
            return None
        return self.op("Reshape", x, self.numbers(*shape))

    def resized(self, x: str) -> str | None:
        if len(self.graph.shape(x)) != 4:
            return None
        _, _, height, width = self.graph.shape(x)
        sizes = (self.pick((height * 2, height + 3)), self.pick((width * 2, width + 1)))
        mode = self.pick(("nearest", "linear", "cubic"))
        places = self.pick(("asymmetric", "half_pixel", "align_corners"))
        whole = self.numbers(*self.graph.shape(x)[:2], *sizes)
        return self.op("Resize", x, "", "", whole, mode=mode, coordinate_transformation_mode=places)

    def depth(self, x: str) -> str | None:
        shape = self.graph.shape(x)
        if len(shape) != 4:
            return None
        if shape[1] % 4 == 0 and self.chance(0.5):
            return self.op("DepthToSpace", x, blocksize=2, mode=self.pick(("DCR", "CRD")))
        if shape[2] % 2 or shape[3] % 2:
            return None
        return self.op("SpaceToDepth", x, blocksize=2)

    def chosen(self, x: str) -> str:
        shape = self.graph.shape(x)
        mask = self.graph.initialiser(self.rng.random(shape[-1:]) < 0.5, "mask")
        return self.op("Where", mask, x, self.op("Neg", x))

    def _is_spatial(self, x: str) -> bool:
        return len(self.graph.shape(x)) in (3, 4)


#: How often each is drawn.
LAYERS: dict[Layer, int] = {
    _Layers.convolution: 8,
    _Layers.transposed_convolution: 3,
    _Layers.pooling: 3,
    _Layers.whole_pooling: 1,
    _Layers.normalisation: 4,
    _Layers.product: 6,
    _Layers.attention: 3,
    _Layers.recurrent: 1,
    _Layers.softmax: 3,
    _Layers.reduction: 3,
    _Layers.running_sum: 1,
    _Layers.activation: 4,
    _Layers.with_constant: 3,
    _Layers.joined: 4,
    _Layers.gated: 3,
    _Layers.slice: 3,
    _Layers.gather: 2,
    _Layers.padded: 2,
    _Layers.transposed: 4,
    _Layers.reshaped: 4,
    _Layers.resized: 2,
    _Layers.depth: 2,
    _Layers.chosen: 1,
}
