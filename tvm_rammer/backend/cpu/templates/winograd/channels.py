"""The channels of a convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_rammer.backend.cpu.templates.columns import Layout
from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile


@dataclass(frozen=True)
class Channels:
    """Input and output channels in groups, each of which is convolved by itself."""

    inputs: int
    outputs: int
    groups: int = 1

    @property
    def depth(self) -> int:
        """Input channels of a group: so many products are summed up for each tap."""
        return self.inputs // self.groups

    @property
    def width(self) -> int:
        """Output channels of a group."""
        return self.outputs // self.groups

    def layout(self, tile: RegisterTile) -> Layout:
        """How the output channels become the vectors of register tiles."""
        return Layout(self.outputs, self.width, tile.vectors, tile.lanes)

    def input(self, output: Any, number: Any) -> Any:
        """The input channel that has a number among those of an output channel's group."""
        return output // self.width * self.depth + number if self.groups > 1 else number
