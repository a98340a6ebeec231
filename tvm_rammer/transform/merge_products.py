"""A compiler pass that makes one product of several that share a weight and are ready together.

A vector times a matrix takes as long as reading the matrix. An unrolled recurrent network reads a
layer's input weights in every time step, although the products of several steps need nothing of
each other: as rows of one product they read the weight once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst

from tvm_rammer.machine import VDevice
from tvm_rammer.relax_util import (
    dataflow_blocks,
    operator_name,
    static_shape,
    variables_read,
    with_blocks,
    with_functions,
)
from tvm_rammer.rprogram import dtype_bytes

#: Rows of a merged product at most: what fills the registers of a core.
_MOST_ROWS = 8
#: More rows are for less than this part of the time: the estimate is a rough one.
_WORTH_MERGING = 0.98


@tvm.transform.module_pass(opt_level=0, name="MergeProducts")
class MergeProducts:
    """Merge products with the same constant that are ready together.

    Parameters
    ----------
    rows : int
        Of a merged product at most; with 1 none is merged. See :class:`Mergeable`.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Merge products in every dataflow block of a module."""

        def merged(func: relax.Function) -> relax.Function:
            return with_blocks(func, [_merged(block, self.rows) for block in func.body.blocks])

        return relax.transform.Normalize()(with_functions(mod, merged))


@dataclass(frozen=True)
class Mergeable:
    """A module with products that can be merged, before they are, and what decides how many."""

    module: tvm.IRModule
    _blocks: tuple[_Shared, ...]

    @classmethod
    def of(cls, mod: tvm.IRModule) -> Mergeable | None:
        """None if there is nothing to merge."""
        every = map(_Shared.of, dataflow_blocks(mod))
        blocks = tuple(shared for shared in every if shared.products)
        return cls(mod, blocks) if any(block.merges(_MOST_ROWS) for block in blocks) else None

    def best_rows(self, vdevice: VDevice) -> int:
        """How many rows merged products have at most where the model ends soonest.

        More rows read the weights less often, and more of what is behind them waits: many vEUs have
        little else to do meanwhile. A block takes as long as its products, spread over all vEUs, or
        as its longest path, on which every operator is handed on from one vEU to another. All but
        products is cheap beside reading the weights.

        Parameters
        ----------
        vdevice : VDevice
            How many vEUs there are, how fast they read weights, and what handing on costs.

        Returns
        -------
        int
            1 where merging gains nothing.
        """
        best, least = 1, self._seconds(vdevice, 1)
        for rows in (2, 4, _MOST_ROWS):
            if (seconds := self._seconds(vdevice, rows)) < _WORTH_MERGING * least:
                best, least = rows, seconds
        return best

    def _seconds(self, vdevice: VDevice, rows: int) -> float:
        return sum(block.seconds(vdevice, rows) for block in self._blocks)


def _merged(block: Any, rows: int) -> Any:
    """The block with merged products; the same one if there is nothing to merge."""
    if rows < 2 or not isinstance(block, relax.DataflowBlock):
        return block
    shared = _Shared.of(block)
    if not shared.merges(rows):
        return block
    return relax.DataflowBlock(
        [
            made
            for group in shared.groups(rows)
            for made in _emit([shared.bindings[n] for n in group])
        ]
    )


@dataclass(frozen=True)
class _Product:
    """A product of ``rows`` rows with a weight of ``nbytes``, of which a row has ``row_bytes``."""

    weight: Any
    rows: int
    nbytes: int
    row_bytes: int

    def seconds(self, rows: int, vdevice: VDevice) -> float:
        """What it takes a core if it has ``rows`` rows: the time of reading the weight, or more."""
        speeds = vdevice.speeds
        return self.nbytes / speeds.cache_bandwidth * max(1.0, rows / speeds.rows_of_one_read)

    def vectors(self, vdevice: VDevice) -> int:
        """On so many vEUs it can be spread."""
        return max(1, self.row_bytes // vdevice.vector_bytes)


def _shared_products(bindings: Sequence[Any]) -> dict[int, _Product]:
    """The products of few rows with a constant matrix that other products share."""
    found: dict[int, _Product] = {}
    users: dict[Any, int] = defaultdict(int)
    for number, binding in enumerate(bindings):
        call = binding.value
        if operator_name(call) != "relax.matmul" or not isinstance(call.args[1], GenericConst):
            continue
        left, right = map(static_shape, call.args)
        if left is None or right is None or len(left) != 2 or len(right) != 2:
            continue
        key = (call.args[1].value, left, str(call.ty.dtype))
        if isinstance(call.args[0], relax.Var) and 0 < 2 * left[0] <= _MOST_ROWS:
            item = dtype_bytes(str(call.ty.dtype))
            found[number] = _Product(key, left[0], right[0] * right[1] * item, right[1] * item)
            users[key] += 1
    return {number: product for number, product in found.items() if users[product.weight] > 1}


def _needs(bindings: Sequence[Any]) -> list[list[int]]:
    """The bindings of the same block that each one reads."""
    places = {binding.var: number for number, binding in enumerate(bindings)}
    return [
        [places[var] for var in variables_read(binding.value) if var in places]
        for binding in bindings
    ]


@dataclass(frozen=True)
class _Shared:
    """The bindings of a dataflow block, what each reads, and the products that share weights."""

    bindings: Sequence[Any]
    needs: Sequence[Sequence[int]]
    products: dict[int, _Product]

    @classmethod
    def of(cls, block: Any) -> _Shared:
        """Of a block without such products nothing else is looked at."""
        bindings = list(block.bindings)
        products = _shared_products(bindings)
        return cls(bindings, _needs(bindings) if products else [], products)

    def groups(self, rows: int) -> list[list[int]]:
        """The bindings in an order in which they can run, products that become one together."""
        if not self.products:
            return [[number] for number in range(len(self.bindings))]
        return _Grouping(self, rows).run()

    def merges(self, rows: int) -> bool:
        """Whether there is anything to merge."""
        return bool(self.products) and any(len(group) > 1 for group in self.groups(rows))

    @cached_property
    def users(self) -> list[list[int]]:
        """The bindings that read each one."""
        found: list[list[int]] = [[] for _ in self.needs]
        for number, before in enumerate(self.needs):
            for producer in before:
                found[producer].append(number)
        return found

    @cached_property
    def chained(self) -> dict[int, bool]:
        """For each product but the last with its weight: whether the next one needs it."""
        return _chained(self.needs, self.products)

    def seconds(self, vdevice: VDevice, rows: int) -> float:
        """What the block takes at least if products have at most so many rows."""
        alone = vdevice.num_veus == 1
        hand_over = 0.0 if alone else vdevice.point_to_point_seconds + vdevice.memory.transfer
        ends = [0.0] * len(self.bindings)
        total = 0.0
        for group in self.groups(rows):
            end = max((ends[n] for number in group for n in self.needs[number]), default=0.0)
            product = self.products.get(group[0])
            if product is not None:
                seconds = product.seconds(product.rows * len(group), vdevice)
                total += seconds
                end += seconds / min(vdevice.num_veus, product.vectors(vdevice))
            if isinstance(self.bindings[group[0]].value, Call):
                end += hand_over
            for number in group:
                ends[number] = end
        return max(total / vdevice.num_veus, max(ends))


class _Grouping:
    """A walk through a block in which products wait for others with the same weight.

    What is ready together needs nothing of each other, so that the groups can run in the order in
    which the walk finds them. A group is complete when it has ``rows`` rows, or when the next
    product with its weight needs one that is in it; if nothing else can go on, the fullest group
    goes as it is.
    """

    def __init__(self, shared: _Shared, rows: int) -> None:
        self.products = shared.products
        self.rows = rows
        self.missing = [len(before) for before in shared.needs]
        self.users = shared.users
        self.ready = [number for number, count in enumerate(self.missing) if not count]
        self.waiting: dict[Any, list[int]] = defaultdict(list)
        self.chained = shared.chained
        self.groups: list[list[int]] = []

    def run(self) -> list[list[int]]:
        """All bindings, in groups of one or of products to merge."""
        heapify(self.ready)
        while self.ready or self.waiting:
            if not self.ready:
                weight = max(
                    self.waiting, key=lambda w: (len(self.waiting[w]), -self.waiting[w][0])
                )
                self._finish(self.waiting.pop(weight))
                continue
            number = heappop(self.ready)
            product = self.products.get(number)
            if product is None:
                self._finish([number])
                continue
            group = self.waiting[product.weight]
            group.append(number)
            full = (len(group) + 1) * product.rows > self.rows
            if full or self.chained.get(number, True):
                self._finish(self.waiting.pop(product.weight))
        return self.groups

    def _finish(self, group: list[int]) -> None:
        self.groups.append(group)
        for number in group:
            for after in self.users[number]:
                self.missing[after] -= 1
                if not self.missing[after]:
                    heappush(self.ready, after)


def _chained(needs: Sequence[Sequence[int]], products: dict[int, _Product]) -> dict[int, bool]:
    """For each product but the last with its weight: whether the next one needs it."""
    bit = {number: 1 << k for k, number in enumerate(products)}
    behind = [0] * len(needs)
    for number, before in enumerate(needs):
        for producer in before:
            behind[number] |= behind[producer] | bit.get(producer, 0)
    last: dict[Any, int] = {}
    found: dict[int, bool] = {}
    for number, product in products.items():
        if product.weight in last:
            before_it = last[product.weight]
            found[before_it] = bool(behind[number] & bit[before_it])
        last[product.weight] = number
    return found


def _emit(group: Sequence[Any]) -> list[Any]:
    """The bindings of a group: themselves, or the rows of one product."""
    if len(group) == 1:
        return list(group)
    builder = relax.BlockBuilder()
    made: list[Any] = []

    def bind(name: str, value: Any) -> Any:
        value = builder.normalize(value)
        variable = relax.DataflowVar(name, value.ty)
        made.append(relax.VarBinding(variable, value))
        return variable

    first = group[0].value
    name = group[0].var.name
    rows = bind(f"{name}_rows", relax.op.concat([b.value.args[0] for b in group], axis=0))
    product = bind(f"{name}_merged", Call(first.op, [rows, first.args[1]], first.attrs))
    parts = bind(f"{name}_parts", relax.op.split(product, len(group), axis=0))
    for number, binding in enumerate(group):
        item = builder.normalize(relax.TupleGetItem(parts, number))
        made.append(relax.VarBinding(binding.var, item))
    return made
