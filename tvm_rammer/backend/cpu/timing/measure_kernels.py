"""Measure rKernels on this machine, with the very code that a plan will run.

An instruction table is data, so measuring needs no compiling: a table of one vEU that runs one
kernel again and again is walked by the compiled entry of a region. Its operands rotate through
several copies of the kernel's memory, more than a second-level cache holds, because in a network
the weights of an operator have left the near caches by the time it runs again. Weights that are
more than that by themselves are read where they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from tvm_rammer.backend.cpu.codegen.instruction_table import (
    arena_tensor_bytes,
    header_bytes,
    instruction_table,
)
from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.backend.plan_rows import BaseLayout
from tvm_rammer.backend.signature import RegionSignature
from tvm_rammer.kernel.operands import KernelUse, Operand, copies_for
from tvm_rammer.rprogram import (
    Buffer,
    RKernel,
    ROperator,
    RProgram,
    RTask,
    aligned,
)
from tvm_rammer.tensors import as_tensor, empty, held_as

#: Seconds of one timed run, and how many of them; the fastest counts.
_RUN_SECONDS = 1e-3
_RUNS = 3


def measure_kernels(
    module: tvm.runtime.Module,
    signature: RegionSignature,
    ids: Mapping[str, int],
    kernels: Iterable[KernelUse],
    constants: np.ndarray,
    cache_bytes: int,
) -> dict[str, float]:
    """Time one tile of each kernel on one core, as :meth:`.Stopwatch.kernels` says."""
    pool = as_tensor(constants)
    bench = _Bench(module[signature.name], signature, ids, pool, cache_bytes)

    def run() -> dict[str, float]:
        # A pool of one worker in a thread of its own: the caller's pool is left alone.
        tvm.get_global_func("runtime.config_threadpool")(-3, 1, [str(host_cpu().cpus[0])])
        return {
            kernel.name: bench.time(kernel, operands) / max(1, kernel.num_tiles)
            for kernel, operands in kernels
        }

    with ThreadPoolExecutor(1, thread_name_prefix="tvm-rammer-measure") as executor:
        return executor.submit(run).result()


@dataclass(frozen=True)
class _Bench:
    entry: Any
    signature: RegionSignature
    ids: Mapping[str, int]
    constants: Any
    cache_bytes: int

    def time(self, kernel: RKernel, operands: tuple[Operand, ...]) -> float:
        """Seconds that all tiles of a kernel take on one core."""
        size = sum(aligned(operand.nbytes) for operand in operands)
        copies = copies_for(size, self.cache_bytes)
        # The places are those of any number of runs, and no run leaves anything to clean up.
        memory = self._memory(_program(self.signature, kernel, operands, copies, copies))

        def fastest(repeats: int, runs: int) -> float:
            """Seconds that one of so many repeats takes."""
            program = _program(self.signature, kernel, operands, copies, repeats)
            return self._fastest(program, memory, runs) / repeats

        # The first run also loads the code.
        once = fastest(copies, 2)
        repeats = max(1, min(2000, math.ceil(_RUN_SECONDS / max(once, 1e-9))))
        return fastest(repeats, _RUNS)

    def _memory(self, program: RProgram) -> Any:
        """An arena whose floating-point numbers are 0.5, and all others zero."""
        layout = BaseLayout.of(self.signature)
        start = header_bytes(program, layout)
        memory = empty((arena_tensor_bytes(program, layout),), np.uint8)
        memory[:start] = 0
        for buffer in program.buffers:
            if buffer.space == "arena":
                dtype = held_as(buffer.dtype)
                first = start + buffer.offset
                place = memory[first : first + buffer.nbytes].view(dtype)
                place[:] = 0.5 if dtype.kind == "f" else 0
        return as_tensor(memory)

    def _fastest(self, program: RProgram, memory: Any, runs: int) -> float:
        """Seconds of the fastest of so many runs."""
        table = tvm.runtime.tensor(
            instruction_table(program, BaseLayout.of(self.signature), self.ids)
        )
        inputs, outputs = (
            [tvm.runtime.empty(spec.shape, spec.dtype) for spec in specs]
            for specs in (self.signature.inputs, self.signature.outputs)
        )
        arguments = [*inputs, self.constants, table, *outputs, memory]

        def run() -> float:
            # Of this thread, which is the whole pool: what others do on its core does not count.
            started = time.thread_time()
            self.entry(*arguments)
            return time.thread_time() - started

        return min(run() for _ in range(runs))


def _program(
    signature: RegionSignature,
    kernel: RKernel,
    operands: tuple[Operand, ...],
    copies: int,
    repeats: int,
) -> RProgram:
    """One vEU that runs a kernel ``repeats`` times on ``copies`` sets of operands in turn."""
    buffers: list[Buffer] = []
    offset = 0
    for copy in range(copies):
        for number, operand in enumerate(operands):
            name, shape, dtype = f"operand{number}.{copy}", operand.shape, operand.dtype
            if operand.constant is not None and copies == 1:
                buffers.append(Buffer(name, shape, dtype, "constant", 0, operand.constant))
                continue
            buffers.append(Buffer(name, shape, dtype, "arena", 0, offset))
            offset += aligned(operand.nbytes)
    width = len(operands)
    places = list(range(width))
    if kernel.in_place is not None:
        # As it runs where it matters: what stays as it was is there already.
        source, result = kernel.in_place
        places[result] = source
    operators = tuple(
        ROperator(f"{kernel.name}.{copy}", 0, tuple(copy * width + place for place in places))
        for copy in range(copies)
    )
    tasks = tuple(RTask(k % copies, 0, kernel.num_tiles) for k in range(repeats))
    return RProgram(
        signature.name, "measurement", tuple(buffers), (kernel,), operators, (tasks,), offset
    )
