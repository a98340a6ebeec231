"""Rules of schedules for sums beside dlight's, and what rules for products begin with.

dlight lets one thread add up all terms of a result where it does not know better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from tvm import s_tir, sym, tirx
from tvm.s_tir.dlight import gpu
from tvm.s_tir.dlight.analysis import get_root_block, normalize_prim_func
from tvm.s_tir.dlight.base import try_inline
from tvm.s_tir.dlight.gpu.matmul import (
    IterKind,
    detect_iter_traits,
    get_index_map,
    get_reduction_blocks,
    make_iter_fusion_index_map,
)

from tvm_rammer.backend.cuda.devices import WARP_THREADS
from tvm_rammer.kernel.blocks import is_reduced, is_reduction, loads, root_blocks, variables
from tvm_rammer.kernel.nodes import collect

#: Tiles of products have so many results of a side at most, and all others divide that.
_WIDEST_TILE = 128
#: Of a loop: nvcc writes out those in it that are to be, and faster than TVM does.
NOT_UNROLLED = "pragma_unroll_explicit"


class BlockReduction(gpu.GeneralReduction):
    """dlight's rule of a block for every result, where neighbouring threads read neighbours."""

    def apply(self, func: tirx.PrimFunc, target: Any, _: bool) -> s_tir.Schedule | None:
        """As rules of dlight do; of products only those whose terms lie side by side."""
        sch = s_tir.Schedule(func)
        for block in normalize_prim_func(sch) or ():
            if len(terms_read(sch, block)) > 1 and not _side_by_side(sch, block):
                return None
        return super().apply(func, target, _)


@dataclass(frozen=True)
class SplitSum:
    """A sum over some axes whose terms the threads of a block share out, then add up.

    Results of neighbours are a thread apart, or terms are: whichever lie side by side in memory.
    Where the larger operand's terms do not, threads that take them load a sector each, and measured
    on an H200 an LSTM takes 1.6 times as long.

    Attributes
    ----------
    outputs, parts : int
        Results of a block, and threads for each, at most: so many as also divide the innermost axis
        of results, and of terms.
    terms_apart : bool
        Neighbouring threads take terms of one result; otherwise neighbouring results.
    """

    outputs: int
    parts: int
    terms_apart: bool = False

    def apply(self, func: tirx.PrimFunc, target: Any, _: bool) -> s_tir.Schedule | None:
        """As rules of dlight do: a schedule, or None of what is no such sum."""
        found = sum_and_after(func)
        if found is None:
            return None
        sch, main, after = found
        results, terms = _loops(main, "S"), _loops(main, "R")
        count = prod(int(sch.get(loop).extent) for loop in results)
        if any(not e.is_injective() or prod(map(int, e.dom())) != count for e in after):
            return None
        if self.terms_apart and not _side_by_side(sch, main):
            return None
        # What is computed later of a block's results must be a box of them.
        outputs = gcd(self.outputs, int(sch.get(results[-1]).extent))
        parts = gcd(self.parts, int(sch.get(terms[-1]).extent))
        if outputs * parts < WARP_THREADS:
            return None
        sch.reorder(*results, *terms)
        outer, _ = sch.split(results[-1], [None, outputs])
        sch.fuse(*results[:-1], outer)
        _, part = sch.split(terms[-1], [None, parts])
        self._add_up(sch, main.block_rv, sch.rfactor(part, 0))
        for each in after:
            sch.set_scope(main.block_rv, 0, "local")
            block = sch.get_loops(main.block_rv)[0]
            sch.reverse_compute_at(each.block_rv, block, preserve_unit_loops=True)
            sch.bind(sch.fuse(*sch.get_loops(each.block_rv)[1:]), self._axes[0])
        return sch

    @property
    def _axes(self) -> tuple[str, str]:
        """Which threads take other results, and which other terms."""
        axes = ("threadIdx.x", "threadIdx.y")
        return axes[::-1] if self.terms_apart else axes

    def _add_up(self, sch: s_tir.Schedule, total: Any, partial: Any) -> None:
        """Every thread sums its part of the terms, then all threads of a result theirs."""
        block, result, *steps, part = sch.get_loops(partial)
        sch.reorder(block, part, result, *steps)
        sch.bind(block, "blockIdx.x")
        sch.bind(result, self._axes[0])
        sch.bind(part, self._axes[1])
        sch.set_scope(partial, 0, "local")
        sch.decompose_reduction(partial, steps[0])
        sch.reverse_compute_at(total, block, preserve_unit_loops=True)
        _, part, *results = sch.get_loops(total)
        result = sch.fuse(*results)
        sch.reorder(result, part)
        sch.bind(result, self._axes[0])
        sch.bind(part, self._axes[1])


def sum_and_after(func: tirx.PrimFunc) -> tuple[s_tir.Schedule, Any, list[Any]] | None:
    """A schedule to begin with, its sum over some axes, and the block after it if there is one.

    None of what is no such sum once TVM has inlined what it can.
    """
    sch = s_tir.Schedule(func)
    found = normalize_prim_func(sch)
    blocks = found and try_inline(sch, found)
    if not blocks or len(blocks) > 2 or set(blocks[0].dom_kind()) != {"S", "R"}:
        return None
    return sch, blocks[0], list(blocks[1:])


