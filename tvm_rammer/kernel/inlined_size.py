"""How large expressions become when element-wise blocks are inlined, told without inlining them.

What is read twice is inlined twice, and expressions are trees: along a chain of such blocks sizes
multiply, and sixteen links of ``x * x + x`` are more nodes than any memory holds. Indices multiply
too: each place where a block mentions an axis becomes the whole index that it is read at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from tvm_rammer.kernel.blocks import distinct, is_reduced, loads
from tvm_rammer.kernel.code_size import nodes_of
from tvm_rammer.kernel.nodes import collect

#: Most nodes of an expression: fusion makes them a quarter as large, others write their own.
MOST_NODES = 8000


@dataclass(frozen=True)
class InlinedSize:
    """The size of an expression.

    Attributes
    ----------
    nodes : int
        Of the expression itself.
    reads : mapping of Var to int
        How many of its nodes are loads of each buffer that is not inlined.
    axes : mapping of int to int
        How often it mentions the axis of each index that it is stored at.
    """

    nodes: int
    reads: Mapping[Any, int]
    axes: Mapping[int, int]

    def with_operands(self, nodes: Mapping[Any, int]) -> int:
        """The nodes when loads of these buffers become expressions of so many nodes each."""
        return self.nodes + sum(
            count * nodes.get(buffer, 0) for buffer, count in self.reads.items()
        )


def inlined_sizes(func: tirx.PrimFunc) -> dict[Any, InlinedSize]:
    """What every block of a PrimFunc stores, all element-wise blocks before it inlined.

    By the buffer that a block writes, in program order. Reductions, and blocks of more than one
    statement, are computed once and loaded from then on.
    """
    return _follow(func, None)[0]


def kept_results(func: tirx.PrimFunc) -> set[Any]:
    """The buffers that blocks must not be inlined for: expressions would become too large.

    Where a block's does, all that it reads of blocks before it is kept.
    """
    return _follow(func, MOST_NODES)[1]


def _follow(func: tirx.PrimFunc, limit: int | None) -> tuple[dict[Any, InlinedSize], set[Any]]:
    """The sizes of blocks in program order, and what is kept to be within a limit."""
    found: dict[Any, InlinedSize] = {}
    inlined: dict[Any, InlinedSize] = {}
    kept: set[Any] = set()
    for block in collect(func.body, s_tir.SBlock):
        store = block.body
        if not isinstance(store, tirx.BufferStore):
            continue
        size = _size(store, inlined)
        if limit is not None and size.nodes > limit:
            read = distinct(load.source for load in loads(store.value)) & inlined.keys()
            kept |= read
            for buffer in read:
                del inlined[buffer]
            size = _size(store, inlined)
        found[store.buffer] = size
        if not any(map(is_reduced, block.iter_vars)):
            inlined[store.buffer] = size
    return found, kept


def _size(store: Any, inlined: Mapping[Any, InlinedSize]) -> InlinedSize:
    nodes = nodes_of(store.value)
    mentioned = Counter(map(hash, collect(store.value, tirx.Var)))
    reads: Counter[Any] = Counter()
    for load in loads(store.value):
        size = inlined.get(load.source)
        if size is None:
            reads[load.source] += 1
            continue
        nodes += size.nodes
        reads.update(size.reads)
        for number, index in enumerate(load.indices):
            mentions = size.axes.get(number, 0)
            nodes += mentions * (nodes_of(index) - 1)
            for var in collect(index, tirx.Var) if mentions > 1 else ():
                mentioned[hash(var)] += mentions - 1
    axes = {number: mentioned[hash(index)] for number, index in enumerate(store.indices)}
    return InlinedSize(nodes, reads, axes)
