"""Where the tiles of a line lie, how its work is divided, and how weights are laid out for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_rammer.backend.cpu.templates.columns import Layout
from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile
from tvm_rammer.backend.cpu.templates.winograd.channels import Channels
from tvm_rammer.backend.cpu.templates.winograd.match import PlainConvolution
from tvm_rammer.backend.cpu.templates.winograd.matrices import Transform
from tvm_rammer.kernel.scheduled import Packing


@dataclass(frozen=True)
class Lines:
    """A convolution as lines of outputs along one of its axes, in tiles.

    Attributes
    ----------
    transform : Transform
        Of a tile. Where the filter has more taps, its outputs are a multiple of its taps, so that
        the groups of taps share transformed inputs.
    axis : int
        1 if a line is a column of the image, 2 if it is a row.
    batch, count, length : int
        Images, lines of an image, and outputs of a line.
    taps : int
        Of the filter along a line.
    across, stride : int
        Taps and stride of the filter across lines.
    channels : Channels
    """

    transform: Transform
    axis: int
    batch: int
    count: int
    length: int
    taps: int
    across: int
    stride: int
    channels: Channels

    @classmethod
    def of(cls, conv: PlainConvolution, transform: Transform, axis: int) -> Lines:
        """The lines of a convolution along an axis, in which it has no stride."""
        batch, *extents = conv.output_extents
        along, across = axis - 1, 2 - axis
        return cls(
            transform,
            axis,
            batch,
            extents[across],
            extents[along],
            conv.taps[along],
            conv.taps[across],
            conv.strides[across],
            conv.channels,
        )

    def place(self, image: Any, line: Any, along: Any, channel: Any) -> tuple[Any, ...]:
        """A place of the image, given by a line and a place along it."""
        inner = (line, along) if self.axis == 2 else (along, line)
        return (image, *inner, channel)

    @property
    def in_lines(self) -> int:
        """Lines of inputs of an image."""
        return (self.count - 1) * self.stride + self.across

    @property
    def groups(self) -> int:
        """Groups of as many taps as a tile takes."""
        return -(-self.taps // self.transform.taps)

    @property
    def tiles(self) -> int:
        """Tiles of a line; the last one may reach over its end."""
        return -(-self.length // self.transform.outputs)

    @property
    def spacing(self) -> int:
        """Inputs from one place, from which on they are transformed, to the next."""
        return self.transform.taps if self.groups > 1 else self.transform.outputs

    @property
    def places_of_tile(self) -> int:
        """Places from one tile to the next."""
        return self.transform.outputs // self.spacing

    @property
    def places(self) -> int:
        """Places of a line."""
        return (self.tiles - 1) * self.places_of_tile + self.groups

    @property
    def steps(self) -> int:
        """Steps of the reduction: groups of taps and input channels, for every tap across."""
        return self.groups * self.channels.depth


@dataclass(frozen=True)
class LinePacking(Packing):
    """Transforms weights: ``[tile of columns, products, across, steps, columns]``.

    A weight that is not finite makes all results of its output channel NaN.
    """

    transform: Transform
    axis: int
    layout: Layout

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        _, *taps, inner = shape
        groups = -(-taps[self.axis - 1] // self.transform.taps)
        across = taps[2 - self.axis]
        layout = self.layout
        tiles, columns = layout.groups * layout.tiles, layout.vectors * layout.lanes
        return tiles, self.transform.inputs, across, groups * inner, columns

    def fill(self, packed: np.ndarray, array: np.ndarray) -> None:
        count, products, across, steps, columns = packed.shape
        # [out, across, along, in], and as many taps along as fill the groups.
        taps = array[[c for tile in range(count) for c in self.layout.columns_of(tile)]]
        taps = taps.swapaxes(1, 2) if self.axis == 1 else taps
        missing = steps // taps.shape[3] * self.transform.taps - taps.shape[2]
        taps = np.pad(taps.astype(np.float64), ((0, 0), (0, 0), (0, missing), (0, 0)))
        taps = taps.reshape(len(taps), across, -1, self.transform.taps, taps.shape[3])
        with np.errstate(invalid="ignore"):
            moved = np.einsum("pt,oagti->opagi", np.array(self.transform.weight), taps)
        moved = moved.reshape(count, columns, products, across, steps)
        packed[...] = moved.transpose(0, 2, 3, 4, 1)


@dataclass(frozen=True)
class LineTiling:
    """How the work is divided.

    Attributes
    ----------
    transform : Transform
    axis : int
        As in :class:`Lines`.
    lanes : int
        Input channels that are transformed together.
    register_tile : RegisterTile
        Of the products: tiles of a line x vectors of output channels.
    lines : int
        Lines of a task.
    """

    transform: Transform
    axis: int
    lanes: int
    register_tile: RegisterTile
    lines: int

    def __str__(self) -> str:
        along = "columns" if self.axis == 1 else "rows"
        filtering = f"F({self.transform.outputs},{self.transform.taps})"
        return f"{filtering} along {along}, {self.lines} of them, {self.register_tile}"

    @property
    def columns(self) -> int:
        """Output channels of a task."""
        return self.register_tile.vectors * self.register_tile.lanes

    def packing(self, channels: Channels) -> LinePacking:
        """How the weights are packed."""
        return LinePacking(self.transform, self.axis, channels.layout(self.register_tile))
