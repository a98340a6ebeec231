"""Times rTask bodies by themselves on one core: kernels, or several stages one after the other.

The loop over repetitions is part of the generated code, so that a kernel of a microsecond can be
timed. The fastest of many short runs counts, and how far the median is from it says how much other
programs disturbed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, GlobalVar, PrimType

from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.backend.cpu.llvm import llvm_ir
from tvm_rammer.kernel.bodies import exported
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.kernel.operands import Operand, Timing
from tvm_rammer.rprogram import aligned
from tvm_rammer.tensors import held_as

_PAGE_BYTES = 2 << 20
#: At least so many runs, however long they are.
_FEWEST_RUNS = 8


@dataclass(frozen=True)
class Step:
    """All tiles of one rTask body; ``arguments[k]`` is the operand behind its pointer ``k``."""

    body: str
    num_tiles: int
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """What is timed: steps in order, on operands."""

    steps: tuple[Step, ...]
    operands: tuple[Operand, ...]

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where every operand starts in the job's memory, and where the last one ends."""
        found = [0]
        for operand in self.operands:
            found.append(found[-1] + aligned(operand.nbytes))
        return tuple(found)

    @property
    def nbytes(self) -> int:
        """Bytes of all operands."""
        return self.offsets[-1]


@dataclass(frozen=True)
class CompiledJobs:
    """Compiled jobs.

    Attributes
    ----------
    module : tvm.runtime.Module
        In its code, everything about job number ``k`` is in functions named ``job_<k>...``.
    """

    module: tvm.runtime.Module
    jobs: tuple[Job, ...]

    def memory(
        self, number: int, arrays: Mapping[int, np.ndarray] | None = None, copies: int = 1
    ) -> np.ndarray:
        """Memory for ``copies`` copies of a job's operands; floats in it are ordinary numbers.

        Parameters
        ----------
        number : int
            Of the job.
        arrays : mapping of int to array, optional
            What operands hold at first.
        copies : int
        """
        job = self.jobs[number]
        size = job.nbytes * copies
        held = np.zeros(size + _PAGE_BYTES, np.uint8)
        start = -held.ctypes.data % _PAGE_BYTES
        memory = held[start : start + size]
        for copy in range(copies):
            for k in range(len(job.operands)):
                place = self.operand(number, k, memory, copy)
                if arrays is not None and k in arrays:
                    place[...] = arrays[k].reshape(place.shape)
                elif place.dtype.kind == "f":
                    place[...] = 0.5
        return memory

    def operand(self, number: int, k: int, memory: np.ndarray, copy: int = 0) -> np.ndarray:
        """Operand ``k`` of a job, as the memory holds it."""
        job = self.jobs[number]
        operand = job.operands[k]
        first = copy * job.nbytes + job.offsets[k]
        held = memory[first : first + operand.nbytes].view(held_as(operand.dtype))
        return held.reshape(operand.shape)

    def run(self, number: int, memory: np.ndarray, repeats: int = 1, copies: int = 1) -> None:
        """Run a job ``repeats`` times, on the copies in turn."""
        self.module[f"job_{number}"](repeats, copies, tvm_ffi.from_dlpack(memory))

    def time(
        self,
        number: int,
        memory: np.ndarray,
        copies: int = 1,
        run_seconds: float = 5e-4,
        total_seconds: float = 1e-2,
    ) -> Timing:
        """Time a job on the calling thread (see ``on_one_core``).

        Parameters
        ----------
        number : int
        memory : array
            Made by :meth:`memory` for so many copies.
        copies : int
        run_seconds, total_seconds : float
            Least time of one run, and most time of all (but for the fewest runs).
        """
        self.run(number, memory, copies, copies)
        once = self._seconds(number, memory, copies, copies) / copies
        repeats = copies * max(1, ceil(run_seconds / max(once * copies, 1e-9)))
        end = time.perf_counter() + total_seconds
        runs: list[float] = []
        while len(runs) < _FEWEST_RUNS or time.perf_counter() < end:
            runs.append(self._seconds(number, memory, repeats, copies) / repeats)
        return Timing(min(runs), statistics.median(runs) / min(runs) - 1)

    def _seconds(self, number: int, memory: np.ndarray, repeats: int, copies: int) -> float:
        # Of the thread: what others do on this core meanwhile does not count.
        started = time.thread_time()
        self.run(number, memory, repeats, copies)
        return time.thread_time() - started


def compile_jobs(
    jobs: tuple[Job, ...], bodies: Mapping[str, tirx.PrimFunc], target: tvm.target.Target
) -> CompiledJobs:
    """Compile jobs, each with bodies of its own, so that the code of every job can be looked at.

    Parameters
    ----------
    jobs : tuple of Job
    bodies : mapping of str to PrimFunc
        rTask bodies by name.
    target : Target
        Of kind ``llvm``; only code for this machine can be run.
    """
    functions: dict[GlobalVar, tirx.PrimFunc] = {}
    for number, job in enumerate(jobs):
        names = dict.fromkeys(step.body for step in job.steps)
        private = {name: GlobalVar(f"job_{number}_body{k}") for k, name in enumerate(names)}
        functions.update({symbol: bodies[name] for name, symbol in private.items()})
        symbol = GlobalVar(f"job_{number}")
        functions[symbol] = _entry(symbol.name_hint, job, private)
    functions[GlobalVar("job_bytes")] = _sizes([job.nbytes for job in jobs])
    module = tvm.tirx.build(tvm.IRModule(functions), target, pipeline=lowering_pipeline())
    return CompiledJobs(module, jobs)


def _sizes(sizes: Sequence[int]) -> tirx.PrimFunc:
    """A packed function that stores the bytes of every job, for a process that has no jobs."""
    out = tirx.decl_buffer((len(sizes),), "int64", name="sizes")
    stores = [tirx.BufferStore(out, tirx.const(n, "int64"), [k]) for k, n in enumerate(sizes)]
    return exported("job_bytes", [out], sequence(stores))


def _entry(symbol: str, job: Job, bodies: Mapping[str, GlobalVar]) -> tirx.PrimFunc:
    """A packed function ``(repeats, copies, memory)`` that runs a job."""
    repeats, copies, turn = (tirx.Var(name, "int32") for name in ("repeats", "copies", "turn"))
    memory = tirx.decl_buffer((tirx.Var("nbytes", "int64"),), "uint8", name="memory")
    first = tirx.Var("first", "int64")
    copy = tirx.truncmod(turn, copies).astype("int64")
    statements: list[Any] = [tirx.Bind(first, copy * job.nbytes)]
    for step in job.steps:
        pointers = [tirx.address_of(memory[first + job.offsets[k]]) for k in step.arguments]
        call = Call(bodies[step.body], [0, step.num_tiles, *pointers], ret_ty=PrimType("int32"))
        # TVM 0.27 names this constructor's first two parameters the wrong way round.
        statements.append(tirx.AssertStmt(call == 0, "RuntimeError", ["an rTask failed"]))
    statements.append(tirx.Evaluate(tirx.call_extern("void", "timing_fence")))
    loop = tirx.For(turn, 0, repeats, tirx.ForKind.SERIAL, tirx.SeqStmt(statements))
    body = tirx.AttrStmt(0, "pragma_import_llvm", llvm_ir("timing_fence"), loop)
    return exported(symbol, [repeats, copies, memory], body)