def moves_what_is_padded(func: tirx.PrimFunc) -> bool:
    """Whether a product that is padded to whole tiles is read where padding seems to be a result.

    As phases of a transposed convolution are, of which a result's place is ``2 * m + phase``: TVM
    asks whether that place is there, which it also is for phases that are padding, and writes them
    over results of others. What comes after takes a remainder for the axis that padding lengthens.
    """
    sch = s_tir.Schedule(func)
    blocks = root_blocks(sch)
    products = [block for block in blocks if is_reduction(sch, block)]
    if len(products) != 1:
        return False
    product = sch.get(products[0])
    result = product.writes[0].source
    lengthened = _lengthened(product, result)
    return any(
        collect(index, tirx.FloorMod, tirx.Mod)
        for block in blocks
        if block != products[0]
        for indices in _indices_of(sch.get(block), result)
        for number, index in enumerate(indices)
        if number in lengthened
    )


def leaves_out_results(func: tirx.PrimFunc) -> bool:
    """Whether what comes after a sum reads one place alone of an axis of its results.

    As a transposed convolution does whose result has fewer places than there are phases. TVM moves
    what comes after into every block of threads, and has no index to ask by whether that place is
    the block's: those that have others write what they do not know.
    """
    sch = s_tir.Schedule(func)
    blocks = root_blocks(sch)
    sums = [block for block in blocks if is_reduction(sch, block)]
    results = [sch.get(each).writes[0].source for each in sums]
    return any(
        int(extent) > 1 and not variables(index)
        for result in results
        for block in blocks
        if block not in sums
        for indices in _indices_of(sch.get(block), result)
        for extent, index in zip(result.shape, indices, strict=True)
    )


@dataclass(frozen=True)
class Product:
    """The block of a product, or of a convolution as one, of M x N results with K terms each."""

    block: Any
    m: int
    n: int
    k: int


def product_of(sch: s_tir.Schedule) -> Product | None:
    """The first block with sums if it is a product."""
    blocks = get_reduction_blocks(sch, sch.get_child_blocks(get_root_block(sch)))
    traits = detect_iter_traits(sch.get(blocks[0])) if blocks else None
    if traits is None:
        return None
    extents = dict.fromkeys((IterKind.kIter_I, IterKind.kIter_J, IterKind.kIter_K), 1)
    for trait in traits[3]:
        if trait.kind in extents:
            extents[trait.kind] *= int(trait.extent)
    return Product(blocks[0], *extents.values())


def normalize_product(sch: s_tir.Schedule, main: Any, *, second_by_rows: bool = False) -> None:
    """Make a product C[S, I, J] += A[S, I, K] * B[S, J, K], or with B[S, K, J]."""
    factors = [sch.reindex(main, ("read", number)) for number in (0, 1)]
    result = sch.reindex(main, ("write", 0))
    block = sch.get(main)
    whole, a, b, c = get_index_map(block)
    if second_by_rows:
        _, traits, _, _ = detect_iter_traits(block)
        b = make_iter_fusion_index_map(
            traits, [IterKind.kIter_S, IterKind.kIter_K, IterKind.kIter_J]
        )
    for factor, found in zip(factors, (a, b), strict=True):
        sch.transform_layout(factor, ("write", 0), found)
    sch.transform_layout(result, ("read", 0), c)
    sch.transform_block_layout(main, whole)


def ends_with_terms(block: Any, number: int) -> bool:
    """Whether neighbours in memory of a factor are terms of one sum, and no results."""
    last = variables(block.reads[number].region[-1].min)
    return not any(axis.var in last for axis in block.iter_vars if not is_reduced(axis))


def _indices_of(block: Any, buffer: Any) -> Iterator[list[Any]]:
    """Where a block reads a buffer, simplified: reshapes have remainders that are none."""
    analyzer = sym.Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    for load in loads(block.body):
        if load.source.same_as(buffer):
            yield [analyzer.simplify(index) for index in load.indices]


def _lengthened(product: Any, result: Any) -> set[int]:
    """The axes of a result that padding makes longer: of M and of N the first one of each.

    It is the first that has several places: TVM drops those of one.
    """
    operands = [load for load in loads(product.body) if not load.source.same_as(result)]
    groups: dict[tuple[bool, ...], list[Any]] = {}
    for axis in product.iter_vars:
        if not is_reduced(axis):
            # Those that the same operands are read along are one side of the product.
            read = tuple(any(axis.var in variables(i) for i in load.indices) for load in operands)
            groups.setdefault(read, []).append(axis)
    padded: list[Any] = []
    for axes in groups.values():
        extents = [int(axis.dom.extent) for axis in axes]
        if prod(extents) % _WIDEST_TILE:
            first = next((k for k, extent in enumerate(extents) if extent > 1), len(axes) - 1)
            padded += [axis.var for axis in axes[: first + 1]]
    (store,) = collect(product.body, tirx.BufferStore)
    return {
        number
        for number, index in enumerate(store.indices)
        if any(each in padded for each in variables(index))
    }


def _loops(block: Any, kind: str) -> list[Any]:
    return [each.loop_rv for each in block.iters if each.kind == kind]


def _side_by_side(sch: s_tir.Schedule, block: Any) -> bool:
    """Whether the terms of a sum lie side by side in the largest operand that is read for them."""
    read = terms_read(sch, block)
    largest = max(read, key=lambda each: prod(map(int, each.source.shape)), default=None)
    terms = _terms(sch, block)
    return largest is not None and terms[-1] in variables(largest.indices[-1])


def terms_read(sch: s_tir.Schedule, block: Any) -> list[Any]:
    """The loads of a block that differ from term to term."""
    terms = set(_terms(sch, block))
    return [
        load
        for load in loads(sch.get(block.block_rv).body)
        if any(variables(index) & terms for index in load.indices)
    ]


def _terms(sch: s_tir.Schedule, block: Any) -> list[Any]:
    axes = sch.get(block.block_rv).iter_vars
    return [each.var for each in axes if each.iter_type == tirx.IterVar.CommReduce]
