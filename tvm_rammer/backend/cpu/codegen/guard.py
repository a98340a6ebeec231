"""The guard of an exported library: its main function calls it first, in every run.

A library runs in processes that have TVM's runtime and nothing of this package. There the guard

- raises an error if the CPU lacks a feature that the kernels use, where they would die of an
  illegal instruction: the guard alone is compiled for the oldest CPU of the architecture;
- gives the thread's pool a worker for each vEU: TVM's pools are thread-local, take their size at
  the first touch and have half of the CPUs by default. The thread's CPUs stay as they are, its
  workers share them. Of a pool that other code touched before, it uses what is there;
- notices a fork. The thread that comes through it has its pool's queues and none of the workers: a
  launch would wait for ever, and the pool cannot be made anew. If the pool was used before the
  fork, the thread computes alone from then on, else it gets workers; new threads of the child have
  pools of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import tvm
from tvm import tirx
from tvm.ir import GlobalVar

from tvm_rammer.backend.cpu.codegen.entry import extern
from tvm_rammer.backend.cpu.codegen.guard_text import FORKED, LEFT_ALONE, LOST, guard_functions
from tvm_rammer.backend.cpu.codegen.shards import c_function
from tvm_rammer.backend.cpu.host.cpu_target import host_target
from tvm_rammer.kernel.bodies import exported
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.machine.target import architecture

#: Set to "0", a library leaves the pools of TVM's workers as they are.
OPT_OUT = "TVM_RAMMER_CONFIGURE_POOL"


class X86Feature(NamedTuple):
    """Where CPUID reports a feature, and the register state that the system must save for it."""

    leaf: int
    subleaf: int
    register: int
    bit: int
    state: int = 0


class ArmFeature(NamedTuple):
    """The bit of a word of Linux's auxiliary vector that reports a feature."""

    word: int
    bit: int


_EAX, _EBX, _ECX, _EDX = range(4)
_EXTENDED = 0x80000001
# Bits of XCR0: SSE and AVX; with opmasks and ZMM; AMX tiles; APX registers.
_AVX, _ZMM, _TILE, _APX = 0x6, 0xE6, 0x60000, 0x80000
_HWCAP, _HWCAP2 = 16, 26

#: What kernels may use beyond x86-64's first CPU, oldest first, in LLVM's names: what LLVM chooses
#: by itself or TVM's intrinsics ask for (not, say, AES).
X86_FEATURES = {
    "sse3": X86Feature(1, 0, _ECX, 0),
    "ssse3": X86Feature(1, 0, _ECX, 9),
    "sse4.1": X86Feature(1, 0, _ECX, 19),
    "sse4.2": X86Feature(1, 0, _ECX, 20),
    "sse4a": X86Feature(_EXTENDED, 0, _ECX, 6),
    "popcnt": X86Feature(1, 0, _ECX, 23),
    "lzcnt": X86Feature(_EXTENDED, 0, _ECX, 5),
    "movbe": X86Feature(1, 0, _ECX, 22),
    "avx": X86Feature(1, 0, _ECX, 28, _AVX),
    "xop": X86Feature(_EXTENDED, 0, _ECX, 11, _AVX),
    "fma4": X86Feature(_EXTENDED, 0, _ECX, 16, _AVX),
    "tbm": X86Feature(_EXTENDED, 0, _ECX, 21),
    "f16c": X86Feature(1, 0, _ECX, 29, _AVX),
    "fma": X86Feature(1, 0, _ECX, 12, _AVX),
    "bmi": X86Feature(7, 0, _EBX, 3),
    "avx2": X86Feature(7, 0, _EBX, 5, _AVX),
    "bmi2": X86Feature(7, 0, _EBX, 8),
    "avx512f": X86Feature(7, 0, _EBX, 16, _ZMM),
    "avx512cd": X86Feature(7, 0, _EBX, 28, _ZMM),
    "avx512bw": X86Feature(7, 0, _EBX, 30, _ZMM),
    "avx512dq": X86Feature(7, 0, _EBX, 17, _ZMM),
    "avx512vl": X86Feature(7, 0, _EBX, 31, _ZMM),
    "avx512ifma": X86Feature(7, 0, _EBX, 21, _ZMM),
    "avx512vbmi": X86Feature(7, 0, _ECX, 1, _ZMM),
    "avx512vbmi2": X86Feature(7, 0, _ECX, 6, _ZMM),
    "gfni": X86Feature(7, 0, _ECX, 8),
    "avx512vnni": X86Feature(7, 0, _ECX, 11, _ZMM),
    "avx512bitalg": X86Feature(7, 0, _ECX, 12, _ZMM),
    "avx512vpopcntdq": X86Feature(7, 0, _ECX, 14, _ZMM),
    "avx512bf16": X86Feature(7, 1, _EAX, 5, _ZMM),
    "avxvnni": X86Feature(7, 1, _EAX, 4, _AVX),
    "avx512fp16": X86Feature(7, 0, _EDX, 23, _ZMM),
    "amx-tile": X86Feature(7, 0, _EDX, 24, _TILE),
    "amx-int8": X86Feature(7, 0, _EDX, 25, _TILE),
    "amx-bf16": X86Feature(7, 0, _EDX, 22, _TILE),
    "amx-fp16": X86Feature(7, 1, _EAX, 21, _TILE),
    "avxifma": X86Feature(7, 1, _EAX, 23, _AVX),
    "avxvnniint8": X86Feature(7, 1, _EDX, 4, _AVX),
    "avxneconvert": X86Feature(7, 1, _EDX, 5, _AVX),
    "avxvnniint16": X86Feature(7, 1, _EDX, 10, _AVX),
    "egpr": X86Feature(7, 1, _EDX, 21, _APX),
}

