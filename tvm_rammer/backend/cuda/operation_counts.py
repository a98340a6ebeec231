"""What the threads of a block do for the tiles of an rTask body, counted from its TIR.

Loops count with their extents and guards by how many threads and iterations pass them. Of accesses
the addresses of a warp's lanes are computed: lanes that read the same word of shared memory cost
one access, those that meet in a bank cost one each, and of global memory whole sectors are moved,
once for a tile. What a thread loads twice between two barriers stays in a register, as it does when
loops are unrolled. Arithmetic of indices does not count: most of it leaves the loops when it is
compiled. What stays is in the machine code alone, where how often loops run is not: of ResNeXt's
convolutions its loads outnumber the arithmetic, and run in outer loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import prod
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, TensorLoad

from tvm_rammer.backend.cuda.devices import SECTOR_BYTES, WARP_THREADS
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.iterations import Iterations
from tvm_rammer.kernel.nodes import collect, expressions, parts_of
from tvm_rammer.kernel.work import element, element_bytes
from tvm_rammer.rprogram import dtype_bytes


@dataclass(frozen=True)
class Operations:
    """What a block does for one tile; of threads, added up over all of them.

    Attributes
    ----------
    float32, float16 : float
        Instructions of floating-point arithmetic, a multiply-add as one.
    tensor : float
        Multiply-adds of tensor cores.
    special : float
        Instructions of the units for reciprocals, roots, exponentials and the like.
    accesses : float
        Loads and stores, of a vector as one, and shuffles.
    passes : float
        Times that the path between the threads and shared memory or the first-level cache is
        taken, of 128 bytes each.
    l2_bytes : float
        What is drawn from the L2 cache, or put there.
    global_loads : float
        Loads from global memory that one thread executes.
    barriers : float
        Of the block.
    """

    float32: float = 0.0
    float16: float = 0.0
    tensor: float = 0.0
    special: float = 0.0
    accesses: float = 0.0
    passes: float = 0.0
    l2_bytes: float = 0.0
    global_loads: float = 0.0
    barriers: float = 0.0

    def __add__(self, other: Operations) -> Operations:
        names = [each.name for each in fields(self)]
        return Operations(**{n: getattr(self, n) + getattr(other, n) for n in names})

    def times(self, factor: float) -> Operations:
        """So often."""
        names = [each.name for each in fields(self)]
        return Operations(**{n: getattr(self, n) * factor for n in names})


#: Instructions of arithmetic and of the special unit that a function takes with fast math, as in
#: CUDA's headers: by a power of two, a logarithm to base 2, a reciprocal or a root.
_FUNCTIONS = {
    **dict.fromkeys(("exp", "log", "log2", "log10", "exp2", "sqrt", "rsqrt"), (1, 1)),
    **dict.fromkeys(("sin", "cos", "sigmoid"), (2, 2)),
    **{"tanh": (4, 2), "pow": (2, 2), "erf": (12, 1), "tan": (4, 4)},
}
#: One instruction of arithmetic, or none.
_PLAIN = frozenset(("fabs", "floor", "ceil", "round", "trunc", "nearbyint", "fma", "copysign"))
_FREE = frozenset(("if_then_else", "likely", "reinterpret", "address_of", "ret", "call_extern"))
_FREE |= {"type_annotation", "tvm_access_ptr", "tvm_fill_fragment"}
_SHUFFLES = ("tvm_warp_shuffle", "tvm_warp_shuffle_down", "tvm_warp_shuffle_up")
#: Rows and columns of a fragment for tensor cores; rows, and bytes of each, that a warp moves.
_SIDE, _ROWS, _ROW_BYTES = 16, 8, 16
_PRODUCT, _FRAGMENTS = "tvm_mma_sync", ("tvm_load_matrix_sync", "tvm_store_matrix_sync")
_BARRIERS = ("tvm_storage_sync", "cta_sync")
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Max, tirx.Min, tirx.Select)
#: Instructions of a function that is not listed: a polynomial of so many multiply-adds.
_POLYNOMIAL = 12


#: Its stub gives it the constructor of its fields; it takes the object.
_structure: Any = tvm_ffi.StructuralKey
#: Values of an index that are looked at.
_MOST_POINTS = 1 << 18
_BANKS, _BANK_BYTES = 32, 4
_LANES = np.arange(WARP_THREADS)


def count_operations(
    func: tirx.PrimFunc, num_tiles: int, block_threads: int, is_thread: Callable[[Any], bool]
) -> Operations:
    """Count what an rTask body does, for the average of its tiles.

    Parameters
    ----------
    func : PrimFunc
        ``body(start, stop, *pointers)``, run by every thread of a block.
    num_tiles : int
    block_threads : int
    is_thread : callable
        Whether an expression, which a variable is bound to, is the linear index of the thread.

    Raises
    ------
    ModelError
        When it has a statement or an expression that is not known.
    """
    start, stop, *_ = func.params
    counter = _Counter(start, block_threads, is_thread)
    counter.visit(func.body, Iterations({start: 0, stop: num_tiles}, count=float(block_threads)))
    moved = sum(len(each) for each in counter.sectors.values()) * SECTOR_BYTES
    return counter.total.times(1 / max(1, num_tiles)) + Operations(l2_bytes=moved)


class _Counter:
    """Adds up the operations of statements, in the order in which they are met."""

    def __init__(self, start: Any, threads: int, is_thread: Callable[[Any], bool]) -> None:
        self.start = start
        self.threads = threads
        self.is_thread = is_thread
        #: The variables of the tile, and of the thread.
        self.first: dict[Any, int] = {}
        self.thread: Any = None
        #: The loops around a statement that have no barrier in them.
        self.inner: list[Any] = []
        #: The loads whose values a thread still has.
        self.held: dict[Any, Any] = {}
        self.total = Operations()
        #: Of each buffer, the sectors that a tile touches.
        self.sectors: dict[Any, set[int]] = {}

    def visit(self, statement: Any, around: Iterations) -> Iterations:
        """Count a statement; returns what surrounds those that follow it."""
        if isinstance(statement, tirx.For):
            tiles = self.start in variables(statement.min)
            self.first |= {statement.loop_var: 0} if tiles else {}
            free = not tiles and not _has_barrier(statement)
            self.inner += [statement.loop_var] * free
            self._apart(statement.body, around.inside(statement))
            self.inner = self.inner[: len(self.inner) - free]
        elif isinstance(statement, tirx.IfThenElse):
            conditions = (statement.condition, tirx.Not(statement.condition))
            for case, condition in zip(parts_of(statement), conditions, strict=False):
                self._apart(case, around.where(condition))
        elif isinstance(statement, tirx.Bind):
            if self.is_thread(statement.value):
                self.thread = statement.var
                values = {**around.values, statement.var: np.arange(self.threads)}
                return Iterations(values, around.bound, around.conditions, around.count)
            self._value(statement.value, around)
            return around.let(statement.var, statement.value)
        elif isinstance(statement, tirx.BufferStore):
            self._value(statement.value, around)
            self.held = {k: b for k, b in self.held.items() if b is not statement.buffer}
            dtype = str(statement.value.ty)
            self._access(statement.buffer, statement.indices, dtype, around, load=False)
        elif isinstance(statement, tirx.Evaluate):
            self._value(statement.value, around)
        else:
            inner = around
            for part in parts_of(statement):
                inner = self.visit(part, inner)
        return around

    def _apart(self, statement: Any, around: Iterations) -> None:
        """Count a statement that may run another time than what follows it."""
        before, self.held = self.held, {}
        self.visit(statement, around)
        self.held = before if not _has_barrier(statement) else {}

    def _value(self, value: Any, around: Iterations) -> None:
        """Count an expression."""
        once = Operations()
        for node in expressions(value):
            if isinstance(node, TensorLoad):
                if (key := _structure(node)) in self.held:
                    continue
                self.held[key] = node.source
                self._access(node.source, node.indices, str(node.ty), around, load=True)
            elif isinstance(node, Call) and isinstance(node.op, Op):
                self.held = {} if _name(node.op) in _BARRIERS else self.held
                once += self._call(node)
            elif _is_float(node) and isinstance(node, (*_ARITHMETIC, tirx.Div, tirx.Cast)):
                once += _arithmetic(node)
        if once != Operations():
            self.total += once.times(around.times)

    def _call(self, call: Any) -> Operations:
        name = _name(call.op)
        if name in _BARRIERS:
            return Operations(barriers=1 / self.threads)
        if name in _SHUFFLES:
            return Operations(accesses=1, passes=1 / WARP_THREADS)
        if name == _PRODUCT:
            return Operations(tensor=_SIDE**3 / WARP_THREADS)
        if name in _FRAGMENTS:
            return _fragment(call)
        if name in _FREE or not _is_float(call):
            return Operations()
        _, lanes = element(str(call.ty))
        if name in _PLAIN:
            return Operations(float32=lanes)
        arithmetic, special = _FUNCTIONS.get(name, (_POLYNOMIAL, 0))
        return Operations(float32=arithmetic * lanes, special=special * lanes)

    def _access(
        self, buffer: Any, indices: Any, dtype: str, around: Iterations, load: bool
    ) -> None:
        """Count a load or a store; what is in registers costs nothing."""
        scope = str(buffer.scope())
        if scope.startswith(("local", "warp")):
            return
        # Elements of a buffer may be vectors themselves.
        nbytes, width = element_bytes(str(buffer.dtype)), element_bytes(dtype)
        index = indices[0].base if isinstance(indices[0], tirx.Ramp) else indices[0]
        times = around.times * self._new_share(index, around)
        warp = self._bytes_of_warp(index, nbytes, width, around)
        if scope.startswith("shared"):
            # Lanes of wide accesses take turns, half or a quarter of a warp: measured on an H100.
            turns = np.array_split(warp, max(1, width // _BANK_BYTES))
            passes = sum(map(_conflicts, turns))
            self.total += Operations(accesses=1, passes=passes / WARP_THREADS).times(times)
            return
        sectors = len(np.unique(warp // SECTOR_BYTES))
        passes = -(-sectors * SECTOR_BYTES // (_BANKS * _BANK_BYTES))
        each = Operations(accesses=1, passes=passes / WARP_THREADS)
        each += Operations(global_loads=load / self.threads)
        if (touched := self._sectors(index, nbytes, width, around)) is None:
            each += Operations(l2_bytes=sectors * SECTOR_BYTES / WARP_THREADS)
        else:
            self.sectors.setdefault(buffer, set()).update(touched)
        self.total += each.times(times)

    def _new_share(self, index: Any, around: Iterations) -> float:
        """Of a thread's accesses since a barrier, the share that is not to the same place again."""
        inner = [v for v in self.inner if isinstance(around.values.get(v), np.ndarray)]
        given = {v: int(np.min(x)) for v, x in around.values.items() if v not in inner}
        found = around.values_of(index, given, _MOST_POINTS)
        if found is None:
            return 1.0
        return len(np.unique(found)) / prod(len(around.values[v]) for v in inner)

    def _bytes_of_warp(
        self, index: Any, nbytes: int, width: int, around: Iterations
    ) -> np.ndarray[Any, Any]:
        """Where the banks are that the lanes of the first warp touch; unknown ones are apart."""
        given: dict[Any, Any] = {v: int(np.min(values)) for v, values in around.values.items()}
        if self.thread is not None:
            given[self.thread] = _LANES
        found = around.values_of(index, given, 1)
        first = _LANES * width if found is None else np.broadcast_to(found, _LANES.shape) * nbytes
        return first[:, None] + np.arange(0, width, min(width, _BANK_BYTES))

    def _sectors(self, index: Any, nbytes: int, width: int, around: Iterations) -> Any:
        """The sectors that the first tile touches; ``None`` if they are too many to look at."""
        found = around.values_of(index, self.first, _MOST_POINTS)
        if found is None:
            return None
        first = np.unique(found) * nbytes
        ends = np.concatenate([first, first + width - 1]) // SECTOR_BYTES
        return np.unique(ends).tolist()


