"""rProgram to TIR for CPUs: bodies, a dispatcher that walks the instruction table, entries.

Every distinct rTask body is compiled once, as a private function ``(start, stop, *pointers)``, in
one of the modules of ``shards``. The module that imports those holds

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

While a worker runs, subnormal numbers count as zero: arithmetic with them takes a hundred times as
long, and what trained models make of blank inputs is full of them. The thread's own mode is back
when the worker returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import GlobalVar, PointerType, PrimType

from tvm_rammer.backend.cpu.codegen.argument_text import argument_functions
from tvm_rammer.backend.cpu.codegen.entry import extern, region_entry, wave_entry
from tvm_rammer.backend.cpu.codegen.instruction_table import (
    COUNTER_BYTES,
    FIRST_STAMP,
    HEADER_WORDS,
    Header,
)
from tvm_rammer.backend.cpu.codegen.llvm_text import support_functions
from tvm_rammer.backend.cpu.codegen.lowering import module_builder
from tvm_rammer.backend.cpu.codegen.shard_compiler import ShardCompiler
from tvm_rammer.backend.cpu.codegen.shards import (
    LINK,
    SHARD_BODIES,
    decide,
    dispatcher,
    link_function,
    link_shards,
    shards_of,
)
from tvm_rammer.backend.plan_rows import ROW_WORDS, Row
from tvm_rammer.backend.signature import RegionSignature
from tvm_rammer.machine.target import architecture

_I32 = PrimType("int32")
_COUNTER_WORDS = COUNTER_BYTES // 4


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
    support = support_functions(architecture(shards.target)) + argument_functions()
    lowered = lower(len(shards_of(list(bodies))), regions, support)
    entries = module_builder(shards.target)(lowered)
    link_shards(entries, shards.shards(bodies))
    return entries


class RegionModules(ShardCompiler):
    """Compiles bodies in shards, and links them with the entries of regions."""

    def module(
        self, bodies: Mapping[str, tirx.PrimFunc], regions: Sequence[RegionSignature]
    ) -> tvm.runtime.Module:
        """The kernels of all regions; see :func:`build_module`."""
        return build_module(bodies, regions, self)


def lower(num_shards: int, regions: Sequence[RegionSignature], support: str) -> tvm.IRModule:
    """The TIR module of the worker and the entries; ``support`` is LLVM IR text."""
    worker = GlobalVar("rammer_worker")
    functions: dict[GlobalVar, tirx.PrimFunc] = {worker: _worker(num_shards)}
    for region in regions:
        for number, symbol in enumerate(region.wave_symbols()):
            functions[GlobalVar(symbol)] = wave_entry(symbol, number, worker, support)
        functions[GlobalVar(region.name)] = region_entry(region, worker, support)
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
    wait, kernel, mode = (tirx.Var(n, "int32") for n in ("wait", "kernel", "mode"))

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
        extern(
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
        taken = extern("rammer_stamp", tirx.address_of(header[0]), stamps, slot)
        return tirx.IfThenElse(stamps > 0, taken, None)

    words = table[Header.OPERANDS.value] + field(Row.OPERANDS) * 2
    operands = tirx.address_of(table[words])
    shard = tirx.Var("shard", "int32")
    dispatch: list[Any] = [tirx.Bind(kernel, field(Row.KERNEL))]
    if num_shards:
        choice = decide(shard, 0, num_shards, call)
        dispatch += [tirx.Bind(shard, tirx.floordiv(kernel, SHARD_BODIES)), choice]
    aborted = tirx.call_extern("int32", "rammer_aborted", abort) != 0
    signal = extern("rammer_signal", counter(field(Row.VEU)), field(Row.SIGNAL))
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
        tirx.Bind(mode, tirx.call_extern("int32", "rammer_flush_subnormals")),
        tirx.For(step, 0, count, tirx.ForKind.SERIAL, tirx.SeqStmt(body)),
        extern("rammer_set_mode", mode),
        tirx.Return(tirx.const(0, "int32")),
    ]
    params = [veu, workers, segment, table_pointer, header_pointer]
    func = tirx.PrimFunc(params, tirx.SeqStmt(statements), ret_type=_I32)
    return func.with_attrs({"tirx.is_scheduled": True, "s_tir": True})
