"""What blocks read of their own: counted along each block, and worth no more than its loads."""

from __future__ import annotations

import count_own_reads
from bench.own_reads import own_reads
from click.testing import CliRunner

from tvm_rammer.backend.cuda.arch_target import costs_of
from tvm_rammer.rprogram import Buffer, RKernel, ROperator, RProgram, RTask, Wait

US = 1e-6
HALVES = 2**128 - 1
#: Two tiles, each of half of what it reads and writes.
KERNEL = RKernel("half", 2, ("read", "write"), 5 * US, footprints=((HALVES, HALVES << 128),) * 2)


def two_steps(swapped: bool) -> RProgram:
    """The second operator reads the first one's halves, on their blocks or each on the other."""
    buffers = (
        Buffer("x", (64,), "float32", "input"),
        Buffer("y", (64,), "float32", "arena"),
        Buffer("z", (64,), "float32", "output"),
    )
    operators = (ROperator("first", 0, (0, 1)), ROperator("second", 0, (1, 2)))
    veus = []
    for veu in (0, 1):
        tile, waits = (1 - veu, (Wait(1 - veu, 1),)) if swapped else (veu, ())
        veus.append((RTask(0, veu, veu + 1), RTask(1, tile, tile + 1, waits, 1)))
    return RProgram("two", "by hand", buffers, (KERNEL,), operators, tuple(veus), 256)


def test_what_the_block_itself_wrote_is_its_own():
    costs = costs_of("sm_90")
    apart = own_reads(two_steps(swapped=True), costs, "sm_90")
    assert (apart.reads, apart.own, apart.nbytes, apart.own_bytes, apart.saved) == (2, 0, 256, 0, 0)
    together = own_reads(two_steps(swapped=False), costs, "sm_90")
    assert (together.reads, together.own, together.own_bytes) == (2, 2, 256)
    # One trip to the L2 cache, a fraction of a microsecond.
    assert 0.05 * US < together.saved < 0.5 * US < together.seconds


def test_the_script_counts_models():
    result = CliRunner().invoke(count_own_reads.main, ["--quick", "--models", "mixture_of_experts"])
    assert result.exit_code == 0, result.output
    assert "mixture_of_experts" in result.output and "%" in result.output