def _has_barrier(statement: Any) -> bool:
    calls = (call.op for call in collect(statement, Call))
    return any(isinstance(op, Op) and _name(op) in _BARRIERS for op in calls)


def _name(op: Any) -> str:
    return str(op.name).rpartition(".")[2]


def _conflicts(places: np.ndarray[Any, Any]) -> int:
    """How often shared memory is asked: for the most words that lie in one bank."""
    words = np.unique(places // _BANK_BYTES)
    return int(np.bincount(words % _BANKS).max())


def _fragment(call: Any) -> Operations:
    """A lane's part of a load or a store of a fragment for tensor cores."""
    *_, pointer, pitch, _ = call.args
    nbytes = dtype_bytes(str(pointer.args[0].ty))
    places = np.arange(_ROWS)[:, None] * int(pitch) * nbytes + np.arange(0, _ROW_BYTES, _BANK_BYTES)
    moves = _SIDE**2 * nbytes / (_ROWS * _ROW_BYTES)
    # Four moves are one instruction.
    return Operations(accesses=moves / 4, passes=moves * _conflicts(places) / WARP_THREADS)


def _arithmetic(node: Any) -> Operations:
    base, lanes = element(str(node.ty))
    if isinstance(node, tirx.Cast):
        # A half is widened by an addition, HADD2.F32 in the machine code.
        widens = (element(str(node.value.ty))[0], base) == ("float16", "float32")
        return Operations(float16=lanes) if widens else Operations(special=lanes)
    if isinstance(node, tirx.Div):
        # A reciprocal and a product.
        return Operations(float32=lanes, special=lanes)
    # A product that is added is a multiply-add.
    fused = isinstance(node, tirx.Add | tirx.Sub) and any(
        isinstance(term, tirx.Mul) for term in (node.a, node.b)
    )
    count = 0 if fused else lanes
    return Operations(float16=count) if base == "float16" else Operations(float32=count)


def _is_float(node: Any) -> bool:
    return str(getattr(node, "ty", "")).startswith(("float", "bfloat"))
