"""Bodies, the dispatcher and the launches of every region, as one module for the device.

Every distinct body is a ``__device__`` function. A region has one kernel, which hands its pointers
to the blocks and lets them walk the table; its entry on the host launches it once for each segment
of the table: for the whole program cooperatively, as blocks wait for each other then (a grid that
does not fit on the device at once is an error of the driver, and never a hang), or once for each
wavefront. How many blocks and launches there are is the shape of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, GlobalVar, PointerType, PrimType

from tvm_rammer.backend.cuda.codegen.block_text import (
    BASE,
    CLEAR,
    DISPATCH,
    LOAD_IF,
    OPERAND,
    WALK,
    block_text,
    walking_bytes,
)
from tvm_rammer.backend.cuda.codegen.host_and_device import compile_both
from tvm_rammer.backend.cuda.made_stages import SHARED_BYTES, Limits
from tvm_rammer.backend.cuda.thread_body import THREAD
from tvm_rammer.backend.plan_rows import BaseLayout
from tvm_rammer.backend.signature import ANY, RegionSignature, TensorSpec
from tvm_rammer.errors import ModelError

#: Bytes to which tensors are aligned that a kernel takes: the widest vector that a thread loads.
ALIGNMENT = 16
#: Pointers that fit into the parameters of a kernel, 32 KiB since CUDA 12.1, beside the rest.
_MOST_BASES = 4000
#: Of shared memory that a kernel declares.
_MOST_SHARED = 48 << 10
_POINTER_BYTES = 8
_I32 = PrimType("int32")
#: TVM calls this function with the text of every kernel that it generates.
_HOOK = "tvm_callback_cuda_postproc"
_BODY = 'extern "C" __device__ int'
_INLINED = "__device__ __forceinline__ int"
#: A body, up to where it asks for its thread, how it does, and what follows.
_ASKING = re.compile(rf"(\n  int thread = )([^;\n]*{THREAD}[^;\n]*)(;\n.*?\n}}\n)", re.DOTALL)
#: A load of float32 under a condition, and what is there without it.
_LOADING = re.compile(
    r"(?P<type>float|float4) (?P<result>condval\w*);\n"
    r"(?P<indent> *)if \((?P<condition>.+)\) \{\n"
    r" *(?P=result) = (?:\*\(float4\*\)\((?P<place>p\d+ \+ .+)\)"
    r"|(?P<base>p\d+)\[(?P<index>.+)\]);\n"
    r" *\} else \{\n"
    r" *(?P=result) = (?P<other>make_float4\([^()\n]*\)|[-\w.+/*]+);\n"
    r" *\}"
)
_BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")


def build_regions(
    bodies: Mapping[str, tirx.PrimFunc],
    regions: Sequence[RegionSignature],
    target: tvm.target.Target,
    limits: Limits,
) -> tvm.runtime.Module:
    """Compile the kernels of all regions of a model.

    Parameters
    ----------
    bodies : mapping of str to PrimFunc
        rTask bodies by rKernel name; the position in the mapping is the dispatcher's number.
    regions : sequence of RegionSignature
    target : Target
        Of kind ``cuda``, with its host.
    limits : Limits
        Of a resident block.

    Returns
    -------
    tvm.runtime.Module
        Exports one packed function per region, ``name(*inputs, constants, table, *outputs,
        arena)``.

    Raises
    ------
    ModelError
        When a region has more inputs and outputs than a kernel can take.
    """
    # Host and device are told apart by this: a body belongs to the device alone.
    device = tvm.target.Target({k: v for k, v in dict(target.export()).items() if k != "host"})
    functions: dict[GlobalVar, tirx.PrimFunc] = {}
    symbols = [GlobalVar(name) for name in bodies]
    for symbol, body in zip(symbols, bodies.values(), strict=True):
        functions[symbol] = body.with_attr("target", device)
    functions[GlobalVar(DISPATCH)] = _dispatcher(symbols, bodies).with_attr("target", device)
    pool = max((int(body.attrs[SHARED_BYTES]) for body in bodies.values()), default=0)
    bases = max((BaseLayout.of(region).num_bases for region in regions), default=1)
    # Two of a body's parameters are tiles.
    operands = max((len(body.params) - 2 for body in bodies.values()), default=0)
    text = block_text(pool, bases, limits.threads, operands)
    room = _MOST_SHARED - pool - walking_bytes(limits.threads, operands)
    most = min(_MOST_BASES, room // _POINTER_BYTES)
    for region in regions:
        _check_bases(region, most)
        functions[GlobalVar(region.name)] = _entry(region, text, target, limits.threads)
    with inlined_bodies(limits.blocks_per_sm):
        return compile_both(_split(tvm.IRModule(functions)), target)


def _check_bases(region: RegionSignature, most: int) -> None:
    bases = BaseLayout.of(region).num_bases
    if bases > most:
        raise ModelError(
            f"{region.name} has {bases - 2:,} inputs and outputs, and this kernel for CUDA takes "
            f"{most - 2:,}: give parameters as constants"
        )


def _dispatcher(symbols: Sequence[GlobalVar], bodies: Mapping[str, tirx.PrimFunc]) -> tirx.PrimFunc:
    """``dispatch(kernel, start, stop, operands)``: call a body with its pointers."""
    kernel, start, stop = (tirx.Var(n, "int32") for n in ("kernel", "start", "stop"))
    operands = tirx.Var("operands", PointerType(_I32))

    def call(symbol: GlobalVar, body: tirx.PrimFunc) -> Any:
        pointers = [
            tirx.reinterpret(p.ty, tirx.call_extern("uint64", OPERAND, operands, number))
            for number, p in enumerate(body.params[2:])
        ]
        return tirx.Evaluate(Call(symbol, [start, stop, *pointers], ret_ty=_I32))

    cases = [call(symbol, body) for symbol, body in zip(symbols, bodies.values(), strict=True)]
    statements = [_decide(kernel, 0, cases)] if cases else []
    end = tirx.Return(tirx.const(0, "int32"))
    func = tirx.PrimFunc([kernel, start, stop, operands], tirx.SeqStmt([*statements, end]), _I32)
    return func.with_attrs({"tirx.noalias": True, "tirx.is_scheduled": True, "s_tir": True})


def _decide(number: Any, first: int, cases: Sequence[Any]) -> Any:
    """A binary decision tree over a number."""
    if len(cases) == 1:
        return cases[0]
    half = len(cases) // 2
    low, high = _decide(number, first, cases[:half]), _decide(number, first + half, cases[half:])
    return tirx.IfThenElse(number < first + half, low, high)


def _entry(
    region: RegionSignature, text: str, target: tvm.target.Target, block_threads: int
) -> tirx.PrimFunc:
    segments, veus, words = (tirx.Var(n, "int64") for n in ("segments", "veus", "words"))
    specs = region.arguments()
    buffers = [_tensor(f"tensor{k}", spec) for k, spec in enumerate(specs)]
    num_inputs = len(region.inputs)
    place = num_inputs + 1
    table = tirx.decl_buffer((segments, veus, words), "int32", name="table")
    buffers[place] = table
    arena, constants, others = buffers[-1], buffers[num_inputs], buffers[place + 1 : -1]
    bases = [arena, constants, *buffers[:num_inputs], *others]
    num_veus = veus.astype("int32")
    segment = tirx.Var("segment", "int32")
    given = [
        tirx.Evaluate(tirx.call_extern("void", BASE, number, buffer.data))
        for number, buffer in enumerate(bases)
    ]
    walk = tvm.backend.cuda.op.cuda_func_call(WALK, segment, table.data, source_code=text)
    launch = _launch(num_veus, block_threads, [*given, tirx.Evaluate(walk)])
    count = segments.astype("int32")
    body = tirx.For(segment, 0, count, tirx.ForKind.SERIAL, launch)
    attributes: dict[str, Any] = {"global_symbol": region.name, "target": target, "s_tir": True}
    attributes |= {"tirx.noalias": True, "tirx.is_entry_func": True}
    if not region.num_waves:
        clear = tirx.call_extern("void", CLEAR, num_veus)
        sync = tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", "shared"))
        cleared = _launch(1, block_threads, [given[0], sync, tirx.Evaluate(clear)])
        body = tirx.SeqStmt([cleared, body])
        attributes["tirx.kernel_launch_params"] = ["tirx.use_cooperative_launch"]
    return tirx.PrimFunc(buffers, body).with_attrs(attributes)


def _tensor(name: str, spec: TensorSpec) -> Any:
    shape = tuple(
        tirx.Var(f"{name}_extent", "int64") if extent == ANY else extent for extent in spec.shape
    )
    return tirx.decl_buffer(shape, spec.dtype, name=name, data_alignment=ALIGNMENT)


def _launch(blocks: Any, threads: int, statements: Sequence[Any]) -> Any:
    """Statements that every thread of a grid runs."""
    body: Any = tirx.SeqStmt(list(statements))
    for tag, extent in (("threadIdx.x", threads), ("blockIdx.x", blocks)):
        axis = tirx.IterVar(None, tirx.Var(tag, "int32"), tirx.IterVar.ThreadIndex, tag)
        body = tirx.AttrStmt(axis, "thread_extent", tirx.convert(extent), body)
    return body


def _split(mod: tvm.IRModule) -> tvm.IRModule:
    """What runs on the host, and what on the device, as functions of their own."""
    low = tirx.transform
    passes = [low.SplitHostDevice(), low.MakePackedAPI()]
    passes += [low.FP8StorageLegalize(), low.BF16StorageLegalize()]
    return tvm.transform.Sequential(passes)(mod)


def _without_branch(load: re.Match[str]) -> str:
    """A load under a condition, of which nvcc makes a branch, as one instruction."""
    kind, name = load["type"], load["result"]
    place = load["place"] or f"{load['base']} + {load['index']}"
    given = f"{load['condition']}, (const {kind}*)({place}), {load['other']}"
    return f"{kind} {name};\n{load['indent']}{name} = {LOAD_IF}({given});"


def with_inlined_bodies(text: str, blocks_per_sm: int) -> str:
    """CUDA C of ours as it is to be compiled: with what TVM cannot say.

    A body that is called keeps registers of its caller in memory; inlined, it is as if it were
    written where it runs. And ptxas uses what registers there are, unless it is told how many
    blocks an SM is to run at the same time. TVM writes what a variable is in its place, here a
    question that is asked anew each time, of which nvcc has to find out that it is the same; a body
    asks once. And of a load under a condition nvcc makes a branch, behind which it waits.
    """
    text = _ASKING.sub(lambda body: body[1] + body[2] + body[3].replace(body[2], "thread"), text)
    text = _LOADING.sub(_without_branch, text.replace(_BODY, _INLINED))
    return _BOUNDS.sub(rf"__launch_bounds__(\1, {blocks_per_sm})", text)


@contextmanager
def inlined_bodies(blocks_per_sm: int) -> Iterator[None]:
    """What TVM generates inside, in this or another thread, is changed if it is ours."""
    before = tvm_ffi.get_global_func(_HOOK, allow_missing=True)

    def change(text: str, target: Any) -> str:
        text = str(text if before is None else before(text, target))
        return with_inlined_bodies(text, blocks_per_sm)

    tvm_ffi.register_global_func(_HOOK, change, override=True)
    try:
        yield
    finally:
        if before is None:
            tvm_ffi.registry.remove_global_func(_HOOK)
        else:
            tvm_ffi.register_global_func(_HOOK, before, override=True)
