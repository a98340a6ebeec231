"""Small graphs and devices for the tests of the policies."""

from __future__ import annotations

from dataclasses import replace

from fuzzing.random_graphs import SHAPES, random_graph
from hypothesis import strategies as st

from tvm_rammer.machine.vdevice import MemoryCosts, VDevice
from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.schedule import CostModel, Placement

US = 1e-6


def device(num_veus: int) -> VDevice:
    """A device with round costs: 1 us launch, 0.3 us barrier, 0.1 us point to point.

    All data are as near as those of the last-level cache.
    """
    return VDevice(
        "test",
        num_veus=num_veus,
        launch_seconds=1 * US,
        barrier_seconds=0.3 * US,
        point_to_point_seconds=0.1 * US,
        memory=MemoryCosts(transfer=0.0, transfer_byte=0.0),
    )


def costs() -> CostModel:
    return CostModel.of(device(1))


def kernel(tiles: int, microseconds: float, reads: int = 1, name: str = "body") -> RKernel:
    """``tiles`` tiles that take ``microseconds`` each."""
    modes = (*["read"] * reads, "write")
    return RKernel(name, tiles, modes, microseconds * US)


def graph(*operators: tuple[list[int], list[tuple[int, float]]], nbytes: int = 256):
    """Operators as (predecessors, [(tiles, microseconds per tile) of each candidate]).

    Buffer 0 is the input, buffer ``n + 1`` is the result of operator ``n``; the last one is the
    output.
    """
    count = len(operators)
    buffers = [Buffer("input", (nbytes // 4,), "float32", "input")]
    made = []
    for number, (before, candidates) in enumerate(operators):
        space = "output" if number == count - 1 else "arena"
        buffers.append(Buffer(f"result{number}", (nbytes // 4,), "float32", space))
        arguments = (*(p + 1 for p in before), number + 1) if before else (0, number + 1)
        kernels = tuple(
            kernel(tiles, time, len(arguments) - 1, f"body{tiles}x{time}")
            for tiles, time in candidates
        )
        made.append(Operator(f"op{number}", kernels, arguments))
    return OperatorGraph("test", tuple(buffers), tuple(made))


@st.composite
def graphs(draw, max_operators: int = 60, empty_buffers: bool = True) -> OperatorGraph:
    """A graph in one of the shapes of real networks."""
    made = random_graph(
        draw(st.integers(0, 2**32 - 1)),
        draw(st.sampled_from(SHAPES)),
        draw(st.integers(1, max_operators)),
    )
    if empty_buffers:
        return made
    filled = [replace(b, shape=tuple(max(1, n) for n in b.shape)) for b in made.buffers]
    return replace(made, buffers=tuple(filled))


def ranges(placement: Placement) -> list[list[tuple[int, int, int]]]:
    """Which tiles of which operators each vEU has, in its order."""
    return [[(p.operator, p.start, p.stop) for p in veu] for veu in placement.veus]
