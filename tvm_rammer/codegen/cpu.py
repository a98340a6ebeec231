"""rProgram to TIR for CPUs: bodies, a dispatcher that walks the instruction table, entries.

Every distinct rTask body is compiled once, as a private function ``(start, stop, *pointers)``, in
one of the modules of :mod:`~tvm_rammer.codegen.shards`. The module that imports those holds

- ``worker``: walks one vEU's rows of the table: wait, dispatch to the body, signal;
- per region an entry ``name(*inputs, constants, table, *outputs, arena)``: it clears the counters,
  fills the base pointers and launches the workers once for each segment of the table (*program*
  form; a plan has one segment unless it is measured wave by wave), or calls one kernel symbol per
  wavefront, each a launch of its own (*wavefront* form).

A table for ``P`` vEUs runs correctly with any number of workers. With at least ``P``, worker ``v``
walks the rows of vEU ``v``. With fewer, worker ``w`` walks *all* rows in a linear extension of
happens-before and runs those whose vEU is ``w`` modulo the number of workers: the first row in that
order that has not run yet can always run, so nobody waits for ever, and with one worker nobody
waits at all.

Bodies are ``noalias`` although other threads write the same arena: the verifier has proved that
nobody writes a byte that a running body reads, and that a body's buffers do not overlap each other.
The compiler moves no access across a body: it is behind a call into another module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, GlobalVar, PointerType, PrimType

from tvm_rammer.codegen.llvm_text import support_functions
from tvm_rammer.codegen.lowering import module_builder
from tvm_rammer.codegen.shard_compiler import ShardCompiler
from tvm_rammer.codegen.shards import (
    LINK,
    SHARD_BODIES,
    decide,
    dispatcher,
    exported,
    link_function,
    link_shards,
    shards_of,
)
from tvm_rammer.codegen.table import (
    COUNTER_BYTES,
    FIRST_STAMP,
    HEADER_WORDS,
    ROW_WORDS,
    Header,
    Layout,
    Row,
)
from tvm_rammer.codegen.wait_text import EXPIRED, report_function, report_symbol
from tvm_rammer.vdevice.target import architecture

_I32 = PrimType("int32")
_COUNTER_WORDS = COUNTER_BYTES // 4


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of a tensor in a kernel's signature."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RegionSignature:
    """What a region's kernel is called with, besides constants, table and arena.

    ``num_waves`` is 0 in *program* form, else the number of kernel symbols in *wavefront* form.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    num_waves: int = 0

    @property
    def layout(self) -> Layout:
        return Layout(len(self.inputs), len(self.outputs))

    def wave_symbols(self) -> tuple[str, ...]:
        """The kernel symbols of the wavefronts."""
        return tuple(f"{self.name}_wave{number}" for number in range(self.num_waves))

    def launches(self) -> tuple[str, ...]:
        """The kernel symbols that a run launches, in order."""
        return self.wave_symbols() or (self.name,)


def build_module(
    bodies: Mapping[str, tirx.PrimFunc],
    regions: Sequence[RegionSignature],
    shards: ShardCompiler,
) -> tvm.runtime.Module:
    """Compile the kernels of all regions of a model.

    Parameters
    ----------
    bodies : mapping of str to PrimFunc
        rTask bodies by rKernel name; the position in the mapping is the dispatcher's number.
    regions : sequence of RegionSignature
    shards : ShardCompiler
        Compiles the bodies, or did so before.

    Returns
    -------
    tvm.runtime.Module
        Exports one packed function per region (and per wavefront).
    """
    support = support_functions(architecture(shards.target))
    lowered = lower(len(shards_of(list(bodies))), regions, support)
    entries = module_builder(shards.target)(lowered)
    link_shards(entries, shards.shards(bodies))
    return entries


def kernel_ids(bodies: Mapping[str, tirx.PrimFunc]) -> dict[str, int]:
    """The dispatcher's number of each body."""
    return {name: number for number, name in enumerate(bodies)}


def lower(num_shards: int, regions: Sequence[RegionSignature], support: str) -> tvm.IRModule:
    """The TIR module of the worker and the entries; ``support`` is LLVM IR text."""
    worker = GlobalVar("rammer_worker")
    functions: dict[GlobalVar, tirx.PrimFunc] = {worker: _worker(num_shards)}
    for region in regions:
        for number, symbol in enumerate(region.wave_symbols()):
            functions[GlobalVar(symbol)] = _wave(symbol, number, worker, support)
        functions[GlobalVar(region.name)] = _entry(region, worker, support)
    functions[GlobalVar(LINK)] = link_function(num_shards)
    return tvm.IRModule(functions)


