"""What the tiles of a line read of its image: all of it, or, at the edges, what there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.winograd.line_tiling import Lines
from tvm_rammer.backend.cpu.templates.winograd.match import PlainConvolution
from tvm_rammer.kernel.loops import number


@dataclass(frozen=True)
class LineInputs:
    """The inputs that are transformed together, from the place ``first`` of a line on.

    What a tile has beyond the line's end counts as 0.
    """

    conv: PlainConvolution
    lines: Lines
    image: Any
    line: Any
    first: Any

    def tests(self) -> list[Any]:
        """Conditions that hold if all inputs are there; none if they always are."""
        last = self.lines.transform.inputs - 1
        tests = self._before_end(last)
        if self.conv.padding() is not None:
            tests += [self._read(k, number(0)).args[0] for k in (0, last)]
        return tests

    def read(self, k: Any, channel: Any) -> Any:
        """An input where all of them are there."""
        value = self._read(k, channel)
        return value if self.conv.padding() is None else value.args[1]

    def read_at_edge(self, k: Any, channel: Any) -> Any:
        """An input that may be missing."""
        value, before_end = self._read(k, channel), self._before_end(k)
        if not before_end:
            return value
        return tirx.if_then_else(before_end[0], value, tirx.const(0.0, "float32"))

    def _before_end(self, k: Any) -> list[Any]:
        """That an input lies before the line's end, where tiles reach over it."""
        extent = int(self.conv.data.shape[self.lines.axis])
        reach = (self.lines.places - 1) * self.lines.spacing + self.lines.transform.inputs
        return [self.first + k < extent] * (reach > extent)

    def _read(self, k: Any, channel: Any) -> Any:
        return self.conv.read(self.lines.place(self.image, self.line, self.first + k, channel))
