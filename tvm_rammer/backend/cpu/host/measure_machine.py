"""Measures what a launch, a barrier, a signal and data of another core cost on this machine.

Run as ``python -m tvm_rammer.backend.cpu.host.measure_machine CORES``: prints one line of JSON,
from the number of workers (2, 4, 8, ... and CORES) to seconds.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import tvm
from tvm.script import ir as I
from tvm.script import tirx as T

from tvm_rammer.backend.cpu.host.cpu_target import host_target
from tvm_rammer.backend.cpu.host.memory_sweep import sweeps
from tvm_rammer.backend.cpu.host.pool import configure_pool
from tvm_rammer.backend.cpu.llvm import llvm_ir
from tvm_rammer.machine.target import architecture

#: Times that a kernel repeats what is measured, calls of it, and the most seconds that these take.
ROUNDS = 500
CALLS = 200
SECONDS = 0.4

# Counters of different workers lie two cache lines apart, as CPUs fetch lines in pairs.
STRIDE = 32
SIZE = 4096 * STRIDE

# Words that one worker writes and another reads: few, for the latency, and more.
SMALL, LARGE = 1 << 10, 1 << 15
# Rounds of those.
HANDOVERS = 40

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


# Text, as the annotations that TVMScript needs are no types to a type checker.
_KERNELS = """
@I.ir_module(s_tir=True)
class Kernels:
    @T.prim_func(s_tir=True)
    def launch(n: T.int32, rounds: T.int32, done: T.int32, counters: T.Buffer((SIZE,), "int32")):
        T.func_attr({"global_symbol": "launch"})
        for _ in range(rounds):
            for worker in T.parallel(n):
                counters[worker * STRIDE] = done

    @T.prim_func(s_tir=True)
    def barrier(n: T.int32, rounds: T.int32, done: T.int32, counters: T.Buffer((SIZE,), "int32")):
        T.func_attr({"global_symbol": "barrier"})
        with T.attr(0, "pragma_parallel_launch_point", 1):
            for _ in range(rounds):
                with T.attr(0, "pragma_parallel_barrier_when_finish", 1):
                    with T.attr(0, "pragma_parallel_stride_pattern", 1):
                        for worker in T.parallel(n):
                            counters[worker * STRIDE] = done

    @T.prim_func(s_tir=True)
    def point_to_point(
        n: T.int32, rounds: T.int32, done: T.int32, counters: T.Buffer((SIZE,), "int32")
    ):
        T.func_attr({"global_symbol": "point_to_point"})
        with T.attr(0, "pragma_import_llvm", SIGNAL_AND_WAIT):
            with T.attr(0, "pragma_parallel_launch_point", 1):
                with T.attr(0, "pragma_parallel_stride_pattern", 1):
                    for worker in T.parallel(n):
                        for i in range(rounds):
                            T.evaluate(
                                T.call_extern(
                                    "void",
                                    "measure_signal",
                                    T.address_of(counters[worker * STRIDE]),
                                    done + i + 1,
                                )
                            )
                            T.evaluate(
                                T.call_extern(
                                    "void",
                                    "measure_wait",
                                    T.address_of(counters[T.truncmod(worker + 1, n) * STRIDE]),
                                    done + i + 1,
                                )
                            )

    @T.prim_func(s_tir=True)
    def hand_over(
        n: T.int32,
        rounds: T.int32,
        done: T.int32,
        counters: T.Buffer((SIZE,), "int32"),
        vectors: T.int32,
        apart: T.int32,
        words: T.Buffer((3 * LARGE,), "int32"),
    ):
        T.func_attr({"global_symbol": "hand_over"})
        with T.attr(0, "pragma_import_llvm", SIGNAL_AND_WAIT):
            with T.attr(0, "pragma_parallel_launch_point", 1):
                with T.attr(0, "pragma_parallel_stride_pattern", 1):
                    for worker in T.parallel(n):
                        for i in range(rounds):
                            if worker == 0:
                                for j in range(vectors):
                                    for lane in T.vectorized(16):
                                        words[j * 16 + lane] = i
                                T.evaluate(
                                    T.call_extern(
                                        "void",
                                        "measure_signal",
                                        T.address_of(counters[0]),
                                        done + i + 1,
                                    )
                                )
                                T.evaluate(
                                    T.call_extern(
                                        "void",
                                        "measure_wait",
                                        T.address_of(counters[STRIDE]),
                                        done + i + 1,
                                    )
                                )
                            if worker == 1:
                                T.evaluate(
                                    T.call_extern(
                                        "void",
                                        "measure_wait",
                                        T.address_of(counters[0]),
                                        done + i + 1,
                                    )
                                )
                                for j in range(vectors):
                                    for lane in T.vectorized(16):
                                        words[2 * LARGE + j * 16 + lane] = words[
                                            apart + j * 16 + lane
                                        ]
                                T.evaluate(
                                    T.call_extern(
                                        "void",
                                        "measure_signal",
                                        T.address_of(counters[STRIDE]),
                                        done + i + 1,
                                    )
                                )