def _worker(num_shards: int) -> tirx.PrimFunc:
    """``worker(veu, workers, segment, table, header)``: run one worker's share of a segment."""
    veu, workers, segment = (tirx.Var(n, "int32") for n in ("veu", "workers", "segment"))
    table_pointer = tirx.Var("table_pointer", PointerType(_I32))
    header_pointer = tirx.Var("header_pointer", PointerType(_I32))
    table = tirx.decl_buffer((HEADER_WORDS,), "int32", name="table")
    header = tirx.decl_buffer((HEADER_WORDS,), "int32", name="header")

    num_veus, begin, count = (tirx.Var(n, "int32") for n in ("num_veus", "begin", "count"))
    abort = tirx.address_of(header[num_veus * _COUNTER_WORDS])
    bases = tirx.address_of(header[(num_veus + 1) * _COUNTER_WORDS])
    own = workers >= num_veus
    starts = table[Header.STARTS.value] + segment * (num_veus + 1)
    spans = table[Header.SPANS.value] + segment
    first = tirx.Select(own, table[starts + veu], table[spans])
    last = tirx.Select(own, table[starts + veu + 1], table[spans + 1])
    idle = tirx.And(tirx.Not(own), veu >= workers)

    step, place, row = (tirx.Var(n, "int32") for n in ("step", "place", "row"))
    wait, kernel = (tirx.Var(n, "int32") for n in ("wait", "kernel"))

    def field(name: Row) -> Any:
        return table[row + name.value]

    def counter(number: Any) -> Any:
        return tirx.address_of(header[number * _COUNTER_WORDS])

    def call(shard: int) -> Any:
        number = kernel - shard * SHARD_BODIES
        arguments = [number, field(Row.START), field(Row.STOP), bases, operands, abort]
        return tirx.Evaluate(tirx.call_extern("int32", dispatcher(shard), *arguments))

    awaited = table[Header.WAITS.value] + wait * 2
    wait_all = tirx.For(
        wait,
        field(Row.FIRST_WAIT),
        field(Row.LAST_WAIT) - field(Row.FIRST_WAIT),
        tirx.ForKind.SERIAL,
        _extern(
            "rammer_wait",
            counter(table[awaited]),
            table[awaited + 1],
            abort,
            table[Header.WAIT_LIMIT.value],
            field(Row.VEU),
            table[awaited],
        ),
    )
    stamps = table[Header.STAMPS.value]

    def stamp(number: int) -> Any:
        slot = FIRST_STAMP + place * 2 + number
        taken = _extern("rammer_stamp", tirx.address_of(header[0]), stamps, slot)
        return tirx.IfThenElse(stamps > 0, taken, None)

    words = table[Header.OPERANDS.value] + field(Row.OPERANDS) * 2
    operands = tirx.address_of(table[words])
    shard = tirx.Var("shard", "int32")
    dispatch: list[Any] = [tirx.Bind(kernel, field(Row.KERNEL))]
    if num_shards:
        choice = decide(shard, 0, num_shards, call)
        dispatch += [tirx.Bind(shard, tirx.floordiv(kernel, SHARD_BODIES)), choice]
    aborted = tirx.call_extern("int32", "rammer_aborted", abort) != 0
    signal = _extern("rammer_signal", counter(field(Row.VEU)), field(Row.SIGNAL))
    run = [
        wait_all,
        stamp(0),
        tirx.IfThenElse(tirx.Not(aborted), tirx.SeqStmt(dispatch), None),
        stamp(1),
        tirx.IfThenElse(field(Row.SIGNAL) > 0, signal, None),
    ]
    mine = tirx.Or(own, tirx.truncmod(field(Row.VEU), workers) == veu)
    ordered = table[table[Header.ORDER.value] + begin + step]
    body = [
        tirx.Bind(place, tirx.Select(own, begin + step, ordered)),
        tirx.Bind(row, table[Header.ROWS.value] + place * ROW_WORDS),
        tirx.IfThenElse(mine, tirx.SeqStmt(run), None),
    ]
    statements = [
        tirx.DeclBuffer(table, data=table_pointer),
        tirx.DeclBuffer(header, data=header_pointer),
        tirx.Bind(num_veus, table[Header.NUM_VEUS.value]),
        tirx.Bind(begin, first),
        tirx.Bind(count, tirx.Select(idle, 0, last - begin)),
        tirx.For(step, 0, count, tirx.ForKind.SERIAL, tirx.SeqStmt(body)),
        tirx.Return(tirx.const(0, "int32")),
    ]
    params = [veu, workers, segment, table_pointer, header_pointer]
    func = tirx.PrimFunc(params, tirx.SeqStmt(statements), ret_type=_I32)
    return func.with_attrs({"tirx.is_scheduled": True, "s_tir": True})


