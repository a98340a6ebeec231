"""What a CPU needs beyond TIR, as LLVM IR text: abort, pointer tables, subnormal numbers, waits.

``alwaysinline`` removes the calls. What differs between architectures is how subnormal numbers are
switched off, how time is read, and the hint that a waiting core gives.

A waiting vEU polls with a pause, then gives its core away at every poll, and in the end gives the
run up: what waits longer than the limit raises the abort flag, which releases every other waiter,
and leaves a record of itself beside the flag, from which the entry makes the error. A waiting vEU
that finds the one it waits for on its own CPU moves to another one. Time counts
only while the waiter itself runs, a tenth of a second at most between two polls, so that a process
that was stopped for an hour goes on where it was.
"""

from __future__ import annotations

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


#: Polls of a counter before a waiting vEU gives its core away at every poll. A wait between two
#: running cores takes well under a microsecond; a longer one means that the other thread has lost
#: its core, most likely to another process, and to yield may give that one a whole time slice.
SPINS_BEFORE_YIELD = 2048
#: Polls after which a waiting vEU looks whether the one that it waits for shares its core. It then
#: moves to another CPU if it may, once a wait: the thread that called the program may use them all,
#: and the system can leave it beside a worker for seconds while another core has nothing to do. If
#: it must stay it yields, as every further poll would keep the other from running.
SPINS_BEFORE_LOOKING = 64
#: What the abort flag is when an rTask has failed, and when a wait has taken too long.
FAILED, EXPIRED = 1, 2

_LONGEST_STEP = 100_000_000
_MESSAGE = (
    "%s: vEU %d waited %d ms for step %d of vEU %d, which is at step %d. Was the process, or one "
    "of its threads, suspended? Run again; if an rTask takes that long, build with a longer "
    "wait_limit (0 waits for ever)"
)
_HINTS = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": 'call void asm sideeffect "yield", ""()',
}


def wait_functions(architecture: str) -> str:
    """``rammer_signal`` and ``rammer_wait`` for a known architecture."""
    return llvm_ir(
        "wait",
        pause=_HINTS[architecture],
        spins=SPINS_BEFORE_YIELD,
        looking=SPINS_BEFORE_LOOKING,
        longest=_LONGEST_STEP,
        expired=EXPIRED,
    )


def report_symbol(region: str) -> str:
    """The packed function ``(name, abort flag)`` that raises the error of a wait that is over.

    Every region has its own, since TVM declares what a packed call names once for each call.
    """
    return f"{region}_report_wait"


def report_function(region: str) -> str:
    """The text of a region's report."""
    return llvm_ir(
        "report_wait", report=report_symbol(region), message=_MESSAGE, size=len(_MESSAGE) + 1
    )
