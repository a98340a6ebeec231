"""An analytic stand-in for measured costs: operations against cycles, bytes against bandwidth."""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm.ir import Call, Op
from tvm.tirx import Add, Div, FloorDiv, FloorMod, Max, Min, Mul, Select, Sub

from tvm_rammer.kernel.nodes import expressions, parts_of

#: Clock of a typical server core under vector load, in cycles per second.
CYCLES_PER_SECOND = 3.5e9
#: What one core draws from the last-level cache, in bytes per second: of the 98e9 that it reaches
#: by itself on Zen 4, what others leave.
BYTES_PER_SECOND = 60e9
#: Cycles of what is one instruction, or none, for a vector of any type.
_INSTRUCTION_CYCLES = {
    **dict.fromkeys(("fabs", "floor", "ceil", "trunc", "round", "nearbyint", "fma"), 0.5),
    **{"sqrt": 10.0, "if_then_else": 0.0, "likely": 0.0, "reinterpret": 0.0},
}
#: Cycles of a function for a vector of float32 (measured on Zen 4, 16 lanes).
_FUNCTION_CYCLES = {
    **{"exp": 16.0, "exp2": 16.0, "sigmoid": 21.0, "tanh": 22.0, "erf": 29.0},
    **{"log": 24.0, "log2": 24.0, "log10": 24.0, "pow": 85.0, "rsqrt": 16.0},
    **{"sin": 30.0, "cos": 30.0},
}
#: Cycles of a power whose exponent is a constant, most often a root or a product.
_ROOT_CYCLES = 20.0
#: Cycles of any other function, which is libm's and called for every lane.
_LIBM_CYCLES = 20.0
#: A bound this large says that a trip count is not known.
_UNKNOWN = 1 << 31
_ARITHMETIC = (Add, Sub, Mul, Div, Max, Min, Select, FloorDiv, FloorMod)


def tile_seconds(nest: Any, num_tiles: int, nbytes: int) -> float:
    """Time of one tile of a lowered loop nest on one vEU.

    Parameters
    ----------
    nest : Stmt
        The whole loop nest, lowered but not yet vectorised.
    num_tiles : int
        Tiles that it is cut into.
    nbytes : int
        Bytes of all buffers that it touches.
    """
    compute = _cycles(nest) / CYCLES_PER_SECOND
    traffic = nbytes / BYTES_PER_SECOND
    return max(compute, traffic, 1e-8) / max(1, num_tiles)


def _cycles(statement: Any, lanes: int = 1) -> float:
    """Issue cycles: one per multiply-add or load of a vector, more for functions."""
    if isinstance(statement, tirx.BufferStore):
        return _store_cycles(statement.value, lanes)
    is_loop = isinstance(statement, tirx.For)
    if is_loop and statement.kind == tirx.ForKind.VECTORIZED:
        return _cycles(statement.body, _iterations(statement))
    parts = [_cycles(part, lanes) for part in parts_of(statement)]
    if isinstance(statement, tirx.IfThenElse):
        return max(parts)
    return (_iterations(statement) if is_loop else 1) * sum(parts)


def _iterations(loop: tirx.For) -> int:
    """The trip count of a loop, or the most that one may have that depends on an outer loop."""
    if isinstance(loop.extent, tirx.IntImm):
        return int(loop.extent)
    most = int(sym.Analyzer().const_int_bound(loop.extent).max_value)
    return most if most < _UNKNOWN else 1


def _store_cycles(value: Any, lanes: int) -> float:
    # Half an operation each: a multiply and an add are one instruction, and index arithmetic counts
    # as well although most of it leaves the loop.
    cycles = 0.5
    for node in expressions(value):
        if isinstance(node, _ARITHMETIC):
            cycles += 0.25
        elif isinstance(node, Call) and isinstance(node.op, Op):
            cycles += _call_cycles(node, lanes)
    return cycles


def _call_cycles(call: Any, lanes: int) -> float:
    name = call.op.name.rpartition(".")[2]
    if name in _INSTRUCTION_CYCLES:
        return _INSTRUCTION_CYCLES[name]
    if name not in _FUNCTION_CYCLES or str(call.ty) != "float32":
        return _LIBM_CYCLES * lanes
    if name == "pow" and isinstance(call.args[1], tirx.FloatImm):
        return _ROOT_CYCLES
    return _FUNCTION_CYCLES[name]
