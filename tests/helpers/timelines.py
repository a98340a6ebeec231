"""Small programs with their timelines, for the tests of the views."""

from __future__ import annotations

from dataclasses import replace

from fuzzing.random_graphs import random_graph
from fuzzing.random_programs import random_program

from tvm_rammer.rprogram import Buffer, RKernel, ROperator, RProgram, RTask, Wait
from tvm_rammer.schedule import CostModel, Span, Timeline, simulate

US = 1e-6
COSTS = CostModel(point_to_point=0.1 * US, barrier=0.3 * US, launch=1 * US)


def two_branches(name: str = "matmul") -> RProgram:
    """A convolution on vEU 0 beside a matmul on vEU 1, then an addition half on each."""
    shape = (4, 8)
    return RProgram(
        name="two_branches",
        policy="wavefront",
        buffers=(
            Buffer("x", shape, "float32", "input"),
            Buffer("a", shape, "float32", "arena"),
            Buffer("b", shape, "float32", "arena", offset=128),
            Buffer("out", shape, "float32", "output"),
        ),
        kernels=(
            RKernel("fused_conv2d_relu", 4, ("read", "write"), 1 * US, "convolution", "1x8"),
            RKernel("matmul", 2, ("read", "write"), 3 * US, "matmul", "2x8"),
            RKernel("add", 4, ("read", "read", "write"), 0.5 * US, "generic", "1x8"),
        ),
        operators=(
            ROperator("conv", 0, (0, 1)),
            ROperator(name, 1, (0, 2)),
            ROperator("add", 2, (1, 2, 3)),
        ),
        veus=(
            (RTask(0, 0, 4), RTask(2, 0, 2, (Wait(1, 1),), wave=1)),
            (RTask(1, 0, 2), RTask(2, 2, 4, (Wait(0, 1),), wave=1)),
        ),
        arena_bytes=256,
    )


def simulated(program: RProgram) -> Timeline:
    return simulate(program, COSTS)


def random_plan(rng, veus: int = 3, operators: int = 30) -> RProgram:
    """A random program with all sorts of waits."""
    return random_program(random_graph(rng, "mixed", operators), veus, rng)


def shifted(timeline: Timeline, **changes: object) -> Timeline:
    """The timeline with its first span changed."""
    first: Span = timeline.spans[0]._replace(**changes)
    return replace(timeline, spans=(first, *timeline.spans[1:]))
