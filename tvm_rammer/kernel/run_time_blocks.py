"""Operators of as many places as the run finds, as blocks of numbers of places that are known."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import sym, tirx

from tvm_rammer.kernel.cut_operators import Block, cut, open_axes, open_sizes
from tvm_rammer.kernel.loop_nests import LoopNest, NotInBlocksError, nests_of
from tvm_rammer.kernel.nodes import substitute

#: Terms of sums that a block has at least, if its results are no more elements than that: else
#: handing it out takes longer.
_TERMS, _ELEMENTS = 1 << 21, 1 << 16
#: Places that a block has at least: as many times its weights are used.
_LEAST_PLACES = 32
#: Of what whole blocks leave, one of so many parts is computed at a time.
_SMALLER = 4
#: Where nothing is summed, elements that come at once are so many at least: fewer are soon made.
_LEAST_ELEMENTS = 8


def run_time_blocks(func: tirx.PrimFunc) -> tuple[Block, ...]:
    """The blocks of an operator with one open axis, the largest first; none if it cannot be cut.

    That is where a place is not computed from neighbours alone, or takes too little to be worth it.
    Parameters that are numbers are sizes, which blocks do not ask for.
    """
    if len(open_sizes(func)) != 1 or len(open_axes(func.params[-1])) != 1:
        return ()
    try:
        nests = nests_of(func)
        places = _places(func, nests)
        return tuple(cut(func, nests, [each], [each]) for each in places)
    except NotInBlocksError:
        return ()


def _places(func: tirx.PrimFunc, nests: Sequence[LoopNest]) -> list[int]:
    """How many places blocks have: as many as come at once, times a power of two."""
    result = func.params[-1]
    (axis,) = open_axes(result)
    size, (symbol,) = result.shape[axis], open_sizes(func)
    step = sym.Analyzer().simplify(substitute(size, {symbol: symbol + 1}) - size)
    unit = max(1, int(step)) if isinstance(step, tirx.IntImm) else 1
    elements = prod(int(each) for k, each in enumerate(result.shape) if k != axis)
    if unit * elements < _LEAST_ELEMENTS and not any(nest.sums for nest in nests):
        raise NotInBlocksError
    wanted = min(_ELEMENTS // max(1, elements), max(_LEAST_PLACES, _TERMS // terms_of(nests)))
    counts = [wanted, wanted // _SMALLER]
    if any(nest.sums for nest in nests):
        # A block of a product takes as long for the places that there are none of.
        counts += [min(_LEAST_PLACES, counts[-1]), 1]
    lengths = (unit << max(0, (count // unit).bit_length() - 1) for count in counts)
    return list(dict.fromkeys(lengths))


def terms_of(nests: Sequence[LoopNest]) -> int:
    """Terms of the sums of a place."""
    known = (
        [int(var.dom.extent) for var in nest.block.iter_vars if _is_known(var)]
        for nest in nests
        if nest.sums
    )
    return max(1, sum(map(prod, known)))


def _is_known(var: Any) -> bool:
    return isinstance(var.dom.extent, tirx.IntImm)