#: What kernels may use beyond Armv8.0, likewise.
ARM_FEATURES = {
    "lse": ArmFeature(_HWCAP, 8),
    "rdm": ArmFeature(_HWCAP, 12),
    "fullfp16": ArmFeature(_HWCAP, 10),
    "dotprod": ArmFeature(_HWCAP, 20),
    "rcpc": ArmFeature(_HWCAP, 15),
    "complxnum": ArmFeature(_HWCAP, 14),
    "sha3": ArmFeature(_HWCAP, 17),
    "fp16fml": ArmFeature(_HWCAP, 23),
    "rcpc-immo": ArmFeature(_HWCAP, 26),
    "sve": ArmFeature(_HWCAP, 22),
    "i8mm": ArmFeature(_HWCAP2, 13),
    "bf16": ArmFeature(_HWCAP2, 14),
    "sve2": ArmFeature(_HWCAP2, 1),
}

_FEATURES: dict[str, dict[str, tuple[int, ...]]] = {
    "x86_64": {**X86_FEATURES},
    "aarch64": {**ARM_FEATURES},
}
_OLDEST_CPU = {"x86_64": "x86-64", "aarch64": "generic"}


def build_guard(symbol: str, target: Any, num_workers: int) -> Any:
    """Compile the guard of a library.

    It leaves the pool alone in a thread that called ``<symbol>_skip``, where ``TVM_NUM_THREADS`` is
    set, as TVM follows that wish itself, and where ``TVM_RAMMER_CONFIGURE_POOL`` is ``0``. If other
    code lowers a thread's number of workers between two runs, the second raises it again.

    Parameters
    ----------
    symbol : str
        Name of the packed function to export. ``<symbol>_skip`` checks the CPU and leaves the
        thread's pool to the caller, ``<symbol>_check`` checks the CPU and does nothing else. None
        has arguments or a result. ``<symbol>_share`` takes the address of a variable of libgcc's
        emulated thread-local kind, of 8 bytes and zero at first: what the library knows of threads
        is kept there.
    target : Target
        What the library's kernels are compiled for, as
        :func:`~tvm_rammer.backend.cpu.host.cpu_target.resolve_target` returns it.
    num_workers : int
        Workers that a thread asks for, itself included; it gets no more than it has CPUs.

    Returns
    -------
    tvm.runtime.Module
        Runs on every CPU of the target's architecture.
    """
    processor = architecture(target)
    needed = needed_features(target)
    constructor = f"{symbol}_constructor"
    rows = [_FEATURES[processor][name] for name in needed]
    text = guard_functions(processor, rows, constructor)
    guard = _guard(_check(target, needed), num_workers)
    skip = tirx.SeqStmt([*_check(target, needed), _remember(LEFT_ALONE)])
    address = tirx.Var("address", "int64")
    # One import serves all functions: they share the thread's word.
    guard = tirx.AttrStmt(0, "pragma_import_llvm", text, guard)
    functions = [
        exported(symbol, [], guard),
        exported(f"{symbol}_skip", [], skip),
        exported(f"{symbol}_check", [], sequence(_check(target, needed))),
        exported(f"{symbol}_share", [address], extern("rammer_share_thread", address)),
        c_function(constructor, [], [extern("rammer_note_process")]),
    ]
    module = tvm.IRModule({GlobalVar(f.attrs["global_symbol"]): f for f in functions})
    guard = tvm.tirx.build(module, target=_oldest(target))
    if processor == architecture(host_target()):
        # Its machine code is made now, and its constructor runs: made later, it might be in a child
        # of fork, which the constructor would take for the process that loaded the library.
        guard.get_function(symbol)
    return guard


