"""Inception v3 (Szegedy et al., 2015), without the auxiliary classifier."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.models.layers import avg_pool, classifier, concat, conv_bn_relu, max_pool

#: A branch is a list of (channels, kernel, stride, padding), the channels at full width.
Layer = tuple[int, int | tuple[int, int], int, int | tuple[int, int] | None]
Branch = tuple[Layer, ...]


def inception_v3(
    size: int = 299, divide: int = 1, batch: int = 1, seed: int = 0
) -> onnx.ModelProto:
    """Inception v3 for ``size`` x ``size`` images; ``divide`` thins every layer by that factor."""
    g = GraphBuilder("inception_v3", seed)
    net = _Net(g, divide)
    x = net.chain(g.input("x", (batch, 3, size, size)), _STEM_BEFORE)
    x = net.chain(max_pool(g, x, 3, 2), _STEM_AFTER)
    x = max_pool(g, x, 3, 2)
    for pool in (32, 64, 64):
        x = net.block(x, _block_a(), pool)
    x = net.block(x, _BLOCK_B, None)
    for width in (128, 160, 160, 192):
        x = net.block(x, _block_c(width), 192)
    x = net.block(x, _BLOCK_D, None)
    for _ in range(2):
        x = net.block_e(x)
    g.output("out", classifier(g, x, 1000))
    return g.build()


class _Net:
    """The blocks' common parts: branches side by side, joined along the channels."""

    def __init__(self, g: GraphBuilder, divide: int) -> None:
        self.g, self.divide, self.blocks = g, divide, 0

    def chain(self, x: str, layers: Iterable[Layer]) -> str:
        for channels, kernel, stride, padding in layers:
            width = max(1, channels // self.divide)
            x = conv_bn_relu(self.g, x, width, kernel, stride=stride, padding=padding)
        return x

    def block(self, x: str, branches: Iterable[Branch], pool: int | None) -> str:
        """Branches and a pooling branch: averaged and projected, or a strided maximum."""
        with self.g.scope(self._next()):
            results = [self.chain(x, branch) for branch in branches]
            results.append(max_pool(self.g, x, 3, 2) if pool is None else self._pooled(x, pool))
            return concat(self.g, *results)

    def block_e(self, x: str) -> str:
        """The block whose 3x3 convolutions are a 1x3 and a 3x1 side by side."""
        with self.g.scope(self._next()):
            results = [self.chain(x, (_conv(320, 1),))]
            for stem in ((_conv(384, 1),), (_conv(448, 1), _conv(384, 3))):
                start = self.chain(x, stem)
                results += [self.chain(start, (_conv(384, k),)) for k in ((1, 3), (3, 1))]
            results.append(self._pooled(x, 192))
            return concat(self.g, *results)

    def _pooled(self, x: str, channels: int) -> str:
        return self.chain(avg_pool(self.g, x, 3, 1, 1), (_conv(channels, 1),))

    def _next(self) -> str:
        self.blocks += 1
        return f"block{self.blocks - 1}"


def _conv(channels: int, kernel: int | tuple[int, int]) -> Layer:
    return channels, kernel, 1, None


def _strided(channels: int) -> Layer:
    return channels, 3, 2, 0


def _block_a() -> tuple[Branch, ...]:
    return (
        (_conv(64, 1),),
        (_conv(48, 1), _conv(64, 5)),
        (_conv(64, 1), _conv(96, 3), _conv(96, 3)),
    )


def _block_c(width: int) -> tuple[Branch, ...]:
    row, column = (1, 7), (7, 1)
    return (
        (_conv(192, 1),),
        (_conv(width, 1), _conv(width, row), _conv(192, column)),
        (
            _conv(width, 1),
            _conv(width, column),
            _conv(width, row),
            _conv(width, column),
            _conv(192, row),
        ),
    )


_STEM_BEFORE: Branch = (_strided(32), (32, 3, 1, 0), _conv(64, 3))
_STEM_AFTER: Branch = (_conv(80, 1), (192, 3, 1, 0))
_BLOCK_B: tuple[Branch, ...] = (
    (_strided(384),),
    (_conv(64, 1), _conv(96, 3), _strided(96)),
)
_BLOCK_D: tuple[Branch, ...] = (
    (_conv(192, 1), _strided(320)),
    (_conv(192, 1), _conv(192, (1, 7)), _conv(192, (7, 1)), _strided(192)),
)
