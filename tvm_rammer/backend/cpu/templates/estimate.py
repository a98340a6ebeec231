"""An analytic stand-in for measured costs: operations against cycles, bytes against bandwidth."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tvm import sym, tirx
from tvm.ir import Call, Op
from tvm.tirx import Add, Div, FloorDiv, FloorMod, Max, Min, Mul, Select, Sub

from tvm_rammer.kernel.loops import USUAL_TRIPS
from tvm_rammer.kernel.nodes import expressions, parts_of
from tvm_rammer.machine.speeds import CoreCycles, FunctionCycles, Speeds

#: What is one instruction for a vector of any type, and what is none.
_INSTRUCTIONS = frozenset(("fabs", "floor", "ceil", "trunc", "round", "nearbyint", "fma"))
_FREE = frozenset(("if_then_else", "likely", "reinterpret"))
#: Those that are vectors of our own.
_FUNCTIONS = frozenset(each.name for each in fields(FunctionCycles)) - {"libm", "power_by_constant"}
#: A bound this large says that a trip count is not known.
_UNKNOWN = 1 << 31
_ARITHMETIC = (Add, Sub, Mul, Div, Max, Min, Select, FloorDiv, FloorMod)


def tile_seconds(speeds: Speeds, nest: Any, num_tiles: int, nbytes: int) -> float:
    """Time of one tile of a lowered loop nest on one vEU.

    Parameters
    ----------
    speeds : Speeds
        Of the device.
    nest : Stmt
        The whole loop nest, lowered but not yet vectorised.
    num_tiles : int
        Tiles that it is cut into.
    nbytes : int
        Bytes of all buffers that it touches.
    """
    compute = _cycles(speeds.cycles, nest) / speeds.clock
    traffic = nbytes / speeds.cache_bandwidth
    return max(compute, traffic, speeds.shortest) / max(1, num_tiles)


def _cycles(core: CoreCycles, statement: Any, lanes: int = 1) -> float:
    """Issue cycles: one per multiply-add or load of a vector, more for functions."""
    if isinstance(statement, tirx.BufferStore):
        return _store_cycles(core, statement.value, lanes)
    is_loop = isinstance(statement, tirx.For)
    if is_loop and statement.kind == tirx.ForKind.VECTORIZED:
        return _cycles(core, statement.body, _iterations(statement))
    parts = [_cycles(core, part, lanes) for part in parts_of(statement)]
    if isinstance(statement, tirx.IfThenElse):
        return max(parts)
    return (_iterations(statement) if is_loop else 1) * sum(parts)


def _iterations(loop: tirx.For) -> int:
    """The trip count of a loop, or the most that one may have that depends on an outer loop."""
    if USUAL_TRIPS in loop.annotations:
        return int(loop.annotations[USUAL_TRIPS])
    if isinstance(loop.extent, tirx.IntImm):
        return int(loop.extent)
    most = int(sym.Analyzer().const_int_bound(loop.extent).max_value)
    return most if most < _UNKNOWN else 1


def _store_cycles(core: CoreCycles, value: Any, lanes: int) -> float:
    cycles = core.store
    for node in expressions(value):
        if isinstance(node, _ARITHMETIC):
            cycles += core.operation
        elif isinstance(node, Call) and isinstance(node.op, Op):
            cycles += _call_cycles(core, node, lanes)
    return cycles


def _call_cycles(core: CoreCycles, call: Any, lanes: int) -> float:
    name = call.op.name.rpartition(".")[2]
    if name in _FREE:
        return 0.0
    if name in _INSTRUCTIONS:
        return core.instruction
    if name == "sqrt":
        return core.square_root
    functions = core.functions
    if name not in _FUNCTIONS or str(call.ty) != "float32":
        return functions.libm * lanes
    if name == "pow" and isinstance(call.args[1], tirx.FloatImm):
        return functions.power_by_constant
    cycles: float = getattr(functions, name)
    return cycles
