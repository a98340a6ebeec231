"""A compiler pass that makes one product of several that share a weight and are ready together.

A vector times a matrix takes as long as reading the matrix. An unrolled recurrent network reads a
layer's input weights in every time step, although the products of several steps need nothing of
each other: as rows of one product they read the weight once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst

from tvm_rammer.machine import VDevice
from tvm_rammer.relax_util import operator_name, static_shape

#: Rows of a merged product at most: what fills the registers of a core.
_MOST_ROWS = 8
#: A merged graph keeps so many times as much to do side by side as there are vEUs.
_PARALLELISM = 4


@tvm.transform.module_pass(opt_level=0, name="MergeProducts")
class MergeProducts:
    """Merge products with the same constant, as many as leave work for all vEUs.

    Attributes
    ----------
    vdevice : VDevice
        Who waits for more rows starts later: the more vEUs, the fewer rows.
    """

    def __init__(self, vdevice: VDevice) -> None:
        self.vdevice = vdevice

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Merge products in every dataflow block of a module."""
        result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for symbol, func in mod.functions_items():
            if isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr):
                blocks = [_merged(block, self.vdevice) for block in func.body.blocks]
                if any(new is not old for new, old in zip(blocks, func.body.blocks, strict=True)):
                    body = relax.SeqExpr(blocks, func.body.body)
                    result[symbol] = relax.Function(
                        func.params, body, func.ret_ty, func.is_pure, func.attrs
                    )
        return relax.transform.Normalize()(result)


def _merged(block: Any, vdevice: VDevice) -> Any:
    """The block with merged products; the same one if there is nothing to merge."""
    if not isinstance(block, relax.DataflowBlock):
        return block
    bindings = list(block.bindings)
    products = _shared_products(bindings)
    if not products:
        return block
    needs = _needs(bindings)
    for rows in (_MOST_ROWS, _MOST_ROWS // 2, _MOST_ROWS // 4):
        groups = _Grouping(needs, products, rows).run()
        if _keeps_parallelism(groups, needs, products, vdevice):
            return relax.DataflowBlock(
                [made for group in groups for made in _emit([bindings[n] for n in group])]
            )
    return block


@dataclass(frozen=True)
class _Product:
    """A product of ``rows`` rows with a weight of so many elements."""

    weight: Any
    rows: int
    elements: int


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
            found[number] = _Product(key, left[0], right[0] * right[1])
            users[key] += 1
    return {number: product for number, product in found.items() if users[product.weight] > 1}


def _needs(bindings: Sequence[Any]) -> list[list[int]]:
    """The bindings of the same block that each one reads."""
    places = {binding.var: number for number, binding in enumerate(bindings)}
    return [
        [places[var] for var in relax.analysis.free_vars(binding.value) if var in places]
        for binding in bindings
    ]


class _Grouping:
    """A walk through a block in which products wait for others with the same weight.

    What is ready together needs nothing of each other, so that the groups can run in the order in
    which the walk finds them. A group is complete when it has ``rows`` rows, or when the next
    product with its weight needs one that is in it; if nothing else can go on, the fullest group
    goes as it is.
    """

    def __init__(
        self, needs: Sequence[Sequence[int]], products: dict[int, _Product], rows: int
    ) -> None:
        self.products = products
        self.rows = rows
        self.missing = [len(before) for before in needs]
        self.users: list[list[int]] = [[] for _ in needs]
        for number, before in enumerate(needs):
            for producer in before:
                self.users[producer].append(number)
        self.ready = [number for number, count in enumerate(self.missing) if not count]
        self.waiting: dict[Any, list[int]] = defaultdict(list)
        self.chained = _chained(needs, products)
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


def _keeps_parallelism(
    groups: Sequence[Sequence[int]],
    needs: Sequence[Sequence[int]],
    products: dict[int, _Product],
    vdevice: VDevice,
) -> bool:
    """Whether products are merged, and all work is long beside the longest path."""
    ends = [0.0] * len(needs)
    total = 0.0
    for group in groups:
        cost = 0.0
        if group[0] in products:
            product = products[group[0]]
            rows = product.rows * len(group)
            cost = product.elements * max(1.0, rows / vdevice.speeds.rows_of_one_read)
        total += cost
        start = max((ends[before] for number in group for before in needs[number]), default=0.0)
        for number in group:
            ends[number] = start + cost
    merges = any(len(group) > 1 for group in groups)
    wanted = _PARALLELISM * vdevice.num_veus if vdevice.num_veus > 1 else 0.0
    return merges and max(ends) * wanted <= total


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