def needed_features(target: Any) -> tuple[str, ...]:
    """What code for ``target`` may use that not every CPU of its architecture has, oldest first."""
    used = tvm.get_global_func("target.llvm_get_cpu_features")(target)
    return tuple(name for name in _FEATURES[architecture(target)] if name in used)


def runs_here(target: Any) -> bool:
    """Whether this machine runs what is compiled for ``target``, as a library's guard sees it."""
    if str(target) == str(host_target()):
        return True
    return architecture(target) == architecture(host_target()) and _passes(str(target))


@lru_cache
def _passes(target: str) -> bool:
    """Whether a guard passes here; itself it runs on every CPU of this architecture."""
    guard = build_guard("guard", tvm.target.Target(target), 1)
    try:
        guard["guard_check"]()
    except RuntimeError:
        return False
    return True


def _guard(check: list[Any], num_workers: int) -> Any:
    word = tirx.Var("word", "int32")
    ours = tirx.SeqStmt(_configure(num_workers))
    alone = tirx.SeqStmt(_give_up_pool())
    first = tirx.IfThenElse(_settled_by_user(), _remember(LEFT_ALONE), ours)
    new = tirx.call_extern("int32", "rammer_pool_is_new") != 0
    forked = tirx.IfThenElse(_settled_by_user(), alone, tirx.IfThenElse(new, ours, alone))
    fewer = tirx.call_packed("runtime.NumThreads") < tirx.min(word, num_workers)
    again = tirx.IfThenElse(fewer, tirx.SeqStmt(_configure(num_workers)), None)
    return tirx.SeqStmt(
        [
            tirx.Bind(word, tirx.call_extern("int32", "rammer_recall")),
            tirx.IfThenElse(tirx.Or(word == 0, word == FORKED), sequence(check), None),
            tirx.IfThenElse(word == 0, first, None),
            tirx.IfThenElse(word == FORKED, forked, None),
            tirx.IfThenElse(word == LOST, alone, None),
            tirx.IfThenElse(word > 0, again, None),
        ]
    )


def _settled_by_user() -> Any:
    """Whether the environment gives the number of workers, or tells us to keep off them."""
    return tirx.Or(
        _compare_variable("TVM_NUM_THREADS", "") > 0, _compare_variable(OPT_OUT, "0") == 0
    )


def _compare_variable(name: str, text: str) -> Any:
    """``strcmp`` of an environment variable and a text; -1 if the variable is not set."""
    value = tirx.call_extern("handle", "getenv", name)
    order = tirx.call_extern("int32", "strcmp", value, text)
    return tirx.if_then_else(tirx.isnullptr(value), tirx.const(-1, "int32"), order)


def _check(target: Any, needed: Sequence[str]) -> list[Any]:
    """Raise an error that names the first feature that the CPU lacks."""
    mcpu = target.attrs.get("mcpu", "generic")
    known = f'{{"kind": "llvm", "mcpu": "{_OLDEST_CPU[architecture(target)]}"}}'
    missing = tirx.Var("missing", "int32")
    texts = [
        f"this library was compiled for {mcpu}, which needs {name}; this CPU does not have it: "
        f"compile it for this CPU, or with target={known}"
        for name in needed
    ]
    return [
        tirx.Bind(missing, tirx.call_extern("int32", "rammer_missing")),
        *(_require(missing != number, text) for number, text in enumerate(texts)),
    ]


def _configure(num_workers: int) -> list[Any]:
    """Give the thread's pool its workers."""
    text = (
        f"TVM's thread pool could not get {num_workers} workers: "
        f"set {OPT_OUT}=0 to use those that it has"
    )
    return _settle("rammer_configure", text, num_workers)


def _give_up_pool() -> list[Any]:
    """Let a thread whose workers were lost work alone."""
    text = "TVM's thread pool was lost in a fork, and could not be given up: use a new thread"
    return _settle("rammer_give_up_pool", text)


def _settle(function: str, text: str, *arguments: Any) -> list[Any]:
    """Do something about the thread's pool and remember what came of it."""
    got = tirx.Var("got", "int32")
    return [
        tirx.Bind(got, tirx.call_extern("int32", function, *arguments)),
        _require(got != 0, text),
        _remember(got),
    ]


def _remember(word: Any) -> Any:
    return extern("rammer_remember", word)


def _require(condition: Any, text: str) -> Any:
    # TVM 0.27 names this constructor's first two parameters the wrong way round.
    return tirx.AssertStmt(condition, "RuntimeError", [text])


def _oldest(target: Any) -> Any:
    """The target whose code runs on every CPU of ``target``'s architecture."""
    described = {"kind": "llvm", "mcpu": _OLDEST_CPU[architecture(target)]}
    if triple := target.attrs.get("mtriple"):
        described["mtriple"] = str(triple)
    return tvm.target.Target(described)
