"""Entries of regions: what the Relax VM and GraphModule call.

An entry is a packed function ``name(*inputs, constants, table, *outputs, arena)`` in its lowered
form, which takes its arguments as an array, since TVM's own lowering writes out checks for each.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, GlobalVar, PointerType, PrimType

from tvm_rammer.backend.cpu.codegen.argument_text import check_function, check_symbol
from tvm_rammer.backend.cpu.codegen.instruction_table import (
    COUNTER_BYTES,
    HEADER_WORDS,
    Header,
)
from tvm_rammer.backend.cpu.codegen.llvm_text import EXPIRED, report_function, report_symbol
from tvm_rammer.backend.plan_rows import FIRST_INPUT_BASE
from tvm_rammer.backend.signature import RegionSignature
from tvm_rammer.kernel.bodies import exported

_I32 = PrimType("int32")
_HANDLE = PointerType(PrimType("void"))
_COUNTER_WORDS = COUNTER_BYTES // 4


def region_entry(region: RegionSignature, worker: GlobalVar, text: str) -> tirx.PrimFunc:
    """The entry of a region.

    Parameters
    ----------
    region : RegionSignature
    worker : GlobalVar
        Runs one worker's share of a segment.
    text : str
        LLVM IR text of what all regions use.
    """
    args = tirx.Var("args", _HANDLE)
    num_args = tirx.Var("num_args", "int32")
    num_inputs, num_outputs = len(region.inputs), len(region.outputs)
    table_place, arena_place = num_inputs + 1, num_inputs + 2 + num_outputs
    table, table_statements = _tensor(args, table_place, "table", "int32")
    arena, arena_statements = _tensor(args, arena_place, "arena", "uint8")
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
    fill = [
        extern("rammer_set_base", bases, 0, _data(args, arena_place)),
        extern("rammer_set_base", bases, 1, _data(args, num_inputs)),
        _fill(bases, FIRST_INPUT_BASE, args, 0, num_inputs),
        _fill(bases, FIRST_INPUT_BASE + num_inputs, args, table_place + 1, num_outputs),
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
    failed = tirx.AssertStmt(succeeded, "RuntimeError", [f"{region.name}: an rTask failed"])
    before, after = (_stamp_ends(table, header, number) for number in (0, 2))
    statements = [
        tirx.Evaluate(tirx.call_cpacked(check_symbol(region.name), args, num_args)),
        *table_statements,
        *arena_statements,
        tirx.DeclBuffer(header, data=_as(arena.data, _I32)),
        clear,
        *fill,
        before,
        *launches,
        after,
        expired,
        failed,
        tirx.Return(tirx.const(0, "int32")),
    ]
    text += report_function(region.name) + check_function(region.name, region.arguments())
    body = tirx.AttrStmt(0, "pragma_import_llvm", text, tirx.SeqStmt(statements))
    # Of tensors that are passed on to the kernels of wavefronts.
    body = tirx.AttrStmt("default", "device_id", 0, body)
    params = [tirx.Var("self_handle", _HANDLE), args, num_args, tirx.Var("result", _HANDLE)]
    func = tirx.PrimFunc(params, body, ret_type=_I32)
    # What TVM's own lowering makes of a packed function's name and calling convention.
    calling = {"global_symbol": f"__tvm_ffi_{region.name}", "calling_conv": 1}
    return func.with_attrs({**calling, "tirx.is_scheduled": True, "s_tir": True})


def wave_entry(symbol: str, number: int, worker: GlobalVar, text: str) -> tirx.PrimFunc:
    """The kernel of one wavefront: one launch of one segment."""
    table = tirx.decl_buffer((tirx.Var("table_words", "int64"),), "int32", name="table")
    arena = tirx.decl_buffer((tirx.Var("arena_bytes", "int64"),), "uint8", name="arena")
    header = tirx.decl_buffer((HEADER_WORDS,), "int32", name="header")
    declared = tirx.DeclBuffer(header, data=_as(arena.data, _I32))
    statements = [declared, _launch(number, worker, table, header)]
    body = tirx.AttrStmt(0, "pragma_import_llvm", text, tirx.SeqStmt(statements))
    return exported(symbol, [table, arena], body)


def extern(name: str, *arguments: Any) -> Any:
    """Call a function of the LLVM IR text for its effect."""
    return tirx.Evaluate(tirx.call_extern("void", name, *arguments))


def _tensor(args: Any, place: int, name: str, dtype: str) -> tuple[Any, list[Any]]:
    """The buffer of an argument with one axis, and what declares it."""
    extent = tirx.Var(f"{name}_extent", "int64")
    buffer = tirx.decl_buffer((extent,), dtype, name=name)
    return buffer, [
        tirx.Bind(extent, tirx.call_extern("int64", "rammer_extent", args, place)),
        tirx.DeclBuffer(buffer, data=_as(_data(args, place), PrimType(dtype))),
    ]


def _data(args: Any, place: Any) -> Any:
    """Where the data of an argument begins."""
    return tirx.call_extern("handle", "rammer_data", args, place)


def _fill(bases: Any, base: int, args: Any, place: int, count: int) -> Any:
    """Set the base pointers of ``count`` arguments in a row."""
    number = tirx.Var("number", "int32")
    set_one = extern("rammer_set_base", bases, base + number, _data(args, place + number))
    return tirx.For(number, 0, count, tirx.ForKind.SERIAL, set_one)


def _stamp_ends(table: Any, header: Any, number: int) -> Any:
    """In a profiled run, what the counter and the clock say before and after."""
    stamps = table[Header.STAMPS.value]
    start = tirx.address_of(header[0])
    both = [
        extern("rammer_stamp", start, stamps, number),
        extern("rammer_stamp_time", start, stamps, number + 1),
    ]
    return tirx.IfThenElse(stamps > 0, tirx.SeqStmt(both), None)


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


def _as(pointer: Any, element: PrimType) -> Any:
    """A pointer seen as one to another element type."""
    return tirx.reinterpret(PointerType(element), pointer)
