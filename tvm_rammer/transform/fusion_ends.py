"""Where fusion ends although FuseOps would go on.

A product, or whatever else is not element-wise, reads results. A larger result than a product's,
which a broadcast repeats or a padding surrounds, is made by an operator of its own: tasks of the
product would store more than they compute, and where padding is no register tile fits. And an
expression grows with every operator that is fused with it: what is read twice is inlined twice.

On devices of very many vEUs products that meet stay apart as well, if they are small: of the four
products of an LSTM's gates each would read what the one before computed, and wait for it, where
all of them together do not fill the device. And of two, what they meet in belongs to the later one.
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
from tvm_rammer.relax_util import (
    ANCHOR,
    OPAQUE,
    operator_name,
    relax_functions,
    static_shape,
)

#: TVM's numbers for what computes every element of others' at the same place, perhaps broadcast
#: (kBroadcast), and for reductions (kCommReduce).
ELEMENTWISE, _REDUCTION = 1, 3
#: Most nodes of an expression, and of one behind a product: a register tile writes it many times.
_MOST_NODES, _MOST_NODES_OF_A_TILE = 2000, 800


def fusion_chains(mod: tvm.IRModule, apart: int = 0) -> FusionChains:
    """What is fused with what; ``ends`` of it are the variables behind which nothing is.

    Parameters
    ----------
    mod : IRModule
        Its PrimFuncs say by ``op_pattern`` how they may be fused.
    apart : int
        Elements of a result up to which products stay apart that meet in it.
    """
    calls = [(binding.var, binding.value) for binding in outer_bindings(mod)]
    patterns = _patterns(mod)
    ends = {operand for _, value in calls for operand in _sources(patterns, value)}
    # Inside of an expression TVM computes floats of eight bits as float32, and rounds none.
    ends |= {variable for variable, _ in calls if _is_float8(variable)}
    chains = FusionChains(mod, patterns, _fused_onwards(calls, ends), ends, apart)
    for variable, value in calls:
        chains.follow(variable, value)
    return chains


def outer_bindings(mod: tvm.IRModule) -> list[Any]:
    """The bindings of all Relax functions in order, none of what is inside of a branch."""
    blocks = [block for func in relax_functions(mod).values() for block in func.body.blocks]
    return [binding for block in blocks for binding in block.bindings[:]]


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
class FusionChains:
    """What is known of the variables so far; see :func:`fusion_chains`.

    ``products`` are results of products, perhaps with element-wise operators behind them, and
    ``nodes`` are in the expression that stands for a variable in the next operator of its chain, if
    it is one of those that are fused ``onwards``. ``levels`` says how many operators one after the
    other it takes until a variable is there.
    """

    mod: tvm.IRModule
    patterns: Mapping[Any, int]
    onwards: set[Any]
    ends: set[Any]
    apart: int
    products: set[Any] = field(default_factory=set)
    levels: dict[Any, int] = field(default_factory=dict)
    nodes: dict[Any, int] = field(default_factory=dict)
    sizes: dict[Any, tuple[list[Any], list[InlinedSize]]] = field(default_factory=dict)

    def follow(self, variable: Any, value: Any) -> None:
        """Take in the next binding."""
        if isinstance(value, relax.TupleGetItem):
            self.nodes[variable] = self.nodes.get(value.tuple_value, 0)
        self.levels[variable] = self._level(_operands(value))
        if operator_name(value) != "relax.call_tir":
            return
        symbol, operands = value.args[0], value.args[1].fields[:]
        pattern = self.patterns[symbol]
        if pattern == ANCHOR:
            self.products.add(variable)
        if pattern >= ANCHOR:
            return
        self._part(variable, operands)
        self.ends.update(x for x in operands if x in self.products and _is_larger(variable, x))
        behind = any(x in self.products and x not in self.ends for x in operands)
        limit = _MOST_NODES_OF_A_TILE if behind else _MOST_NODES
        nodes = self._within(symbol, operands, limit)
        if pattern != _REDUCTION and variable in self.onwards:
            self.nodes[variable] = nodes
        if any(x in self.products and x not in self.ends for x in operands):
            self.products.add(variable)

    def _level(self, operands: Iterable[Any]) -> int:
        """Of an operator that is fused with what computes its operands, where that may be."""

        def before(operand: Any) -> int:
            fused = operand in self.onwards and operand not in self.ends
            return self.levels.get(operand, 0) - int(fused)

        return 1 + max(map(before, operands), default=0)

    def _part(self, variable: Any, operands: list[Any]) -> None:
        """End products that would wait for others if they were fused with what they meet in.

        What is fused with the last of them waits for no other; FuseOps takes the first.
        """
        opened = [x for x in operands if x in self.products and x not in self.ends]
        if not opened or not 0 < number_of_elements(variable) <= self.apart:
            return
        last = max(opened, key=lambda each: self.levels[each])
        own = self.levels[last]
        others = [x for x in operands if not x.same_as(last)]
        if any(self.levels.get(x, 0) >= own for x in others):
            self.ends.update(opened)
            self.levels[variable] = self._level(operands)
        else:
            self.ends.update(x for x in opened if not x.same_as(last))
            self.levels[variable] = own

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
    return number_of_elements(result) > number_of_elements(operand) > 0


def number_of_elements(variable: Any) -> int:
    """The elements of a variable; 0 if nobody knows."""
    shape = static_shape(variable)
    return 0 if shape is None else prod(shape)
