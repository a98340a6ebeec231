"""Operators are cut so that vEUs read what they wrote, as far as that is worth it."""

from __future__ import annotations

from dataclasses import replace

from graphs import US, costs

from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.rprogram.program import CELLS, TILE_RANGES
from tvm_rammer.schedule import Placed, Placement, synchronise
from tvm_rammer.schedule.agree import Ranges, Slot, agree, spread

SIZE = 1 << 14
COSTS = replace(costs(), transfer=0.1 * US, transfer_byte=1 * US / SIZE)
ROWS = tuple((1 << CELLS // TILE_RANGES) - 1 << start for start in range(0, CELLS, 4))


def cut(operators: list[tuple[list[int], float]], ranges: list[Ranges]) -> dict[int, Ranges]:
    """What agreeing makes of operators of 64 tiles: (whose rows they read, us of all tiles)."""
    buffers = [Buffer("input", (SIZE // 4,), "float32", "input")]
    made, veus = [], [[], []]
    for number, (before, time) in enumerate(operators):
        reads = [p + 1 for p in before] or [0]
        modes = (*["read"] * len(reads), "write")
        body = RKernel("body", 64, modes, time * US / 64, footprints=(ROWS,) * len(modes))
        buffers.append(Buffer(f"result{number}", (SIZE // 4,), "float32", "output", number))
        made.append(Operator(f"op{number}", (body,), (*reads, number + 1)))
        for veu, (start, stop) in ranges[number].items():
            veus[veu].append(Placed(number, 0, start, stop, number))
    graph = OperatorGraph("test", tuple(buffers), tuple(made))
    program = synchronise(graph, Placement("test", tuple(map(tuple, veus))))
    slots = {n: Slot(float(n), each, {}, (0, 1)) for n, each in enumerate(ranges)}
    return agree(program, slots, COSTS)


EVEN = {0: (0, 32), 1: (32, 64)}
TWISTED = {0: (32, 64), 1: (0, 32)}
ONE = {0: (0, 64)}


def test_what_agrees_already_stays():
    assert cut([([], 16), ([0], 16), ([1], 16)], [EVEN, EVEN, EVEN]) == {}


def test_a_chain_agrees():
    before = [EVEN, TWISTED, EVEN]
    found = cut([([], 16), ([0], 16), ([1], 16)], before)
    after = [found.get(number, ranges) for number, ranges in enumerate(before)]
    assert after in ([EVEN] * 3, [TWISTED] * 3)


def test_a_reader_follows_one_whom_another_reader_follows():
    """Turning the start round would serve two of three."""
    found = cut([([], 16), ([0], 16), ([0], 16), ([0], 16)], [TWISTED, EVEN, EVEN, TWISTED])
    assert found in ({0: EVEN, 3: EVEN}, {1: TWISTED, 2: TWISTED})


def test_branches_that_meet_agree():
    diamond = [([], 16), ([0], 16), ([0], 16), ([1, 2], 16)]
    found = cut(diamond, [EVEN, EVEN, TWISTED, EVEN])
    assert found == {2: EVEN}


def test_who_has_it_all_shares_long_work_nevertheless():
    found = cut([([], 0.2), ([0], 99)], [ONE, ONE])
    assert found[1] == EVEN


def test_uneven_cuts_are_made_even_together():
    uneven = {0: (0, 20), 1: (20, 64)}
    assert cut([([], 16), ([0], 16)], [uneven, uneven]) == {0: EVEN, 1: EVEN}


def test_few_tiles_are_spread_over_all_places():
    assert spread(2, (0, 1, 2, 3)) == {1: (0, 1), 3: (1, 2)}
    assert spread(5, (3, 7)) == {3: (0, 2), 7: (2, 5)}
