"""The loops that reach a core's ceilings, as LLVM IR text: chains of multiply-adds, sums of loads.

They must be faster than any kernel of ours: the multiply-adds of different chains do not depend on
each other, and the loads go into several sums. An empty statement that may change all memory keeps
LLVM from running a pass over the same bytes only once.
"""

from __future__ import annotations

#: Multiply-adds of each chain, and loads, in one iteration of the inner loop.
_UNROLL = 4
#: Sums that loads go into: an addition must not wait for the one before.
_SUMS = 8


def multiply_add_loop(lanes: int, chains: int, fused: bool) -> str:
    """``ceiling_multiply_add(rounds, out)``: ``4 * chains`` vector multiply-adds in each round.

    Parameters
    ----------
    lanes : int
        float32 numbers of a vector register.
    chains : int
        As many as registers allow: at least latency times throughput of the instruction.
    fused : bool
        Whether the CPU has the instruction; if not, a multiplication and an addition are timed.
    """
    vector = f"<{lanes} x float>"
    half, one = (f"splat (float {value})" for value in ("5.0e-1", "1.0"))
    names = [f"%a{k}.0" for k in range(chains)]
    lines = [f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})"] * fused
    lines += [
        "define void @ceiling_multiply_add(i32 %rounds, ptr %out) alwaysinline {",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %i = phi i32 [ 0, %entry ], [ %next, %loop ]",
    ]
    for k, name in enumerate(names):
        # Not from 2, where it would stay: LLVM sees that.
        start = f"splat (float {float(k + 3):.1f})"
        lines.append(f"  {name} = phi {vector} [ {start}, %entry ], [ %a{k}.{_UNROLL}, %loop ]")
    for step in range(_UNROLL):
        for k in range(chains):
            old, new = f"%a{k}.{step}", f"%a{k}.{step + 1}"
            if fused:
                arguments = f"{vector} {old}, {vector} {half}, {vector} {one}"
                lines.append(f"  {new} = call {vector} @llvm.fma.v{lanes}f32({arguments})")
            else:
                lines.append(f"  %m{k}.{step} = fmul {vector} {old}, {half}")
                lines.append(f"  {new} = fadd {vector} %m{k}.{step}, {one}")
    lines += ["  %next = add i32 %i, 1", "  %more = icmp slt i32 %next, %rounds"]
    lines += ["  br i1 %more, label %loop, label %done", "done:"]
    lines += _sum("fadd", vector, [f"%a{k}.{_UNROLL}" for k in range(chains)])
    return "\n".join([*lines, "  ret void", "}"])


def multiply_adds(chains: int) -> int:
    """Vector multiply-adds in a round of :func:`multiply_add_loop`."""
    return _UNROLL * chains


def read_loop(lanes: int, streams: int) -> str:
    """``ceiling_read_<streams>(passes, bytes, memory, out)``: read ``bytes`` bytes, over and over.

    Parameters
    ----------
    lanes : int
        32-bit numbers of a vector register.
    streams : int
        Places that are read in turn, each a part of the memory of its own. Every part must be a
        multiple of :func:`read_step` bytes.
    """
    vector, width = f"<{lanes} x i32>", 4 * lanes
    loads = _loads(streams)
    zero = "zeroinitializer"
    lines = [
        f"define void @ceiling_read_{streams}(i32 %passes, i64 %bytes, ptr %memory, ptr %out) "
        "alwaysinline {",
        "entry:",
        f"  %part = udiv i64 %bytes, {streams}",
        "  br label %pass",
        "pass:",
        "  %p = phi i32 [ 0, %entry ], [ %p.next, %passed ]",
        *(f"  %s{k} = phi {vector} [ {zero}, %entry ], [ %t{k}, %passed ]" for k in range(_SUMS)),
        '  call void asm sideeffect "", "~{memory}"()',
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %pass ], [ %i.next, %loop ]",
        *(f"  %x{k} = phi {vector} [ %s{k}, %pass ], [ %t{k}, %loop ]" for k in range(_SUMS)),
    ]
    for stream in range(streams):
        lines += [
            f"  %b{stream} = mul i64 %part, {stream}",
            f"  %o{stream} = add i64 %b{stream}, %i",
            f"  %q{stream} = getelementptr i8, ptr %memory, i64 %o{stream}",
        ]
    sums = [f"%x{k}" for k in range(_SUMS)]
    for number in range(streams * loads):
        stream, place, target = number % streams, number // streams, number % _SUMS
        last = number + _SUMS >= streams * loads
        added = f"%t{target}" if last else f"%y{number}"
        lines += [
            f"  %r{number} = getelementptr i8, ptr %q{stream}, i64 {place * width}",
            f"  %v{number} = load {vector}, ptr %r{number}, align {width}",
            f"  {added} = add {vector} {sums[target]}, %v{number}",
        ]
        sums[target] = added
    lines += [
        f"  %i.next = add i64 %i, {loads * width}",
        "  %more = icmp ult i64 %i.next, %part",
        "  br i1 %more, label %loop, label %passed",
        "passed:",
        "  %p.next = add i32 %p, 1",
        "  %again = icmp slt i32 %p.next, %passes",
        "  br i1 %again, label %pass, label %done",
        "done:",
        *_sum("add", vector, sums),
    ]
    return "\n".join([*lines, "  ret void", "}"])


def read_step(lanes: int, streams: int) -> int:
    """Bytes of every stream that an iteration of :func:`read_loop` reads."""
    return _loads(streams) * 4 * lanes


def _loads(streams: int) -> int:
    """Loads of every stream in an iteration: enough for all sums."""
    return max(_UNROLL, 2 * _SUMS // streams)


def _sum(operation: str, vector: str, names: list[str]) -> list[str]:
    """Store the sum, as LLVM drops what nobody asks for."""
    lines, total = [], names[0]
    for k, name in enumerate(names[1:]):
        lines.append(f"  %sum{k} = {operation} {vector} {total}, {name}")
        total = f"%sum{k}"
    return [*lines, f"  store {vector} {total}, ptr %out, align 4"]