"""


def signal_and_wait(processor: str) -> str:
    """The LLVM IR of ``measure_signal`` and ``measure_wait``."""
    declare_pause, call_pause = _PAUSE[processor]
    return llvm_ir("measured_signal", declare_pause=declare_pause, call_pause=call_pause)


def kernels(processor: str) -> Any:
    """A module of three kernels that repeat one synchronisation of ``n`` workers each."""
    names = {
        **{"I": I, "T": T, "SIZE": SIZE, "STRIDE": STRIDE, "LARGE": LARGE},
        "SIGNAL_AND_WAIT": signal_and_wait(processor),
    }
    return tvm.script.from_source(_KERNELS, extra_vars=names)


def seconds_each(kernel: Any, workers: int, rounds: int = ROUNDS, *more: Any) -> float:
    """Seconds per repetition while nothing disturbs: those of the fastest call."""
    counters = tvm.runtime.tensor(np.zeros(SIZE, "int32"))
    samples: list[float] = []
    end = time.perf_counter() + SECONDS
    while not samples or (len(samples) < CALLS and time.perf_counter() < end):
        start = time.perf_counter()
        kernel(workers, rounds, len(samples) * rounds, counters, *more)
        samples.append((time.perf_counter() - start) / rounds)
    return min(samples)


def transfers(hand_over: Any, workers: int) -> tuple[float, float]:
    """Seconds until data of another core arrive, and what each byte takes longer than one's own.

    A round is a block written by one worker, whose lines the other one has to give up first, and
    read by that one, who waits for the first line: each byte is transferred twice. Next to it
    stands the same with a block for each.
    """
    words = tvm.runtime.tensor(np.zeros(3 * LARGE, "int32"))
    longer = [
        seconds_each(hand_over, workers, HANDOVERS, size // 16, 0, words)
        - seconds_each(hand_over, workers, HANDOVERS, size // 16, LARGE, words)
        for size in (SMALL, LARGE)
    ]
    each = max(0.0, longer[1] - longer[0]) / (2 * 4 * (LARGE - SMALL))
    return max(0.0, longer[0] - each * 2 * 4 * SMALL), each


def main(cores: int) -> None:
    """Measure for 2, 4, 8, ... and ``cores`` workers, and print the result."""
    target = host_target()
    executable = tvm.compile(kernels(architecture(target)), target=target)
    counts = sorted({cores, *(2**k for k in range(1, cores.bit_length()))})
    costs: dict[int, dict[str, Any]] = {}
    for workers in counts:
        if configure_pool(workers) != workers:
            raise SystemExit(f"TVM's pool cannot give {workers} workers")
        costs[workers] = {
            name: seconds_each(executable[name], workers)
            for name in ("launch", "barrier", "point_to_point")
        }
        first, each = transfers(executable["hand_over"], workers)
        costs[workers]["memory"] = {"transfer": first, "transfer_byte": each, **sweeps(workers)}
    print(json.dumps(costs))


if __name__ == "__main__":
    main(int(sys.argv[1]))
