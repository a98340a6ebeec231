"""A compiler pass that multiplies pairs of 16-bit integers in one instruction.

Templates mark vector loops that add two neighbouring products to each sum. They are plain
arithmetic until here, which any pass may look at; TVM's vectoriser would load each factor element
by element, and LLVM would not find the instruction again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import TensorLoad

from tvm_rammer.kernel.blocks import is_number, is_zero, variables
from tvm_rammer.kernel.loops import PAIR, PAIRED
from tvm_rammer.kernel.lowering.with_bodies import with_bodies
from tvm_rammer.kernel.nodes import substitute

#: LLVM's name of the instruction, by the lanes of a vector of sums.
_INSTRUCTIONS = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}
_BITS = 16


@tvm.transform.module_pass(opt_level=0, name="MultiplyPairs")
class MultiplyPairs:
    """Replace marked vector loops by the instruction; what has another form stays as it is."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""

        def change(loop: Any) -> Any:
            return _in_pairs(loop) if PAIRED in loop.annotations else loop

        return with_bodies(mod, lambda body: tvm_ffi.structural_map(body, (tirx.For, change)))


@dataclass(frozen=True)
class _Product:
    """``data * weights[place]``."""

    data: Any
    weights: TensorLoad


def _in_pairs(loop: tirx.For) -> Any:
    store, lane, lanes = loop.body, loop.loop_var, int(loop.extent)
    terms = _terms(store, lane)
    if lanes not in _INSTRUCTIONS or terms is None:
        return loop
    sums, products = terms
    start = {lane: tirx.const(0, lane.ty)}
    first, second = products
    if not _are_neighbours(first.weights, second.weights):
        first, second = second, first
    product = tirx.call_llvm_pure_intrin(
        f"int32x{lanes}",
        _INSTRUCTIONS[lanes],
        tirx.reinterpret(f"int16x{PAIR * lanes}", tirx.Broadcast(_pair(first, second), lanes)),
        _from(first.weights, PAIR * lanes, start),
    )
    total = _from(sums, lanes, start)
    return tirx.BufferStore(store.buffer, total + product, total.indices)


def _terms(store: Any, lane: Any) -> tuple[TensorLoad, list[_Product]] | None:
    """The sum that a store adds to, and the pair that it adds; ``None`` if it is no such store."""
    terms = _added(store.value)
    sums = [term for term in terms if isinstance(term, TensorLoad)]
    found = [_product(term, lane) for term in terms if isinstance(term, tirx.Mul)]
    products = [product for product in found if product is not None]
    if len(sums) != 1 or len(products) != PAIR or len(terms) != 1 + PAIR:
        return None
    return sums[0], products


def _added(value: Any) -> list[Any]:
    if isinstance(value, tirx.Add):
        return [*_added(value.a), *_added(value.b)]
    return [value]


def _product(term: tirx.Mul, lane: Any) -> _Product | None:
    """The factor that is the same in all lanes, and the load of the other."""
    same, varying = sorted((term.a, term.b), key=lambda factor: lane in variables(factor))
    weights = varying.value if isinstance(varying, tirx.Cast) else None
    known = isinstance(weights, TensorLoad) and lane not in variables(same)
    return _Product(same, weights) if known else None


def _pair(first: _Product, second: _Product) -> Any:
    """The data of two products, integers of 16 bits, in one of 32."""
    low, high = (getattr(product.data, "value", None) for product in (first, second))
    if all(isinstance(load, TensorLoad) for load in (low, high)) and _are_neighbours(low, high):
        return tirx.reinterpret("int32", _from(low, PAIR))
    kept = tirx.bitwise_and(first.data, tirx.const((1 << _BITS) - 1, "int32"))
    return tirx.bitwise_or(tirx.shift_left(second.data, tirx.const(_BITS, "int32")), kept)


def _from(load: TensorLoad, count: int, values: Mapping[Any, Any] = MappingProxyType({})) -> Any:
    """So many elements from a load's own on."""
    *others, last = (substitute(index, values) for index in load.indices)
    return tirx.BufferLoad(load.source, [*others, tirx.Ramp(last, 1, count)])


def _are_neighbours(first: TensorLoad, second: TensorLoad) -> bool:
    """Whether a load's element is followed by that of another."""
    if not first.source.same_as(second.source):
        return False
    simpler = sym.Analyzer().simplify
    pairs = zip(first.indices, second.indices, strict=True)
    *others, distance = (simpler(after - before) for before, after in pairs)
    return all(map(is_zero, others)) and is_number(distance, 1)
