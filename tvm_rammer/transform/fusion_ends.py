"""Where fusion ends although FuseOps would go on.

A product, or whatever else is not element-wise, reads results. A larger result than a product's,
which a broadcast repeats or a padding surrounds, is made by an operator of its own: tasks of the
product would store more than they compute, and where padding is no register tile fits. And an
expression grows with every operator that is fused with it: what is read twice is inlined twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call

from tvm_rammer.kernel.inlined_size import InlinedSize, inlined_sizes
from tvm_rammer.relax_util import ANCHOR, OPAQUE, operator_name, static_shape

#: TVM's number for reductions (kCommReduce).
_REDUCTION = 3
#: Most nodes of an expression, and of one behind a product: a register tile writes it many times.
_MOST_NODES, _MOST_NODES_OF_A_TILE = 2000, 800


def fusion_ends(mod: tvm.IRModule, bindings: Iterable[Any]) -> set[Any]:
    """The variables behind which nothing is fused.

    Parameters
    ----------
    mod : IRModule
        Its PrimFuncs say by ``op_pattern`` how they may be fused.
    bindings : iterable of Binding
        Of functions, in order.
    """
    calls = [(binding.var, binding.value) for binding in bindings]
    patterns = _patterns(mod)
    ends = {operand for _, value in calls for operand in _sources(patterns, value)}
    # Inside of an expression TVM computes floats of eight bits as float32, and rounds none.
    ends |= {variable for variable, _ in calls if _is_float8(variable)}
    chains = _Chains(mod, patterns, _fused_onwards(calls, ends), ends)
    for variable, value in calls:
        chains.follow(variable, value)
    return chains.ends


def _is_float8(variable: Any) -> bool:
    return isinstance(variable.ty, relax.TensorType) and "float8" in str(variable.ty.dtype)


def _fused_onwards(calls: Sequence[tuple[Any, Any]], ends: Container[Any]) -> set[Any]:
    """The variables that may be fused with their readers: those that have a post-dominator.

    All that reads such a variable comes together again before anything ends.
    """
    readers: defaultdict[Any, list[Any]] = defaultdict(list)
    for variable, value in calls:
        for operand in _operands(value):
            readers[operand].append(variable)
    parents: dict[Any, Any] = {}
    depths: dict[Any, int] = {None: 0}

    def meet(one: Any, other: Any) -> Any:
        """The nearest common post-dominator, ``None`` for the end of everything."""
        while one is not None and other is not None and not one.same_as(other):
            if depths[one] >= depths[other]:
                one = parents[one]
            else:
                other = parents[other]
        return None if other is None else one

    for variable, _ in reversed(calls):
        inner = isinstance(variable, relax.DataflowVar) and variable not in ends
        parents[variable] = reduce(meet, readers[variable]) if inner and readers[variable] else None
        depths[variable] = depths[parents[variable]] + 1
    return {variable for variable, parent in parents.items() if parent is not None}


def _operands(value: Any) -> list[Any]:
    """The variables that a binding reads, of all kinds that are fused."""
    read: Iterable[Any] = ()
    if isinstance(value, relax.TupleGetItem):
        read = [value.tuple_value]
    elif isinstance(value, relax.Tuple):
        read = value.fields[:]
    elif operator_name(value) == "relax.call_tir":
        read = value.args[1].fields[:]
    return [operand for operand in read if isinstance(operand, relax.Var)]


def _sources(patterns: Mapping[Any, int], value: Any) -> Iterator[Any]:
    """What FuseOps never fuses with a call that reads it."""
    if operator_name(value) == "relax.call_tir":
        if patterns[value.args[0]] >= ANCHOR:
            yield from value.args[1].fields[:]
    elif isinstance(value, Call):
        yield from value.args[:]


def _patterns(mod: tvm.IRModule) -> dict[Any, int]:
    """What the PrimFuncs of a module say of themselves."""
    return {
        symbol: int(func.attrs.get("op_pattern", OPAQUE)) if func.attrs else OPAQUE
        for symbol, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }


@dataclass
class _Chains:
    """What is known of the variables so far; see :func:`fusion_ends`.

    ``products`` are results of products, perhaps with element-wise operators behind them, and
    ``nodes`` are in the expression that stands for a variable in the next operator of its chain, if
    it is one of those that are fused ``onwards``.
    """

    mod: tvm.IRModule
    patterns: Mapping[Any, int]
    onwards: set[Any]
    ends: set[Any]
    products: set[Any] = field(default_factory=set)
    nodes: dict[Any, int] = field(default_factory=dict)
    sizes: dict[Any, tuple[list[Any], list[InlinedSize]]] = field(default_factory=dict)

    def follow(self, variable: Any, value: Any) -> None:
        """Take in the next binding."""
        if isinstance(value, relax.TupleGetItem):
            self.nodes[variable] = self.nodes.get(value.tuple_value, 0)
        if operator_name(value) != "relax.call_tir":
            return
        symbol, operands = value.args[0], value.args[1].fields[:]
        pattern = self.patterns[symbol]
        if pattern == ANCHOR:
            self.products.add(variable)
        if pattern >= ANCHOR:
            return
        self.ends.update(x for x in operands if x in self.products and _is_larger(variable, x))
        behind = any(x in self.products and x not in self.ends for x in operands)
        limit = _MOST_NODES_OF_A_TILE if behind else _MOST_NODES
        nodes = self._within(symbol, operands, limit)
        if pattern != _REDUCTION and variable in self.onwards:
            self.nodes[variable] = nodes
        if any(x in self.products and x not in self.ends for x in operands):
            self.products.add(variable)

    def _within(self, symbol: Any, operands: list[Any], limit: int) -> int:
        """The nodes of a call's expression, after those operands that make it too large ended."""
        params, sizes = self._sizes(symbol)
        while True:
            pairs = [(p, x) for p, x in zip(params, operands, strict=False) if x not in self.ends]
            more = {param: self.nodes.get(x, 0) for param, x in pairs}
            nodes = max((size.with_operands(more) for size in sizes), default=0)
            if nodes <= limit or not any(more.values()):
                return nodes
            self.ends.add(max(pairs, key=lambda pair: more[pair[0]])[1])

    def _sizes(self, symbol: Any) -> tuple[list[Any], list[InlinedSize]]:
        """The parameters of a PrimFunc, and the sizes of its expressions."""
        if symbol not in self.sizes:
            func = self.mod[symbol]
            self.sizes[symbol] = func.params[:], list(inlined_sizes(func).values())
        return self.sizes[symbol]


def _is_larger(result: Any, operand: Any) -> bool:
    """Whether a result has more elements than an operand."""
    shapes = static_shape(result), static_shape(operand)
    one, other = (0 if shape is None else prod(shape) for shape in shapes)
    return one > other > 0
