"""A compiler pass that multiplies neighbouring numbers in one instruction.

Templates mark vector loops that add a few neighbouring products to each sum: two of 16-bit
integers or of bfloat16, or four of bytes. They are plain arithmetic until here, which any pass may
look at; TVM's vectoriser would load each factor element by element, and LLVM would not find the
instruction again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, TensorLoad

from tvm_rammer.backend.cpu.llvm import llvm_ir
from tvm_rammer.kernel.blocks import is_choice, is_zero, variables
from tvm_rammer.kernel.loops import NEIGHBOURS
from tvm_rammer.kernel.lowering.with_bodies import with_bodies, with_text
from tvm_rammer.kernel.nodes import substitute

#: LLVM's name of the instruction, by the lanes of a vector of integer sums and the products for
#: each.
_INSTRUCTIONS = {
    (4, 2): "llvm.x86.sse2.pmadd.wd",
    (8, 2): "llvm.x86.avx2.pmadd.wd",
    (16, 2): "llvm.x86.avx512.pmaddw.d.512",
    (8, 4): "llvm.x86.avx512.vpdpbusd.256",
    (16, 4): "llvm.x86.avx512.vpdpbusd.512",
}
#: The type of data, by the products for each sum.
_DATA = {2: "int16", 4: "uint8"}
_BITS = 32
#: A function that adds two products of bfloat16 to each sum of float32, and the vectors of sums
#: that there is one for.
_FLOAT_PAIRS, _FLOAT_LANES = "rammer_bfloat16_pairs_x{lanes}", (4, 8, 16)


@tvm.transform.module_pass(opt_level=0, name="MultiplyNeighbours")
class MultiplyNeighbours:
    """Replace marked vector loops by the instruction; what has another form stays as it is."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every PrimFunc of a module."""
        texts: set[str] = set()

        def change(loop: Any) -> Any:
            if NEIGHBOURS not in loop.annotations:
                return loop
            if str(loop.body.value.ty) != "float32":
                return _together(loop)
            paired = _paired_floats(loop)
            if paired is not loop:
                texts.add(float_pairs(int(loop.extent)))
            return paired

        made = with_bodies(mod, lambda body: tvm_ffi.structural_map(body, (tirx.For, change)))
        return with_text(made, "".join(sorted(texts)))


@dataclass(frozen=True)
class _Product:
    """``data * weights[place]``."""

    data: Any
    weights: TensorLoad


def _together(loop: tirx.For) -> Any:
    store, lane, lanes = loop.body, loop.loop_var, int(loop.extent)
    count = int(loop.annotations[NEIGHBOURS])
    instruction, terms = _INSTRUCTIONS.get((lanes, count)), _terms(store, lane, count)
    if instruction is None or terms is None:
        return loop
    sums, products = terms
    data = tirx.Broadcast(_word([product.data for product in products]), lanes)
    weights = _from(products[0].weights, count * lanes, {lane: tirx.const(0, lane.ty)})
    total = _from(sums, lanes, {lane: tirx.const(0, lane.ty)})
    factors = tirx.reinterpret(f"{_DATA[count]}x{count * lanes}", data), weights

    def call(*operands: Any) -> Any:
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", instruction, *operands)

    # The instruction for four adds to the sum; of two and an addition, LLVM makes one where it can.
    added = call(total, *factors) if count == max(_DATA) else total + call(*factors)
    return tirx.BufferStore(store.buffer, added, total.indices)


def _paired_floats(loop: tirx.For) -> Any:
    """The same for sums of float32, to which products of pairs of bfloat16 are added."""
    store, lane, lanes = loop.body, loop.loop_var, int(loop.extent)
    terms = _terms(store, lane, int(loop.annotations[NEIGHBOURS]))
    if terms is None or lanes not in _FLOAT_LANES:
        return loop
    sums, products = terms
    first = {lane: tirx.const(0, lane.ty)}
    pair = _pair([product.data for product in products])
    if pair is None:
        return loop
    weights = _from(products[0].weights, len(products) * lanes, first)
    factors = tirx.Broadcast(pair, lanes), tirx.reinterpret(f"int32x{lanes}", weights)
    total, symbol = _from(sums, lanes, first), _FLOAT_PAIRS.format(lanes=lanes)
    added = tirx.call_pure_extern(f"float32x{lanes}", symbol, total, *factors)
    return tirx.BufferStore(store.buffer, added, total.indices)


