"""From a launch to an rTask body that runs on the threads of one resident block.

A launch is lowered by itself, as TVM would, up to the point where host and device are split. Then
the number of a tile stands in for ``blockIdx`` and the linear thread index for ``threadIdx``, x the
fastest, so that warps stay whole. Resident blocks have more threads than some launches want: what
the others must not do is guarded, *below* every barrier, so that all threads of a block meet every
``__syncthreads``. What a launch keeps in shared memory lies in a pool that all bodies share, one
after the other. (Merging before lowering silently miscompiles: TVM keeps one extent of threads.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, PointerType, PrimType, StringImm, TensorLoad

from tvm_rammer.backend.cuda.devices import WARP_THREADS
from tvm_rammer.backend.cuda.launches import bound_extents, count, linear_index
from tvm_rammer.backend.cuda.lower_launch import lowered_launch
from tvm_rammer.errors import ModelError
from tvm_rammer.kernel.blocks import variables
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.kernel.nodes import collect, statements
from tvm_rammer.kernel.work import element_bytes

#: Functions of the text that all kernels import: the index of a thread, and a place in the pool.
THREAD, SHARED = "rammer_thread", "rammer_shared"
#: Where arrays in shared memory begin: a fragment for tensor cores, the widest of what is loaded.
_SHARED_ALIGNMENT = 32
_SHARED_SCOPES = ("shared", "shared.dyn")
_BARRIERS = frozenset({"tirx.tvm_storage_sync", "tirx.cuda.cta_sync"})
#: What all lanes of a warp do together.
_COLLECTIVES = tuple(
    f"tirx.tvm_{name}"
    for name in ("load_matrix_sync", "store_matrix_sync", "mma_sync", "fill_fragment")
)
_I32 = PrimType("int32")


@dataclass(frozen=True)
class ThreadBody:
    """An rTask body, and what a block needs to run it.

    Attributes
    ----------
    func : PrimFunc
        ``body(start, stop, *pointers) -> int32``; every thread of a block calls it.
    num_tiles : int
        Blocks of the launch.
    threads : int
        Those of a block that have something to do.
    shared_bytes : int
        Of the pool.
    """

    func: tirx.PrimFunc
    num_tiles: int
    threads: int
    shared_bytes: int


def thread_body(
    launch: tirx.PrimFunc,
    arguments: Sequence[int],
    target: tvm.target.Target,
    block_threads: int,
) -> ThreadBody:
    """Make the body of one launch.

    Parameters
    ----------
    launch : PrimFunc
        One of :class:`~tvm_rammer.backend.cuda.launches.Launches`.
    arguments : sequence of int
        The parameters that become pointers, in this order.
    target : Target
        Of kind ``cuda``, with its ``arch``.
    block_threads : int
        Threads of a resident block.

    Raises
    ------
    ModelError
        When the launch wants more threads, or cannot be taken apart.
    """
    lowered = lowered_launch(launch, target)
    nest = _Nest.of(lowered)
    threads = count(nest.extents, "threadIdx")
    if threads > block_threads:
        raise ModelError(
            f"a kernel for CUDA wants blocks of {threads} threads, and a plan has "
            f"{block_threads}: leave the operator out of the plan"
        )
    nest.check_warps()
    start, stop = tirx.Var("start", "int32"), tirx.Var("stop", "int32")
    tile, thread = tirx.Var("tile", "int32"), tirx.Var("thread", "int32")
    body = nest.with_indices(tile, thread)
    if threads < block_threads:
        body = _guarded(body, thread < threads)
    body, shared_bytes = _in_pool(body)
    pointers = [
        tirx.Var(f"p{k}", PointerType(PrimType(str(lowered.params[number].dtype))))
        for k, number in enumerate(arguments)
    ]
    sources = {lowered.params[number]: p for number, p in zip(arguments, pointers, strict=True)}
    views = [tirx.DeclBuffer(view, data=sources[p]) for view, p in nest.views if p in sources]
    # What nobody goes beyond is said nevertheless: TVM's simplifier lets variables go up to 2^31,
    # and ends with an overflow where they are multiplied.
    num_tiles = count(nest.extents, "blockIdx")
    first, last = (tirx.min(tirx.max(each, 0), num_tiles) for each in (start, stop))
    steps = tirx.SeqStmt([*statements(body), _sync()])
    loop = tirx.For(tile, first, last - first, tirx.ForKind.SERIAL, steps)
    own = tirx.min(tirx.max(tirx.call_pure_extern("int32", THREAD), 0), block_threads - 1)
    index = tirx.Bind(thread, own)
    end = tirx.Return(tirx.const(0, "int32"))
    func = tirx.PrimFunc([start, stop, *pointers], tirx.SeqStmt([index, *views, loop, end]), _I32)
    func = func.with_attrs({"tirx.noalias": True, "tirx.is_scheduled": True, "s_tir": True})
    return ThreadBody(func, num_tiles, threads, shared_bytes)


def is_thread_index(expression: Any) -> bool:
    """Whether an expression is the linear index of the thread."""
    return any(
        isinstance(name, StringImm) and name.value == THREAD
        for call in collect(expression, Call)
        for name in call.args[:1]
    )


@dataclass
class _Nest:
    """A lowered launch: its axes of blocks and threads, its body without them, its views."""

    extents: dict[str, int]
    variables: list[tuple[Any, str]]
    views: list[tuple[Any, Any]]
    body: Any

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> _Nest:
        views, parts = [], []
        params = list(func.params)
        for statement in statements(func.body):
            if isinstance(statement, tirx.DeclBuffer):
                views.append((statement.buffer, _source(statement, params)))
            else:
                parts.append(statement)
        found = _Axes()
        body = found.strip(sequence(parts))
        return cls(bound_extents(found.extents), found.variables, views, body)

    def check_warps(self) -> None:
        """Raise a ModelError where lanes of a warp part before what all of them do together."""
        if not _calls(self.body, _COLLECTIVES):
            return
        lanes = [variable for variable, tag in self.variables if tag == "threadIdx.x"]
        parted = any(
            _calls(branch, _COLLECTIVES) and not variables(branch.condition).isdisjoint(lanes)
            for branch in collect(self.body, tirx.IfThenElse)
        )
        if parted or self.extents.get("threadIdx.x", 1) % WARP_THREADS:
            raise ModelError(
                "a kernel for CUDA uses tensor cores with a part of a warp: leave the operator out "
                "of the plan"
            )

    def with_indices(self, tile: Any, thread: Any) -> Any:
        """The body with a tile for its block and a linear index for its thread."""
        values = {
            **linear_index(self.extents, "blockIdx", tile),
            **linear_index(self.extents, "threadIdx", thread),
        }
        known = {v: values[tag].astype(str(v.ty)) for v, tag in self.variables}
        return tvm_ffi.structural_map(self.body, (tirx.Var, lambda v: known.get(v, v)))


def _source(declared: tirx.DeclBuffer, params: list[Any]) -> Any:
    """The parameter that a buffer is declared on."""
    found = [p for p in params if any(v.same_as(p) for v in _variables(declared.data))]
    if len(found) != 1:
        raise ModelError(
            f"a kernel for CUDA declares {declared.buffer.name!r} on something other than a "
            "buffer: leave the operator out of the plan"
        )
    return found[0]


def _variables(expression: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (tirx.Var, found.append))
    return found


@dataclass
class _Axes:
    """Takes the loops over blocks and threads away, and remembers them."""

    extents: list[tuple[str, int]] = field(default_factory=list)
    variables: list[tuple[Any, str]] = field(default_factory=list)

    def strip(self, statement: Any) -> Any:
        if isinstance(statement, tirx.SeqStmt):
            return tirx.SeqStmt([self.strip(each) for each in statement.seq])
        if isinstance(statement, tirx.AttrStmt) and statement.attr_key == "thread_extent":
            tag = str(statement.node.thread_tag)
            self.extents.append((tag, int(statement.value)))
            self.variables.append((statement.node.var, tag))
            return self.strip(statement.body)
        inner: list[Any] = []
        tvm_ffi.structural_walk(
            statement,
            (tirx.AttrStmt, lambda a: inner.append(a) if a.attr_key == "thread_extent" else None),
        )
        if inner:
            raise ModelError(
                f"a kernel for CUDA binds {inner[0].node.thread_tag} inside of a loop: "
                "leave the operator out of the plan"
            )
        return statement


def _guarded(statement: Any, condition: Any) -> Any:
    """Let threads for which a condition does not hold do nothing but meet every barrier."""
    if _declares(statement):
        return statement
    if isinstance(statement, tirx.SeqStmt):
        return sequence(_guarded_runs(statement, condition))
    if not _has_barrier(statement):
        return tirx.IfThenElse(condition, statement, None)
    if isinstance(statement, tirx.Evaluate):
        return statement
    if isinstance(statement, tirx.For | tirx.AttrStmt):
        return _with_body(statement, _guarded(statement.body, condition))
    if isinstance(statement, tirx.IfThenElse):
        other = statement.else_case
        return tirx.IfThenElse(
            statement.condition,
            _guarded(statement.then_case, condition),
            None if other is None else _guarded(other, condition),
        )
    raise ModelError(
        f"a kernel for CUDA has a barrier inside of {type(statement).__name__}: "
        "leave the operator out of the plan"
    )


def _guarded_runs(steps: Any, condition: Any) -> Iterator[Any]:
    """The statements of a sequence, those between barriers under one guard."""
    run: list[Any] = []
    for statement in statements(steps):
        if _declares(statement):
            yield statement
        elif isinstance(statement, tirx.Bind):
            # Its scope is the rest of the sequence. All threads may compute what loads nothing.
            if _contains(statement.value, TensorLoad, lambda _: True):
                raise ModelError(
                    "a kernel for CUDA binds a loaded value between barriers: leave the operator "
                    "out of the plan"
                )
            yield statement
        elif _has_barrier(statement):
            if run:
                yield tirx.IfThenElse(condition, sequence(run), None)
            run = []
            yield _guarded(statement, condition)
        else:
            run.append(statement)
    if run:
        yield tirx.IfThenElse(condition, sequence(run), None)


def _declares(statement: Any) -> bool:
    """Whether a statement has a buffer for those that follow, perhaps with notes on it."""
    while isinstance(statement, tirx.AttrStmt):
        statement = statement.body
    return isinstance(statement, tirx.AllocBuffer | tirx.DeclBuffer)


def _with_body(statement: Any, body: Any) -> Any:
    if isinstance(statement, tirx.AttrStmt):
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
    bounds = (statement.loop_var, statement.min, statement.extent, statement.kind)
    return tirx.For(*bounds, body, annotations=statement.annotations, step=statement.step)


def _has_barrier(statement: Any) -> bool:
    return _calls(statement, _BARRIERS)


def _calls(statement: Any, names: Collection[str]) -> bool:
    return _contains(
        statement, Call, lambda call: isinstance(call.op, Op) and call.op.name in names
    )


def _contains(node: Any, kind: type, wanted: Any) -> bool:
    def look(each: Any) -> Any:
        return tvm_ffi.structural.VisitInterrupt(1) if wanted(each) else None

    return tvm_ffi.structural_walk(node, (kind, look)) is not None


def _in_pool(body: Any) -> tuple[Any, int]:
    """A body whose arrays in shared memory are places in the pool, and the bytes that it needs."""
    size = 0

    def place(allocation: Any) -> Any:
        nonlocal size
        buffer = allocation.buffer
        if buffer.scope() not in _SHARED_SCOPES:
            return allocation
        nbytes = element_bytes(str(buffer.dtype))
        for extent in buffer.shape:
            nbytes *= int(extent)
        address = tirx.call_extern("uint64", SHARED, tirx.const(size, "int32"))
        pointer = tirx.reinterpret(PointerType(PrimType(str(buffer.dtype)), "shared"), address)
        size += -(-nbytes // _SHARED_ALIGNMENT) * _SHARED_ALIGNMENT
        return tirx.DeclBuffer(buffer, data=pointer)

    return tvm_ffi.structural_map(body, (tirx.AllocBuffer, place)), size


def _sync() -> Any:
    return tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", "shared"))
