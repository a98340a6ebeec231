"""Who waits for tiles waits for whom it reads; who has a halo waits for nobody."""

from __future__ import annotations

from dataclasses import replace

import bound_halo
import pytest

from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.rprogram.program import CELLS, TILE_RANGES
from tvm_rammer.schedule import CostModel, Placed, Placement, simulate, synchronise

US = 1e-6
COSTS = CostModel(point_to_point=1 * US, barrier=0.0, launch=0.0, transfer=2 * US)
SIZE = 1 << 14
#: Each range of tiles has the next few cells, or a range more on either side.
ROWS = tuple((1 << CELLS // TILE_RANGES) - 1 << start for start in range(0, CELLS, 4))
HALO = tuple(
    ROWS[k] | ROWS[max(0, k - 1)] | ROWS[min(TILE_RANGES - 1, k + 1)] for k in range(TILE_RANGES)
)


def plan(reads):
    """Two operators of 64 tiles of 1 us, a half of each on one of two vEUs."""
    buffers = [Buffer("input", (SIZE // 4,), "float32", "input")]
    buffers += [Buffer(f"result{k}", (SIZE // 4,), "float32", "output", k) for k in range(2)]
    kernels = [
        RKernel(f"body{k}", 64, ("read", "write"), 1 * US, footprints=(read, ROWS))
        for k, read in enumerate((ROWS, reads))
    ]
    operators = tuple(Operator(f"op{k}", (kernel,), (k, k + 1)) for k, kernel in enumerate(kernels))
    veus = (
        (Placed(0, 0, 0, 32, 0), Placed(1, 0, 0, 32, 1)),
        (Placed(0, 0, 32, 64, 0), Placed(1, 0, 32, 64, 1)),
    )
    return synchronise(OperatorGraph("test", tuple(buffers), operators), Placement("test", veus))


def waits(program):
    return [[len(task.waits) for task in mine] for mine in program.veus]


def test_where_partitions_agree_nobody_waits():
    program = plan(ROWS)
    assert waits(program) == [[0, 1], [0, 1]]
    assert waits(bound_halo.waiting_for_tiles(program, "waited for")) == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("halo", "microseconds"),
    # A wait and a transfer, or a tile once more, or nothing.
    [("waited for", 32 + 1 + 32 + 2), ("computed", 32 + 1 + 32), ("free", 32 + 32)],
)
def test_a_halo_is_waited_for_or_computed_or_free(halo, microseconds):
    relaxed = bound_halo.waiting_for_tiles(plan(HALO), halo)
    assert waits(relaxed) == ([[0, 1], [0, 1]] if halo == "waited for" else [[0, 0], [0, 0]])
    assert simulate(relaxed, COSTS).makespan == pytest.approx(microseconds * US)


def test_who_reads_everything_has_no_halo():
    """Of a half the own vEU has no more than the other one."""
    program = plan(())
    for halo in ("waited for", "computed", "free"):
        assert waits(bound_halo.waiting_for_tiles(program, halo)) == [[0, 1], [0, 1]]


def test_a_plan_comes_before_those_that_wait_for_less():
    found = bound_halo.seconds_of([plan(HALO)], replace(COSTS, transfer_byte=1e-10))
    assert found[0] == found[1] >= found[3] >= found[4]
