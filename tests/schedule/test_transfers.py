"""What has to be fetched from another vEU's cache: how many bytes, and when none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import US, costs
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.rprogram.program import CELLS, TILE_RANGES
from tvm_rammer.schedule import Placed, Placement, simulate, synchronise
from tvm_rammer.schedule.placement import split

#: Bytes of every buffer: to fetch one takes 1 us, and 1 us more for its bytes.
SIZE = 1024
COSTS = replace(costs(), transfer=1 * US, transfer_byte=US / SIZE)

LEFT, RIGHT = (1 << CELLS // 2) - 1, (1 << CELLS) - (1 << CELLS // 2)
#: The first half of the tiles has the first half of the cells, the second one the second half.
DIVIDED = (LEFT,) * (TILE_RANGES // 2) + (RIGHT,) * (TILE_RANGES // 2)
WHOLE = (LEFT | RIGHT,) * TILE_RANGES


def chain(count: int, reads: tuple[int, ...]) -> OperatorGraph:
    """Operators of two tiles that each read the result of the one before; 2 us for each tile."""
    kernel = RKernel("body", 2, ("read", "write"), 2 * US, footprints=(reads, DIVIDED))
    buffers = [Buffer("input", (SIZE // 4,), "float32", "input")]
    buffers += [Buffer(f"result{k}", (SIZE // 4,), "float32", "output", k) for k in range(count)]
    operators = tuple(Operator(f"op{k}", (kernel,), (k, k + 1)) for k in range(count))
    return OperatorGraph("test", tuple(buffers), operators)


def times(graph: OperatorGraph, veus: list[list[tuple[int, int, int]]], given=COSTS) -> list:
    """Microseconds of (operator, start, stop) on each vEU."""
    placed = tuple(tuple(Placed(n, 0, start, stop, 0) for n, start, stop in v) for v in veus)
    program = synchronise(graph, Placement("test", placed))
    found: list[list[float]] = [[] for _ in veus]
    for span in simulate(program, given).spans:
        found[span.veu].append(round(span.duration / US, 3))
    return found


def test_what_another_veu_wrote_is_fetched():
    veus = [[(0, 0, 2)], [(1, 0, 2)]]
    assert times(chain(2, WHOLE), veus) == [[4.0], [4.0 + 1 + 1]]


def test_what_a_veu_wrote_itself_is_there():
    assert times(chain(2, WHOLE), [[(0, 0, 2), (1, 0, 2)], []]) == [[4.0, 4.0], []]


def test_operators_that_are_divided_alike_fetch_nothing():
    """Of what is needed whole, the half that the other one wrote."""
    veus = [[(0, 0, 1), (1, 0, 1)], [(0, 1, 2), (1, 1, 2)]]
    assert times(chain(2, DIVIDED), veus) == [[2.0, 2.0], [2.0, 2.0]]
    assert times(chain(2, WHOLE), veus) == [[2.0, 3.5], [2.0, 3.5]]


#: Each range of tiles has the next few cells.
ROWS = tuple((1 << CELLS // TILE_RANGES) - 1 << start for start in range(0, CELLS, 4))


def cut_alike(graph: OperatorGraph, num_veus: int) -> list:
    """Microseconds that tasks take longer than their tiles, every operator cut the same way."""
    veus: list[list[tuple[int, int, int]]] = [[] for _ in range(num_veus)]
    for number, operator in enumerate(graph.operators):
        for veu, (start, stop) in enumerate(split(operator.candidates[0].num_tiles, num_veus)):
            veus[veu].append((number, start, stop))
    return [
        [round(seconds - 2 * (stop - start), 3) for seconds, (_, start, stop) in pairs]
        for pairs in (
            zip(found, veu, strict=True)
            for found, veu in zip(times(graph, veus), veus, strict=True)
        )
    ]


@given(st.integers(2, 300), st.integers(2, 64))
def test_operators_that_are_cut_alike_fetch_nothing_however_fine(tiles, num_veus):
    """Ranges of tiles end within cells: these are in part one vEU's, in part its neighbour's."""
    num_veus = min(tiles, num_veus)
    kernel = RKernel("body", tiles, ("read", "write"), 2 * US, footprints=(ROWS, ROWS))
    made = chain(2, ROWS)
    made = replace(
        made, operators=tuple(replace(op, candidates=(kernel,)) for op in made.operators)
    )
    assert cut_alike(made, num_veus) == [[0.0, 0.0]] * num_veus


@given(st.integers(2, 300), st.integers(2, 64))
def test_parts_that_are_cut_alike_and_their_whole_fetch_nothing(tiles, num_veus):
    num_veus = min(tiles, num_veus)
    buffers = (
        Buffer("input", (SIZE // 4,), "float32", "input"),
        Buffer("whole", (64, SIZE // 256), "float32", "output", 0),
        Buffer("left", (64, SIZE // 512), "float32", "part", 1, 0, SIZE // 64),
        Buffer("right", (64, SIZE // 512), "float32", "part", 1, SIZE // 512, SIZE // 64),
        Buffer("result", (SIZE // 4,), "float32", "output", 1),
    )
    kernel = RKernel("body", tiles, ("read", "write"), 2 * US, footprints=(ROWS, ROWS))
    operators = tuple(
        Operator(f"op{k}", (kernel,), arguments)
        for k, arguments in enumerate(((0, 2), (0, 3), (1, 4)))
    )
    made = OperatorGraph("test", buffers, operators)
    assert cut_alike(made, num_veus) == [[0.0, 0.0, 0.0]] * num_veus


def test_a_halo_is_fetched_from_the_neighbours():
    """Each range of tiles reads a range more on either side; a range is 1/64 of 1 us."""
    halo = tuple(
        ROWS[k] | ROWS[max(0, k - 1)] | ROWS[min(TILE_RANGES - 1, k + 1)]
        for k in range(TILE_RANGES)
    )
    made = chain(2, halo)
    kernels = [
        RKernel("body", 64, ("read", "write"), 2 * US, footprints=(reads, ROWS))
        for reads in (ROWS, halo)
    ]
    made = replace(
        made,
        operators=tuple(
            replace(op, candidates=(kernel,))
            for op, kernel in zip(made.operators, kernels, strict=True)
        ),
    )
    found = [late for _, late in cut_alike(made, 4)]
    assert found == pytest.approx([1 + 1 / 64, 1 + 2 / 64, 1 + 2 / 64, 1 + 1 / 64], abs=1e-3)


def test_what_was_fetched_once_is_there():
    graph = chain(2, WHOLE)
    again = replace(graph.operators[1], arguments=(1, 3))
    result = Buffer("again", (SIZE // 4,), "float32", "output", 2)
    graph = replace(graph, buffers=(*graph.buffers, result), operators=(*graph.operators, again))
    assert times(graph, [[(0, 0, 2)], [(1, 0, 2), (2, 0, 2)]]) == [[4.0], [6.0, 4.0]]


def test_what_left_the_cache_of_its_writer_comes_from_the_last_level_cache():
    """The writer goes on with an operator of its own before the reader starts, which needs both."""
    kernel = RKernel("body", 2, ("read", "read", "write"), 2 * US)
    graph = chain(2, WHOLE)
    both = Operator("both", (kernel,), (1, 2, 3))
    result = Buffer("both", (1,), "float32", "output", 2)
    graph = replace(graph, buffers=(*graph.buffers, result), operators=(*graph.operators, both))
    veus = [[(0, 0, 2), (1, 0, 2)], [(2, 0, 2)]]
    assert times(graph, veus)[1] == [4.0 + 1 + 2]
    assert times(graph, veus, replace(COSTS, l2_bytes=2 * SIZE - 1))[1] == [4.0 + 1 + 1]


def test_a_part_of_what_is_read_counts_with_its_own_size():
    """A concatenation in place: a vEU reads the whole, and the other one wrote a quarter of it."""
    quarter = SIZE // 16
    whole = Buffer("whole", (SIZE // 16, 4), "float32", "output", 0)
    parts = [
        Buffer("left", (SIZE // 16, 1), "float32", "part", 1, 0, 16),
        Buffer("right", (SIZE // 16, 3), "float32", "part", 1, 4, 16),
    ]
    buffers = (
        Buffer("input", (quarter,), "float32", "input"),
        whole,
        *parts,
        Buffer("result", (1,), "float32", "output", 1),
    )
    kernel = RKernel("body", 2, ("read", "write"), 2 * US)
    operators = tuple(
        Operator(f"op{k}", (kernel,), arguments)
        for k, arguments in enumerate(((0, 2), (0, 3), (1, 4)))
    )
    graph = OperatorGraph("test", buffers, operators)
    veus = [[(0, 0, 2)], [(1, 0, 2), (2, 0, 2)]]
    assert times(graph, veus) == [[4.0], [4.0, 4.0 + 1 + 0.25]]


@pytest.mark.parametrize(("rows", "fetched"), [((0, 4), 0.0), ((2, 6), 0.25), ((4, 8), 0.5)])
def test_rows_of_a_concatenation_that_a_veu_wrote_itself_are_there(rows, fetched):
    """The first half of the rows of one of two equal parts; then 4 of the 8 rows of both."""
    half = SIZE // 2
    buffers = (
        Buffer("input", (half // 4,), "float32", "input"),
        Buffer("whole", (8, SIZE // 32), "float32", "output", 0),
        Buffer("left", (8, SIZE // 64), "float32", "part", 1, 0, SIZE // 8),
        Buffer("result", (1,), "float32", "output", 1),
    )
    first, last = rows
    across = CELLS // 8
    read = sum((1 << across) - 1 << across * row for row in range(first, last))
    write = RKernel("write", 2, ("read", "write"), 2 * US, footprints=(WHOLE, DIVIDED))
    use = RKernel("use", 1, ("read", "write"), 4 * US, footprints=((read,) * TILE_RANGES, WHOLE))
    operators = (Operator("write", (write,), (0, 2)), Operator("use", (use,), (1, 3)))
    graph = OperatorGraph("test", buffers, operators)
    found = times(graph, [[(0, 0, 1), (1, 0, 1)], [(0, 1, 2)]])
    assert found[0][1] == 4.0 + (1 + fetched / 2 if fetched else 0)
