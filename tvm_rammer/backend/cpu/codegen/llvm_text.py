"""What a CPU needs beyond TIR, as LLVM IR text: abort, pointer tables, subnormal numbers, waits.

TVM links the text into the generated module (``pragma_import_llvm``); ``alwaysinline`` removes the
calls. One text serves every architecture but for the hint that a waiting core gives.
"""

from __future__ import annotations

from tvm_rammer.backend.cpu.codegen.wait_text import FAILED, wait_functions
from tvm_rammer.errors import DeviceError

_DECLARE = {
    "x86_64": """
declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
""",
    "aarch64": "",
}
#: How a thread's floating-point mode is read and set. Intel's manual, volume 1, 10.2.3: bit 15 of
#: MXCSR gives 0 for results that are subnormal, bit 6 takes such operands for 0; Arm's
#: Architecture Reference Manual: bit 24 of FPCR does both.
_MODE = {
    "x86_64": """
define i32 @rammer_mode() alwaysinline {
  %slot = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %mode = load i32, ptr %slot, align 4
  ret i32 %mode
}

define void @rammer_set_mode(i32 %mode) alwaysinline {
  %slot = alloca i32, align 4
  store i32 %mode, ptr %slot, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  ret void
}
""",
    "aarch64": """
define i32 @rammer_mode() alwaysinline {
  %wide = call i64 asm sideeffect "mrs $0, fpcr", "=r"()
  %mode = trunc i64 %wide to i32
  ret i32 %mode
}

define void @rammer_set_mode(i32 %mode) alwaysinline {
  %wide = zext i32 %mode to i64
  call void asm sideeffect "msr fpcr, $0", "r"(i64 %wide)
  ret void
}
""",
}
_FLUSHING = {"x86_64": 1 << 15 | 1 << 6, "aarch64": 1 << 24}
#: The counter that every program may read, and that runs at a constant rate.
_TICKS = {
    "x86_64": "call i64 @llvm.readcyclecounter()",
    "aarch64": 'call i64 asm sideeffect "mrs $0, cntvct_el0", "=r"()',
}

_TEXT = """
{declare}

define i32 @rammer_aborted(ptr %abort) alwaysinline {{
  %flag = load atomic i32, ptr %abort monotonic, align 4
  ret i32 %flag
}}

define void @rammer_abort(ptr %abort) alwaysinline {{
  store atomic i32 {failed}, ptr %abort release, align 4
  ret void
}}

define i32 @rammer_flush_subnormals() alwaysinline {{
  %mode = call i32 @rammer_mode()
  %flushing = or i32 %mode, {flushing}
  call void @rammer_set_mode(i32 %flushing)
  ret i32 %mode
}}

define void @rammer_set_base(ptr %bases, i32 %number, ptr %pointer) alwaysinline {{
  %slot = getelementptr ptr, ptr %bases, i32 %number
  store ptr %pointer, ptr %slot, align 8
  ret void
}}

define ptr @rammer_address(ptr %bases, i32 %place, i32 %lines) alwaysinline {{
  %number = lshr i32 %place, 6
  %slot = getelementptr ptr, ptr %bases, i32 %number
  %base = load ptr, ptr %slot, align 8
  %wide = zext i32 %lines to i64
  %whole_lines = shl i64 %wide, 6
  %rest = and i32 %place, 63
  %wide_rest = zext i32 %rest to i64
  %bytes = or i64 %whole_lines, %wide_rest
  %address = getelementptr i8, ptr %base, i64 %bytes
  ret ptr %address
}}

define void @rammer_stamp(ptr %header, i32 %line, i32 %number) alwaysinline {{
  %wide = zext i32 %line to i64
  %bytes = shl i64 %wide, 6
  %stamps = getelementptr i8, ptr %header, i64 %bytes
  %slot = getelementptr i64, ptr %stamps, i32 %number
  %ticks = {ticks}
  store i64 %ticks, ptr %slot, align 8
  ret void
}}

define void @rammer_stamp_time(ptr %header, i32 %line, i32 %number) alwaysinline {{
  %clock = alloca [2 x i64], align 8
  %unused = call i32 @clock_gettime(i32 1, ptr %clock)
  %seconds = load i64, ptr %clock, align 8
  %fraction_at = getelementptr i64, ptr %clock, i32 1
  %fraction = load i64, ptr %fraction_at, align 8
  %whole = mul i64 %seconds, 1000000000
  %time = add i64 %whole, %fraction
  %wide = zext i32 %line to i64
  %bytes = shl i64 %wide, 6
  %stamps = getelementptr i8, ptr %header, i64 %bytes
  %slot = getelementptr i64, ptr %stamps, i32 %number
  store i64 %time, ptr %slot, align 8
  ret void
}}
"""


def support_functions(architecture: str) -> str:
    """The LLVM IR text for an architecture, ``"x86_64"`` or ``"aarch64"``.

    Raises
    ------
    DeviceError
        For an architecture that has no text yet.
    """
    if architecture not in _DECLARE:
        known = ", ".join(sorted(_DECLARE))
        raise DeviceError(
            f"no CPU code generation for architecture {architecture!r}; known: {known}"
        )
    text = _TEXT.format(
        declare=_DECLARE[architecture],
        failed=FAILED,
        ticks=_TICKS[architecture],
        flushing=_FLUSHING[architecture],
    )
    return text + _MODE[architecture] + wait_functions(architecture)
