"""The loops of a convolution by minimal filtering along one axis.

One stage transforms the inputs of every line, from as many places on that all groups of taps find
theirs. In the other a task takes some lines and a group of output channels: for each of the
products it sums up, in register tiles, over the taps across lines, the groups of taps
and the input channels; then it transforms the sums, does the epilogue and stores the outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cpu.templates.columns import Layout
from tvm_rammer.backend.cpu.templates.winograd.line_tiling import Lines, LineTiling
from tvm_rammer.backend.cpu.templates.winograd.match import PlainConvolution
from tvm_rammer.backend.cpu.templates.winograd.products import register_products
from tvm_rammer.backend.cpu.templates.winograd.transforms import applied, vectors_of
from tvm_rammer.kernel.loops import (
    bind,
    buffer,
    loop,
    number,
    parallel,
    rolled,
    sequence,
    vector,
    when,
)
from tvm_rammer.kernel.nodes import all_of

#: ``read(k, lane)``.
Read = Callable[[Any, Any], Any]


def line_function(conv: PlainConvolution, tiling: LineTiling) -> tirx.PrimFunc:
    """The PrimFunc whose parallel root loops are the stages.

    Its weights are those that ``tiling.packing`` makes.
    """
    lines = Lines.of(conv, tiling.transform, tiling.axis)
    layout = lines.channels.layout(tiling.register_tile)
    groups = layout.groups * layout.tiles
    products = tiling.transform.inputs
    shape = (groups, products, lines.across, lines.steps, tiling.columns)
    weight = buffer("weight", shape)
    params = list(conv.params)
    params[conv.weight_position] = weight
    # The odd vector keeps the values of one place out of each other's cache set.
    row = lines.places * lines.channels.inputs + tiling.lanes
    moved = buffer("moved", (lines.batch * lines.in_lines, products, row))
    body = _Kernel(conv, lines, tiling, weight, moved, groups).stages()
    attributes = {"global_symbol": "main", "tirx.noalias": True, "s_tir": True}
    return tirx.PrimFunc(params, body).with_attrs(attributes)


@dataclass(frozen=True)
class _Kernel:
    conv: PlainConvolution
    lines: Lines
    tiling: LineTiling
    weight: Any
    moved: Any
    groups: int

    @property
    def _layout(self) -> Layout:
        return self.lines.channels.layout(self.tiling.register_tile)

    @property
    def num_lines(self) -> int:
        return self.lines.batch * self.lines.count

    def stages(self) -> Any:
        blocks = -(-self.num_lines // self.tiling.lines)
        return tirx.SeqStmt(
            [
                tirx.AllocBuffer(self.moved),
                parallel("line", self.lines.batch * self.lines.in_lines, self._input_line),
                parallel(
                    "task",
                    blocks * self.groups,
                    lambda task: self._block(task // blocks, task % blocks),
                ),
            ]
        )

    def _input_line(self, line: Any) -> Any:
        """Transform the inputs of a line, from each of its places on."""
        patch = buffer("patch", (self.tiling.transform.inputs, self.tiling.lanes))
        places = loop("place", self.lines.places, lambda place: self._input(line, place, patch))
        return sequence([tirx.AllocBuffer(patch), places])

    def _input(self, line: Any, place: Any, patch: Any) -> Any:
        """Transform all channels of the inputs from a place on."""
        image, which = line // self.lines.in_lines, line % self.lines.in_lines
        inputs = LineInputs(self.conv, self.lines, image, which, place * self.lines.spacing)

        def plain(first: Any) -> Any:
            return self._transformed(line, place, first, lambda k, n: inputs.read(k, first + n))

        def at_edge(first: Any) -> Any:
            return sequence(
                [
                    self._kept(inputs, first, patch),
                    self._transformed(line, place, first, lambda k, n: patch[k, n]),
                ]
            )

        tests = inputs.tests()
        if not tests:
            return self._channels(plain)
        return tirx.IfThenElse(all_of(tests), self._channels(plain), self._channels(at_edge))

    def _channels(self, of_vector: Callable[[Any], Any]) -> Any:
        """What is made of the vector of input channels from a first one on, for all of them."""
        return vectors_of(self.lines.channels.inputs, self.tiling.lanes, of_vector)

    def _kept(self, inputs: LineInputs, first: Any, patch: Any) -> Any:
        """Copy a vector of channels of the inputs at an edge: conditions do without registers."""
        lanes, count = self.tiling.lanes, self.tiling.transform.inputs

        def keep(k: Any, lane: Any) -> Any:
            return tirx.BufferStore(patch, inputs.read_at_edge(k, first + lane), [k, lane])

        return rolled("input", count, lambda k: vector(lanes, lambda lane: keep(k, lane)))

    def _transformed(self, line: Any, place: Any, first: Any, read: Read) -> Any:
        """Transform a vector of channels of the inputs ``read(k, lane)`` and store it."""
        transform = self.tiling.transform

        def one(lane: Any) -> Any:
            element = place * self.lines.channels.inputs + first + lane
            values = [read(number(k), lane) for k in range(transform.inputs)]
            return applied(
                transform.data,
                values,
                lambda k, value: tirx.BufferStore(self.moved, value, [line, k, element]),
            )

        return vector(self.tiling.lanes, one)

    def _block(self, group: Any, block: Any) -> Any:
        """Some lines of a group of output channels."""
        tiling, tile = self.tiling, self.tiling.register_tile
        tiles, products = self.lines.tiles, tiling.transform.inputs
        sums = buffer("sums", (tiling.lines * tiles, products, tiling.columns))
        full, ragged = divmod(tiles, tile.rows)

        def product(which: Any) -> Any:
            def rows(line: Any, first: Any, count: int) -> Any:
                return self._rows(group, block, which, line, first, count, sums)

            def of_line(line: Any) -> Any:
                parts = []
                if full:
                    parts.append(
                        loop("rows", full, lambda row: rows(line, row * tile.rows, tile.rows))
                    )
                if ragged:
                    parts.append(rows(line, number(full * tile.rows), ragged))
                return self._if_any(block, line, sequence(parts))

            return loop("line", tiling.lines, of_line)

        def inverse(line: Any) -> Any:
            made = loop("tile", tiles, lambda t: self._outputs(group, block, line, t, sums))
            return self._if_any(block, line, made)

        return tirx.SeqStmt(
            [
                tirx.AllocBuffer(sums),
                loop("product", products, product),
                loop("line", tiling.lines, inverse),
            ]
        )

    def _if_any(self, block: Any, line: Any, made: Any) -> Any:
        """Only if there is such a line: the last block may have fewer."""
        over = self.num_lines % self.tiling.lines != 0
        return when([block * self.tiling.lines + line < self.num_lines] * over, made)

    def _rows(
        self, group: Any, block: Any, which: Any, line: Any, first: Any, count: int, sums: Any
    ) -> Any:
        """A register tile of one product of a line."""
        image, place = self._line(block, line)
        source, bound = bind("source", image * self.lines.in_lines + place * self.lines.stride)

        channels, taps = self.lines.channels, self.lines.groups
        # All channels of all groups of taps are one loop; those of a group of channels lie apart.
        apart = taps > 1 and channels.groups > 1
        loops = (taps, channels.depth) if apart else (self.lines.steps,)

        def data(row: Any, across: Any, *steps: Any) -> Any:
            place = (first + row) * self.lines.places_of_tile + sum(steps[:-1])
            channel = channels.input(self._layout.column(group, 0), steps[-1])
            return self.moved[source + across, which, place * channels.inputs + channel]

        def weight(column: Any, across: Any, *steps: Any) -> Any:
            step = sum(steps[:-1]) * channels.depth + steps[-1]
            return self.weight[group, which, across, step, column]

        def keep(row: Any, column: Any, value: Any) -> Any:
            place = [line * self.lines.tiles + first + row, which, column]
            return tirx.BufferStore(sums, value, place)

        extents = (self.lines.across, *loops)
        made = register_products(self.tiling.register_tile, count, extents, data, weight, keep)
        return sequence([bound, made])

    def _line(self, block: Any, line: Any) -> tuple[Any, Any]:
        """The image of a task's line, and which of its lines it is."""
        which = block * self.tiling.lines + line
        return which // self.lines.count, which % self.lines.count

    def _outputs(self, group: Any, block: Any, line: Any, tile: Any, sums: Any) -> Any:
        """Transform the sums of a tile, do the epilogue and store the outputs."""
        tiling, transform = self.tiling, self.tiling.transform
        lanes = tiling.register_tile.lanes
        (image, bound_image), (place, bound_place) = (
            bind(name, value)
            for name, value in zip(("image", "place"), self._line(block, line), strict=True)
        )

        def one(part: Any, lane: Any) -> Any:
            column = part * lanes + lane

            def store(k: int, value: Any) -> Any:
                along = tile * transform.outputs + k
                outside = 0 < self.lines.length % transform.outputs <= k
                channel = self._layout.column(group, part) + lane
                written = self.conv.write(self.lines.place(image, place, along, channel), value)
                return when([along < self.lines.length] * outside, written)

            row = line * self.lines.tiles + tile
            values = [sums[row, k, column] for k in range(transform.inputs)]
            return applied(transform.inverse, values, store)

        vectors = loop(
            "vector",
            tiling.register_tile.vectors,
            lambda part: vector(lanes, lambda lane: one(part, lane)),
        )
        return sequence([bound_image, bound_place, vectors])


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