def _pair(data: Sequence[Any]) -> Any | None:
    """The data of two products as one word; ``None`` if they do not lie side by side.

    What is beyond the edge of an image is 0 and is not read.
    """
    if all(is_choice(each) and is_zero(each.args[2]) for each in data):
        condition, *others = (each.args[0] for each in data)
        inside = _pair([each.args[1] for each in data])
        same = all(tvm_ffi.structural_equal(condition, other) for other in others)
        zero = tirx.const(0, "int32")
        return tirx.if_then_else(condition, inside, zero) if same and inside is not None else None
    return _side_by_side(data)


def _side_by_side(data: Sequence[Any]) -> Any | None:
    """The word of short numbers that lie one after another in memory, ``None`` of others."""
    read = [load for load in map(_widened, data) if load is not None]
    if len(read) < len(data) or _in_a_row(read) != [*range(len(read))]:
        return None
    return tirx.reinterpret("int32", _from(read[0], len(read)))


def float_pairs(lanes: int) -> str:
    """The function for so many sums as LLVM IR."""
    symbol, pairs = _FLOAT_PAIRS.format(lanes=lanes), 2 * lanes
    return llvm_ir("bfloat16_pairs", symbol=symbol, lanes=lanes, pairs=pairs, bits=_BITS * lanes)


def _terms(store: Any, lane: Any, count: int) -> tuple[TensorLoad, list[_Product]] | None:
    """The sum that a store adds to, and the neighbours that it adds, in the order of their weights;
    ``None`` if it is no such store.
    """
    terms = _added(store.value)
    sums = [term for term in terms if isinstance(term, TensorLoad)]
    found = [_product(term, lane) for term in terms if isinstance(term, tirx.Mul)]
    products = [product for product in found if product is not None]
    if len(sums) != 1 or len(products) != count or len(terms) != 1 + count:
        return None
    ordered = _in_a_row([product.weights for product in products])
    return None if ordered is None else (sums[0], [products[place] for place in ordered])


def _added(value: Any) -> list[Any]:
    if isinstance(value, tirx.Add):
        return [*_added(value.a), *_added(value.b)]
    return [value]


def _product(term: tirx.Mul, lane: Any) -> _Product | None:
    """The factor that is the same in all lanes, and the load of the other."""
    same, varying = sorted((term.a, term.b), key=lambda factor: lane in variables(factor))
    weights = _widened(varying)
    known = weights is not None and lane not in variables(same)
    return _Product(same, weights) if known else None


def _widened(factor: Any) -> TensorLoad | None:
    """The load of a short number that a factor is; TVM widens bfloat16 by moving its bits."""
    if isinstance(factor, tirx.Cast):
        return factor.value if isinstance(factor.value, TensorLoad) else None
    moved = _reinterpreted(factor)
    bits = moved.a if isinstance(moved, tirx.LShift) else None
    load = _reinterpreted(bits.value) if isinstance(bits, tirx.Cast) else None
    return load if isinstance(load, TensorLoad) and str(load.ty) == "bfloat16" else None


def _reinterpreted(value: Any) -> Any:
    """What a value is the bits of, ``None`` if it is no such value."""
    named = isinstance(value, Call) and getattr(value.op, "name", "") == "tirx.reinterpret"
    return value.args[0] if named else None


def _word(data: Sequence[Any]) -> Any:
    """The data of some products, small integers each, in one of 32 bits."""
    found = _side_by_side(data)
    if found is not None:
        return found
    bits = _BITS // len(data)
    kept = [tirx.bitwise_and(each, tirx.const((1 << bits) - 1, "int32")) for each in data]
    moved = (tirx.shift_left(each, tirx.const(bits * k, "int32")) for k, each in enumerate(kept))
    return reduce(tirx.bitwise_or, moved)


def _from(load: TensorLoad, count: int, values: Mapping[Any, Any] = MappingProxyType({})) -> Any:
    """So many elements from a load's own on."""
    *others, last = (substitute(index, values) for index in load.indices)
    return tirx.BufferLoad(load.source, [*others, tirx.Ramp(last, 1, count)])


def _in_a_row(read: Sequence[TensorLoad]) -> list[int] | None:
    """The order in which loads read one element after another, ``None`` if they do not."""
    places = [_distance(read[0], load) for load in read]
    known = [place for place in places if place is not None]
    if len(known) < len(read) or sorted(known) != list(range(min(known), max(known) + 1)):
        return None
    return sorted(range(len(read)), key=known.__getitem__)


def _distance(first: TensorLoad, second: TensorLoad) -> int | None:
    """How many elements after another load's a load reads, in the same row."""
    if not first.source.same_as(second.source):
        return None
    simpler = sym.Analyzer().simplify
    pairs = zip(first.indices, second.indices, strict=True)
    *others, distance = (simpler(after - before) for before, after in pairs)
    known = isinstance(distance, tirx.IntImm) and all(map(is_zero, others))
    return int(distance) if known else None