def _entry(region: RegionSignature, worker: GlobalVar, text: str) -> tirx.PrimFunc:
    """The function that the Relax VM and GraphModule call for a region."""
    inputs = [_tensor(spec, f"input{k}") for k, spec in enumerate(region.inputs)]
    outputs = [_tensor(spec, f"output{k}") for k, spec in enumerate(region.outputs)]
    constants = tirx.decl_buffer((tirx.Var("constant_bytes", "int64"),), "uint8", name="constants")
    table = tirx.decl_buffer((tirx.Var("table_words", "int64"),), "int32", name="table")
    arena = tirx.decl_buffer((tirx.Var("arena_bytes", "int64"),), "uint8", name="arena")
    header = tirx.decl_buffer((HEADER_WORDS,), "int32", name="header")
    num_veus = table[Header.NUM_VEUS.value]
    veu = tirx.Var("veu", "int32")
    # Nothing is done yet, and nobody has said which CPU it runs on.
    start = [
        tirx.BufferStore(header, tirx.const(0, "int32"), [veu * _COUNTER_WORDS]),
        tirx.BufferStore(header, tirx.const(-1, "int32"), [veu * _COUNTER_WORDS + 1]),
    ]
    clear = tirx.For(veu, 0, num_veus + 1, tirx.ForKind.SERIAL, tirx.SeqStmt(start))
    bases = tirx.address_of(header[(num_veus + 1) * _COUNTER_WORDS])
    pointers = [arena.data, constants.data, *(b.data for b in inputs), *(b.data for b in outputs)]
    fill = [
        _extern("rammer_set_base", bases, number, pointer)
        for number, pointer in enumerate(pointers)
    ]
    if region.num_waves:
        launches = [
            tirx.Evaluate(tirx.call_cpacked(symbol, table, arena))
            for symbol in region.wave_symbols()
        ]
    else:
        # One segment, or one for each wavefront: the table decides, the code is the same.
        segment = tirx.Var("segment", "int32")
        launch = _launch(segment, worker, table, header)
        count = table[Header.NUM_SEGMENTS.value]
        launches = [tirx.For(segment, 0, count, tirx.ForKind.SERIAL, launch)]
    abort = num_veus * _COUNTER_WORDS
    flag = tirx.address_of(header[abort])
    report = tirx.call_cpacked(report_symbol(region.name), region.name, flag)
    expired = tirx.IfThenElse(header[abort] == EXPIRED, tirx.Evaluate(report), None)
    succeeded = header[abort] == 0
    # TVM 0.27 names this constructor's first two parameters the wrong way round.
    check = tirx.AssertStmt(succeeded, "RuntimeError", [f"{region.name}: an rTask failed"])
    declared = tirx.DeclBuffer(header, data=_as(arena.data, _I32))
    before, after = (_stamp_ends(table, header, number) for number in (0, 2))
    statements = [declared, clear, *fill, before, *launches, after, expired, check]
    text += report_function(region.name)
    body = tirx.AttrStmt(0, "pragma_import_llvm", text, tirx.SeqStmt(statements))
    return exported(region.name, [*inputs, constants, table, *outputs, arena], body)


def _stamp_ends(table: Any, header: Any, number: int) -> Any:
    """In a profiled run, what the counter and the clock say before and after."""
    stamps = table[Header.STAMPS.value]
    start = tirx.address_of(header[0])
    both = [
        _extern("rammer_stamp", start, stamps, number),
        _extern("rammer_stamp_time", start, stamps, number + 1),
    ]
    return tirx.IfThenElse(stamps > 0, tirx.SeqStmt(both), None)


def _tensor(spec: TensorSpec, name: str) -> Any:
    """A tensor of the caller's, who may pass one from anywhere: bodies ask for no alignment."""
    return tirx.decl_buffer(spec.shape, spec.dtype, name=name, data_alignment=1)


def _wave(symbol: str, number: int, worker: GlobalVar, text: str) -> tirx.PrimFunc:
    """The kernel of one wavefront: one launch of one segment."""
    table = tirx.decl_buffer((tirx.Var("table_words", "int64"),), "int32", name="table")
    arena = tirx.decl_buffer((tirx.Var("arena_bytes", "int64"),), "uint8", name="arena")
    header = tirx.decl_buffer((HEADER_WORDS,), "int32", name="header")
    declared = tirx.DeclBuffer(header, data=_as(arena.data, _I32))
    statements = [declared, _launch(number, worker, table, header)]
    body = tirx.AttrStmt(0, "pragma_import_llvm", text, tirx.SeqStmt(statements))
    return exported(symbol, [table, arena], body)


def _launch(segment: Any, worker: GlobalVar, table: Any, header: Any) -> Any:
    """Run the workers of one segment on TVM's thread pool and join them."""
    workers = tirx.Var("workers", "int32")
    veu = tirx.Var("veu", "int32")
    arguments = [veu, workers, segment, tirx.address_of(table[0]), tirx.address_of(header[0])]
    call = tirx.Evaluate(Call(worker, arguments, ret_ty=_I32))
    loop = tirx.For(veu, 0, table[Header.NUM_VEUS.value], tirx.ForKind.PARALLEL, call)
    strided = tirx.AttrStmt(0, "pragma_parallel_stride_pattern", 1, loop)
    launch = tirx.AttrStmt(0, "pragma_parallel_launch_point", 1, strided)
    return tirx.SeqStmt([tirx.Bind(workers, tirx.call_packed("runtime.NumThreads")), launch])


def _extern(name: str, *arguments: Any) -> Any:
    """Call a function of the LLVM IR text for its effect."""
    return tirx.Evaluate(tirx.call_extern("void", name, *arguments))


def _as(pointer: Any, element: PrimType) -> Any:
    """A pointer seen as one to another element type."""
    return tirx.reinterpret(PointerType(element), pointer)
