"""What a tile reads of its image: all of it, or, at the edges, what there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.winograd.match import PlainConvolution
from tvm_rammer.backend.cpu.templates.winograd.tiling import TileGrid
from tvm_rammer.kernel.blocks import is_zero, variables
from tvm_rammer.kernel.loops import number
from tvm_rammer.kernel.nodes import all_of, conjuncts


@dataclass(frozen=True)
class TileInputs:
    """The inputs of the tile whose first one, in the padded data, is at ``place``.

    What is padding is not read, and what a tile has beyond the last row or column counts as 0.
    """

    conv: PlainConvolution
    grid: TileGrid
    place: tuple[Any, Any, Any]

    def tests(self) -> list[Any]:
        """Conditions that hold if all inputs are there; none if they always are."""
        image, y, x = self.place
        last = self.grid.side + 1
        tests = self._before_ends(y + last, x + last)
        if self.conv.padding() is not None:
            corners = [(image, y + i, x + j, number(0)) for i in (0, last) for j in (0, last)]
            tests += [self.conv.read(corner).args[0] for corner in corners]
        return tests

    def read(self, row: Any, column: Any, channel: Any) -> Any:
        """An input of a tile whose inputs are all there."""
        image, y, x = self.place
        value = self.conv.read((image, y + row, x + column, channel))
        return value if self.conv.padding() is None else value.args[1]

    def column_tests(self, column: Any) -> list[Any]:
        """Conditions that hold if any of a column is there; what is not counts as 0."""
        tests, _ = self._at_edge(number(0), column, number(0))
        return [test for test in tests if self._is_of_column(test, column)]

    def read_of_column(self, row: Any, column: Any, channel: Any) -> Any:
        """An input whose column's tests hold."""
        tests, value = self._at_edge(row, column, channel)
        others = [test for test in tests if not self._is_of_column(test, column)]
        return tirx.if_then_else(all_of(others), value, _zero()) if others else value

    def _at_edge(self, row: Any, column: Any, channel: Any) -> tuple[list[Any], Any]:
        """When an input is there, and the input."""
        image, y, x = self.place
        value = self.conv.read((image, y + row, x + column, channel))
        tests = self._before_ends(y + row, x + column)
        padding = self.conv.padding()
        if padding is None or not is_zero(padding.args[2]):
            return tests, value
        return [*tests, *conjuncts(value.args[0])], value.args[1]

    def _before_ends(self, y: Any, x: Any) -> list[Any]:
        """That such a row and column are no later than the last, where tiles reach over it."""
        _, height, width, _ = map(int, self.conv.data.shape)
        over_bottom = self.grid.rows * self.grid.side + 2 > height
        over_right = self.grid.columns * self.grid.side + 2 > width
        return [y < height] * over_bottom + [x < width] * over_right

    def _is_of_column(self, test: Any, column: Any) -> bool:
        """Whether a condition is the same for all of a column."""
        x, used = self.place[2], variables(test)
        return x in used and used <= {x, *variables(column)}


def _zero() -> Any:
    return tirx.const(0.0, "float32")
