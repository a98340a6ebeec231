"""The budget of code that no rTask body exceeds, whatever rule made it.

LLVM's time grows faster than the code. Of a body that would be too large the longest unrolled loops
stay loops, until it is not: then its registers lie in memory, but its compilation ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import tirx

from tvm_rammer.kernel.code_size import CodeSize, code_size, is_unrolled
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.kernel.split import root_nests

#: Twice what the largest bodies of the measured networks have, which LLVM takes a second for.
BUDGET = CodeSize(statements=512, nodes=50_000)


def within_budget(scheduled: Scheduled, budget: CodeSize = BUDGET) -> Scheduled | None:
    """What a rule made, its loops rolled as far as a budget demands.

    Returns
    -------
    Scheduled or None
        ``None`` where that is not enough: another rule must do. A finer tiling that does not fit is
        left out, with those after it.
    """
    body = scheduled.func.body
    for nest in root_nests(body):
        small = _rolled(nest, budget)
        if small is None:
            return None
        if small is not nest:
            body = _replaced(body, nest, small)
    func = scheduled.func if body is scheduled.func.body else scheduled.func.with_body(body)
    finer = scheduled.finer and within_budget(scheduled.finer, budget)
    return replace(scheduled, func=func, finer=finer)


def _rolled(nest: Any, budget: CodeSize) -> Any | None:
    """A statement that is within a budget, ``None`` where no loop is left to be rolled."""
    while not _fits(nest, budget):
        lengths = [int(loop.extent) for loop in collect(nest, tirx.For) if is_unrolled(loop)]
        if not lengths:
            return None

        def roll(loop: Any, longest: int = max(lengths)) -> Any:
            if not is_unrolled(loop) or int(loop.extent) < longest:
                return loop
            bounds = (loop.loop_var, loop.min, loop.extent)
            return tirx.For(*bounds, tirx.ForKind.SERIAL, loop.body)

        nest = tvm_ffi.structural_map(nest, (tirx.For, roll))
    return nest


def _fits(nest: Any, budget: CodeSize) -> bool:
    size = code_size(nest)
    return size.statements <= budget.statements and size.nodes <= budget.nodes


def _replaced(body: Any, nest: Any, other: Any) -> Any:
    def replace_nest(statement: Any) -> Any:
        return other if statement.same_as(nest) else statement

    return tvm_ffi.structural_map(body, (type(nest), replace_nest))
