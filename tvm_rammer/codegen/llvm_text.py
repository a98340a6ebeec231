"""What a CPU needs beyond TIR, as LLVM IR text: release, acquire, back-off, pointer tables.

TVM links the text into the generated module (``pragma_import_llvm``); ``alwaysinline`` removes the
calls. One text serves every architecture but for the hint that a waiting core gives.
"""

from __future__ import annotations

from tvm_rammer.errors import DeviceError

#: Polls of a counter before a waiting vEU gives its core away at every poll. A wait between two
#: running cores takes well under a microsecond; a longer one means that the other thread has lost
#: its core, most likely to another process, and to yield may give that one a whole time slice.
SPINS_BEFORE_YIELD = 2048
#: Polls after which a waiting vEU looks whether the one that it waits for shares its core, and then
#: yields at once: every further poll would keep the other from running.
SPINS_BEFORE_LOOKING = 64

_PAUSE = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": 'call void asm sideeffect "yield", ""()',
}
_DECLARE = {"x86_64": "declare void @llvm.x86.sse2.pause()", "aarch64": ""}

_TEXT = """
declare i32 @sched_yield()
{declare}

declare i32 @sched_getcpu()

define void @rammer_signal(ptr %counter, i32 %count) alwaysinline {{
  %cpu = call i32 @sched_getcpu()
  %cpu_at = getelementptr i32, ptr %counter, i32 1
  store atomic i32 %cpu, ptr %cpu_at monotonic, align 4
  store atomic i32 %count, ptr %counter release, align 4
  ret void
}}

define void @rammer_wait(ptr %counter, i32 %count, ptr %abort) alwaysinline {{
entry:
  %first = load atomic i32, ptr %counter acquire, align 4
  %at_once = icmp sge i32 %first, %count
  br i1 %at_once, label %reached, label %poll
poll:
  %spins = phi i32 [ 0, %entry ], [ %spun, %paused ], [ %spins, %yielded ]
  %now = load atomic i32, ptr %counter acquire, align 4
  %done = icmp sge i32 %now, %count
  br i1 %done, label %reached, label %behind
behind:
  %patient = icmp slt i32 %spins, {spins}
  br i1 %patient, label %early, label %tired
early:
  %fresh = icmp slt i32 %spins, {looking}
  br i1 %fresh, label %paused, label %look
look:
  %cpu_at = getelementptr i32, ptr %counter, i32 1
  %theirs = load atomic i32, ptr %cpu_at monotonic, align 4
  %ours = call i32 @sched_getcpu()
  %shared = icmp eq i32 %theirs, %ours
  br i1 %shared, label %tired, label %paused
paused:
  {pause}
  %spun = add i32 %spins, 1
  br label %poll
tired:
  %aborted = load atomic i32, ptr %abort acquire, align 4
  %given_up = icmp ne i32 %aborted, 0
  br i1 %given_up, label %reached, label %yielded
yielded:
  %ignored = call i32 @sched_yield()
  br label %poll
reached:
  ret void
}}

define i32 @rammer_aborted(ptr %abort) alwaysinline {{
  %flag = load atomic i32, ptr %abort monotonic, align 4
  ret i32 %flag
}}

define void @rammer_abort(ptr %abort) alwaysinline {{
  store atomic i32 1, ptr %abort release, align 4
  ret void
}}

define void @rammer_fence() alwaysinline {{
  call void asm sideeffect "", "~{{memory}}"()
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
    if architecture not in _PAUSE:
        known = ", ".join(sorted(_PAUSE))
        raise DeviceError(
            f"no CPU code generation for architecture {architecture!r}; known: {known}"
        )
    return _TEXT.format(
        declare=_DECLARE[architecture],
        pause=_PAUSE[architecture],
        spins=SPINS_BEFORE_YIELD,
        looking=SPINS_BEFORE_LOOKING,
    )
