"""What a CPU needs beyond TIR, as LLVM IR text: abort, pointer tables, subnormal numbers, waits.

``alwaysinline`` removes the calls. What differs between architectures is how subnormal numbers are
switched off, how time is read, and the hint that a waiting core gives.
"""

from __future__ import annotations

from tvm_rammer.backend.cpu.codegen.wait_text import FAILED, wait_functions
from tvm_rammer.backend.cpu.llvm import llvm_ir
from tvm_rammer.errors import DeviceError

#: The bits of a thread's mode that make subnormal numbers count as zero.
_FLUSHING = {"x86_64": 1 << 15 | 1 << 6, "aarch64": 1 << 24}
#: The counter that every program may read, and that runs at a constant rate.
_TICKS = {
    "x86_64": "call i64 @llvm.readcyclecounter()",
    "aarch64": 'call i64 asm sideeffect "mrs $0, cntvct_el0", "=r"()',
}


def support_functions(architecture: str) -> str:
    """The LLVM IR text for an architecture, ``"x86_64"`` or ``"aarch64"``.

    Raises
    ------
    DeviceError
        For an architecture that has no text yet.
    """
    if architecture not in _TICKS:
        known = ", ".join(sorted(_TICKS))
        raise DeviceError(
            f"no CPU code generation for architecture {architecture!r}; known: {known}"
        )
    support = llvm_ir(
        "support",
        failed=FAILED,
        ticks=_TICKS[architecture],
        flushing=_FLUSHING[architecture],
    )
    return llvm_ir(architecture) + support + wait_functions(architecture)
