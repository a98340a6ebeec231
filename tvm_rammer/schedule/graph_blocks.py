"""Cut a graph into blocks where few tensors are live, for policies that search."""

from __future__ import annotations

from itertools import accumulate, pairwise

from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.rows import root_of


def cut_into_blocks(graph: OperatorGraph, largest: int) -> list[range]:
    """Cut the operators' order where one intermediate result is live.

    A block that is still longer than ``largest`` is cut again where the fewest are live (between
    the cells of a NASNet there are two), nearest to its middle.

    Returns
    -------
    list of range
        Operators, in order.
    """
    live = live_results(graph)
    count = len(graph.operators)
    cuts = [cut for cut in range(1, count) if live[cut] <= 1]
    parts: list[range] = []
    for start, stop in pairwise([0, *cuts, count]):
        _halve(range(start, stop), live, largest, parts)
    return parts


def live_results(graph: OperatorGraph) -> list[int]:
    """For each operator how many results of earlier ones it or later ones read."""
    change = [0] * (len(graph.operators) + 1)
    last: dict[tuple[int, int], int] = {}
    for number, operator in enumerate(graph.operators):
        for buffer in operator.arguments:
            for writer in graph.writers[buffer]:
                if writer < number:
                    last[writer, root_of(graph.buffers, buffer)] = number
    for (writer, _), number in last.items():
        change[writer + 1] += 1
        change[number + 1] -= 1
    return list(accumulate(change))


def _halve(block: range, live: list[int], largest: int, parts: list[range]) -> None:
    if len(block) <= largest:
        if block:
            parts.append(block)
        return
    middle = (block.start + block.stop) / 2
    # Not at its ends, so that a block does not lose one operator at a time.
    margin = min(len(block) // 4, largest // 2) or 1
    inside = range(block.start + margin, block.stop - margin + 1)
    cut = min(inside, key=lambda c: (live[c], abs(c - middle), c))
    _halve(range(block.start, cut), live, largest, parts)
    _halve(range(cut, block.stop), live, largest, parts)
