"""What a CPU needs beyond TIR, as LLVM IR text: abort, pointer tables, waits.

TVM links the text into the generated module (``pragma_import_llvm``); ``alwaysinline`` removes the
calls. One text serves every architecture but for the hint that a waiting core gives.
"""

from __future__ import annotations

from tvm_rammer.codegen.wait_text import FAILED, wait_functions
from tvm_rammer.errors import DeviceError

_DECLARE = {"x86_64": "declare void @llvm.x86.sse2.pause()", "aarch64": ""}

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

define ptr @rammer_address(ptr %bases, i32 %number, i32 %lines) alwaysinline {{
  %slot = getelementptr ptr, ptr %bases, i32 %number
  %base = load ptr, ptr %slot, align 8
  %wide = zext i32 %lines to i64
  %bytes = shl i64 %wide, 6
  %address = getelementptr i8, ptr %base, i64 %bytes
  ret ptr %address
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
    text = _TEXT.format(declare=_DECLARE[architecture], failed=FAILED)
    return text + wait_functions(architecture)
