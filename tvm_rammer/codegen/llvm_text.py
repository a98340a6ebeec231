"""What a CPU needs beyond TIR, as LLVM IR text: abort, pointer tables, waits.

TVM links the text into the generated module (``pragma_import_llvm``); ``alwaysinline`` removes the
calls. One text serves every architecture but for the hint that a waiting core gives.
"""

from __future__ import annotations

from tvm_rammer.codegen.wait_text import FAILED, wait_functions
from tvm_rammer.errors import DeviceError

_DECLARE = {
    "x86_64": "declare void @llvm.x86.sse2.pause()\ndeclare i64 @llvm.readcyclecounter()",
    "aarch64": "",
}
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
    text = _TEXT.format(declare=_DECLARE[architecture], failed=FAILED, ticks=_TICKS[architecture])
    return text + wait_functions(architecture)
