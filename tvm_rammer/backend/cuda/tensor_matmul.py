"""A rule of schedules for products of float16 on tensor cores.

dlight has one (``MatmulTensorization``) for blocks of 512 threads; this one is made alike, for
those that are resident here, and keeps the second factor by rows where it lies so in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.gpu.matmul import (
    auto_inline_consumer_chain,
    auto_inline_producers,
)

from tvm_rammer.backend.cuda import tensor_intrinsics as intrinsics
from tvm_rammer.backend.cuda.block_tilings import (
    Product,
    ends_with_terms,
    moves_what_is_padded,
    normalize_product,
    product_of,
)
from tvm_rammer.backend.cuda.devices import WARP_THREADS

_SIDE = intrinsics.SIDE
#: Elements that a thread moves at once, and by which rows in shared memory are longer: those of a
#: fragment lie in banks of their own then, and begin where they can be loaded.
_VECTOR, _LONGER = 4, 8


@dataclass(frozen=True)
class TensorMatmul:
    """Products, and convolutions as products, whose factors are float16, on tensor cores.

    Parameters
    ----------
    warps : tuple of int
        Of a block, along M and along N.
    fragments : tuple of int
        Of a warp, along M and along N: each 16 x 16 results.
    depth : int
        Fragments along K that a block has in shared memory at the same time.
    """

    warps: tuple[int, int]
    fragments: tuple[int, int]
    depth: int

    def apply(self, func: tirx.PrimFunc, target: Any, _: bool) -> s_tir.Schedule | None:
        """As rules of dlight do: a schedule, or None of what is no such product."""
        if moves_what_is_padded(func):
            return None
        sch = s_tir.Schedule(func)
        product = product_of(sch)
        if product is None or not _has_fragments(sch.get(product.block), product):
            return None
        main = product.block
        dtype = str(sch.get(main).writes[0].source.dtype)
        by_columns = ends_with_terms(sch.get(main), 1)
        normalize_product(sch, main, second_by_rows=not by_columns)
        rows, columns = (_SIDE * w * f for w, f in zip(self.warps, self.fragments, strict=True))
        sch.pad_einsum(main, [1, rows, columns, _SIDE * self.depth])
        batch, i, j, k = sch.get_loops(main)
        (i, ii), (j, jj), (k, kk) = (sch.split(loop, [None, _SIDE]) for loop in (i, j, k))
        sch.reorder(i, j, k, ii, jj, kk)
        outer = sch.blockize(ii)
        i0, i1, i2 = sch.split(i, [None, self.warps[0], self.fragments[0]])
        j0, j1, j2 = sch.split(j, [None, self.warps[1], self.fragments[1]])
        k0, k1 = sch.split(k, [None, self.depth])
        sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
        warp = sch.fuse(i1, j1)
        for loop, axis in ((batch, "z"), (i0, "x"), (j0, "y")):
            sch.bind(loop, f"blockIdx.{axis}")
        sch.bind(warp, "threadIdx.y")
        for number in (0, 1):
            self._share(sch, outer, number, k0)
        loads = [sch.cache_read(outer, n, f"wmma.matrix_{name}") for n, name in enumerate("ab")]
        for load, name in zip(
            loads, (intrinsics.load("a"), intrinsics.load("b", by_columns)), strict=True
        ):
            sch.compute_at(load, k1)
            sch.tensorize(_fragments(sch, load), name)
        shared = sch.cache_write(outer, 0, intrinsics.SUMS_SCOPE)
        store = sch.cache_write(outer, 0, "wmma.accumulator")
        for block in (store, shared):
            sch.reverse_compute_at(block, warp)
        sch.tensorize(_fragments(sch, store), intrinsics.store(dtype))
        fill = sch.decompose_reduction(outer, k0)
        (inner,) = sch.get_child_blocks(fill)
        sch.tensorize(sch.get_loops(inner)[-2], intrinsics.fill(dtype))
        sch.tensorize(sch.get_loops(main)[-3], intrinsics.product(dtype, by_columns))
        auto_inline_consumer_chain(sch, shared)
        self._spread(sch, shared, [None, WARP_THREADS, _VECTOR], ["threadIdx.x"])
        return sch

    def _share(self, sch: s_tir.Schedule, outer: Any, number: int, step: Any) -> None:
        """All threads of a block bring a factor's part for a step to shared memory."""
        block = sch.cache_read(outer, number, intrinsics.FACTORS_SCOPE)
        sch.compute_at(block, step)
        self._spread(
            sch,
            block,
            [None, self.warps[0] * self.warps[1], WARP_THREADS, _VECTOR],
            ["threadIdx.y", "threadIdx.x"],
        )
        sch.storage_align(block, 0, axis=-2, factor=2 * _LONGER, offset=_LONGER)
        auto_inline_producers(sch, block)

    def _spread(
        self, sch: s_tir.Schedule, block: Any, factors: list[int | None], axes: list[str]
    ) -> None:
        """Let threads move the last two axes of a block, vectors by vectors."""
        _, *threads, vector = sch.split(sch.fuse(*sch.get_loops(block)[-2:]), factors)
        for loop, axis in zip(threads, axes, strict=True):
            sch.bind(loop, axis)
        sch.vectorize(vector)


def _has_fragments(block: Any, product: Product) -> bool:
    """Whether a product is one of float16 that is worth fragments."""
    factors = [str(read.source.dtype) for read in block.reads]
    sums = [str(write.source.dtype) for write in block.writes]
    if factors != ["float16"] * 2 or sums not in (["float16"], ["float32"]):
        return False
    return min(product.m, product.n, product.k) >= _SIDE


def _fragments(sch: s_tir.Schedule, block: Any) -> Any:
    """Cut the last two axes of a block into fragments; the first loop of what is one."""
    i, j = sch.get_loops(block)[-2:]
    (i, ii), (j, jj) = sch.split(i, [None, _SIDE]), sch.split(j, [None, _SIDE])
    sch.reorder(i, j, ii, jj)
    sch.unroll(i)
    sch.unroll(j)
    return ii
