"""An analytic stand-in for measured costs: operations against cycles, bytes against bandwidth."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, Op
from tvm.tirx import Add, Div, FloorDiv, FloorMod, Max, Min, Mul, Select, Sub

#: Clock of a typical server core under vector load, in cycles per second.
CYCLES_PER_SECOND = 3.5e9
#: What one core draws from the last-level cache, in bytes per second (KERNELS: 98 GB/s on Zen 4).
BYTES_PER_SECOND = 60e9
#: Cycles of a transcendental function per element (not vectorised by LLVM).
_CALL_CYCLES = 20.0
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


def _cycles(statement: Any) -> float:
    """Issue cycles: one per multiply-add or load of a vector, more for calls into libm."""
    if isinstance(statement, tirx.For):
        if statement.kind == tirx.ForKind.VECTORIZED:
            return _cycles(statement.body)
        return _iterations(statement) * _cycles(statement.body)
    if isinstance(statement, tirx.SeqStmt):
        return sum(map(_cycles, statement.seq))
    if isinstance(statement, tirx.IfThenElse):
        other = _cycles(statement.else_case) if statement.else_case is not None else 0.0
        return max(_cycles(statement.then_case), other)
    if isinstance(statement, tirx.AttrStmt):
        return _cycles(statement.body)
    if isinstance(statement, tirx.BufferStore):
        return _store_cycles(statement.value)
    return 0.0


def _iterations(loop: tirx.For) -> int:
    """The trip count of a loop, or the most that one may have that depends on an outer loop."""
    if isinstance(loop.extent, tirx.IntImm):
        return int(loop.extent)
    most = int(sym.Analyzer().const_int_bound(loop.extent).max_value)
    return most if most < _UNKNOWN else 1


def _store_cycles(value: Any) -> float:
    # Half an operation each: a multiply and an add are one instruction, and index arithmetic counts
    # as well although most of it leaves the loop.
    cycles = [0.5]

    def call(expression: Any) -> None:
        if isinstance(expression.op, Op) and not expression.op.name.endswith("if_then_else"):
            cycles.append(_CALL_CYCLES)

    tvm_ffi.structural_walk(value, ((_ARITHMETIC, lambda _: cycles.append(0.25)), (Call, call)))
    return sum(cycles)
