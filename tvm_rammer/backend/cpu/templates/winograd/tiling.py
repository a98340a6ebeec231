"""How the work of a Winograd convolution is cut, and how its weights are laid out for that."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tvm_rammer.backend.cpu.templates.columns import Layout
from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile
from tvm_rammer.backend.cpu.templates.winograd.channels import Channels
from tvm_rammer.backend.cpu.templates.winograd.matrices import Transform
from tvm_rammer.kernel.scheduled import Packing

#: Filters that are transformed together. The caches hold them, and numpy multiplies so few by one
#: thread: several would wait for each other while LLVM has the cores.
_FILTERS = 512


@dataclass(frozen=True)
class WinogradPacking(Packing):
    """Transforms weights and lays them out ``[tile of columns, (m + 2)^2, in, columns]``.

    A weight that is not finite makes all results of its output channel NaN.
    """

    transform: Transform
    layout: Layout

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        layout = self.layout
        tiles, columns = layout.groups * layout.tiles, layout.vectors * layout.lanes
        return tiles, self.transform.products, shape[-1], columns

    def fill(self, packed: np.ndarray, array: np.ndarray) -> None:
        groups, _, inner, columns = packed.shape
        step = max(1, _FILTERS // columns)
        with np.errstate(invalid="ignore"):
            for group, first in product(range(groups), range(0, inner, step)):
                some = slice(first, first + step)
                weights = array[self.layout.columns_of(group), :, :, some]
                packed[group, :, some] = self.transform.transform_weight(weights)


@dataclass(frozen=True)
class TileGrid:
    """The tiles that cover the outputs ``[batch, height, width]``, numbered through.

    The last row and column of tiles may reach over the edge.
    """

    batch: int
    height: int
    width: int
    side: int

    @property
    def rows(self) -> int:
        return -(-self.height // self.side)

    @property
    def columns(self) -> int:
        return -(-self.width // self.side)

    @property
    def num_tiles(self) -> int:
        return self.batch * self.rows * self.columns

    def place(self, tile: Any) -> tuple[Any, Any, Any]:
        """Image, first row and first column of a tile's outputs."""
        in_row = tile // self.columns
        return in_row // self.rows, in_row % self.rows * self.side, tile % self.columns * self.side


@dataclass(frozen=True)
class WinogradTiling:
    """How the work is cut.

    Attributes
    ----------
    transform : Transform
    lanes : int
        Input channels that are transformed together.
    register_tile : RegisterTile
        Of the products: tiles of the image x vectors of output channels.
    block : int
        Tiles of the image in a block.
    fused : bool
        Whether the input of a block is transformed in the block's own task.
    parts : (int, int)
        Where it is not, a block and a group of output channels are so many tasks: along the tiles
        of the block, and along the vectors of the group.
    rows_first : bool
        Whether, where it is not, a task is followed by one with the next output channels of the
        same tiles of the image, and not by one with the next tiles for the same channels.
    """

    transform: Transform
    lanes: int
    register_tile: RegisterTile
    block: int
    fused: bool
    parts: tuple[int, int] = (1, 1)
    rows_first: bool = False

    def __str__(self) -> str:
        side = self.transform.outputs
        stages = "fused" if self.fused else "staged"
        return f"F({side}x{side},3x3) {stages}, blocks of {self.rows}, {self.task_tile}"

    @property
    def columns(self) -> int:
        """Output channels of a group."""
        return self.register_tile.vectors * self.register_tile.lanes

    @property
    def rows(self) -> int:
        """Tiles of the image that a task handles."""
        return self.block // self.parts[0]

    @property
    def task_tile(self) -> RegisterTile:
        """The register tile of a task, which may be too small for that of a whole block."""
        whole = self.register_tile
        return RegisterTile(min(whole.rows, self.rows), whole.vectors // self.parts[1], whole.lanes)

    def scratch_bytes(self, tiles: int, in_channels: int) -> int:
        """Bytes of transformed inputs between the stages."""
        return 0 if self.fused else 4 * tiles * self.transform.products * in_channels

    def packing(self, channels: Channels) -> WinogradPacking:
        """How the weights are packed."""
        return WinogradPacking(self.transform, channels.layout(self.register_tile))
