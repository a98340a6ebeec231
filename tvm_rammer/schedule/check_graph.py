"""Refuse an operator graph that no policy can plan: no kernel, or one whose cost is no number."""

from __future__ import annotations

from math import isfinite

from tvm_rammer.errors import InputError
from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.program import RKernel


def check_graph(graph: OperatorGraph) -> None:
    """Raise an InputError unless all costs are finite numbers from 0.

    Policies compare and divide times without looking at them: one that is not a number puts every
    order in doubt, and an endless one is never over.
    """
    for op in graph.operators:
        if not op.candidates:
            raise InputError(f"operator {op.name!r} has no kernel; give it at least one")
        for kernel in op.candidates:
            if not _is_fine(kernel):
                raise InputError(
                    f"operator {op.name!r}: kernel {kernel.name!r} has {kernel.num_tiles} tiles "
                    f"of {kernel.tile_time} s; give it finite numbers from 0"
                )


def _is_fine(kernel: RKernel) -> bool:
    numbers = (kernel.num_tiles, kernel.tile_time)
    return all(isinstance(n, int | float) and isfinite(n) and n >= 0 for n in numbers)
