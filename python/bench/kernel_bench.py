"""Times one operator as its rKernels, and compares the result with numpy's."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from bench.kernel_cases import KernelCase, Problem
from tvm_rammer.backend.cpu.host.one_core import on_one_core
from tvm_rammer.backend.cpu.timing.kernel_timing import (
    CompiledJobs,
    Job,
    Step,
    compile_jobs,
)
from tvm_rammer.kernel.operands import Operand
from tvm_rammer.kernel.roofline import roofline
from tvm_rammer.kernel.work import Work, work_of
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.region.kernel_library import KernelLibrary
from tvm_rammer.region.operator_graph import ConstantPool, RegionGraph, region_graph
from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.transform.prepare import Prepare


@dataclass(frozen=True)
class CaseResult:
    """What was found about a case.

    Attributes
    ----------
    table, name, unit : str
        Of the case.
    kernels : tuple of str
        The rules of its rKernels, in order.
    tilings : tuple of str
    num_tiles : tuple of int
    seconds, spread : float
        On one core, as in :class:`~tvm_rammer.backend.cpu.timing.kernel_timing.Timing`.
    rate : float
        In the case's unit.
    ceiling_share : float
        Of the core's multiply-adds for a case in GFLOP/s, else of its roofline.
    error : float
        The largest, relative to the largest result, or to 1 if that is less.
    schedule_seconds, compile_seconds : float
        What making the kernels took, in the rules and in LLVM.
    """

    table: str
    name: str
    unit: str
    kernels: tuple[str, ...]
    tilings: tuple[str, ...]
    num_tiles: tuple[int, ...]
    seconds: float
    spread: float
    rate: float
    ceiling_share: float
    error: float
    schedule_seconds: float
    compile_seconds: float


def measure_case(
    case: KernelCase,
    target: tvm.target.Target,
    vdevice: VDevice,
    ceilings: Ceilings,
    winograd_tolerance: float,
    total_seconds: float,
) -> CaseResult:
    """Schedule, compile, check and time a case, its operands in the nearest caches they fit.

    Parameters
    ----------
    case : KernelCase
    target : Target
    vdevice : VDevice
        The device behind the target.
    ceilings : Ceilings
        Of this machine.
    winograd_tolerance : float
        For the cases that may use Winograd's algorithm.
    total_seconds : float
        How long to time.
    """
    problem = case.make()
    started = time.perf_counter()
    library = KernelLibrary(vdevice, winograd_tolerance if case.winograd else 0.0)
    region = _region(problem, target, library)
    scheduled = time.perf_counter()
    jobs = compile_jobs((_job(region.graph),), library.bodies, target)
    compiled = time.perf_counter()
    memory = jobs.memory(0, _contents(region, problem))
    jobs.run(0, memory)
    error = _error(jobs, region.graph, memory, problem)
    timing = on_one_core(lambda: jobs.time(0, memory, total_seconds=total_seconds))
    work = _work(region.graph, library)
    kernels = [op.candidates[0] for op in region.graph.operators]
    amount = work.nbytes if case.unit == "GB/s" else problem.amount
    rate = amount / timing.seconds / 1e9
    roof = roofline(work, jobs.jobs[0].nbytes, ceilings, vdevice).seconds / timing.seconds
    return CaseResult(
        case.table,
        case.name,
        case.unit,
        tuple(kernel.origin for kernel in kernels),
        tuple(kernel.tiling for kernel in kernels),
        tuple(kernel.num_tiles for kernel in kernels),
        timing.seconds,
        timing.spread,
        rate,
        rate * 1e9 / ceilings.flops if case.unit == "GFLOP/s" else roof,
        error,
        scheduled - started,
        compiled - scheduled,
    )


def _region(problem: Problem, target: tvm.target.Target, library: KernelLibrary) -> RegionGraph:
    """The operators that a problem becomes, with their constants."""
    params = [
        relax.Var(f"x{k}", relax.TensorType(array.shape, str(array.dtype)))
        for k, array in enumerate(problem.inputs)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(problem.build(*params))
        builder.emit_func_output(result)
    with target:
        mod = tvm.transform.Sequential([Prepare()])(builder.get())
        return region_graph("main", mod["main"], mod, library, ConstantPool())


def _job(graph: OperatorGraph) -> Job:
    steps = (
        Step(op.candidates[0].name, op.candidates[0].num_tiles, op.arguments)
        for op in graph.operators
    )
    return Job(tuple(steps), tuple(Operand(b.shape, b.dtype) for b in graph.buffers))


def _contents(region: RegionGraph, problem: Problem) -> dict[int, np.ndarray]:
    """The inputs and the constants, by the number of their buffers."""
    found: dict[int, np.ndarray] = {}
    for number, buffer in enumerate(region.graph.buffers):
        if buffer.space == "input":
            found[number] = problem.inputs[buffer.index]
        elif buffer.space == "constant":
            held = region.constants[buffer.offset : buffer.offset + buffer.nbytes]
            found[number] = held.view(buffer.dtype)
    return found


def _error(jobs: CompiledJobs, graph: OperatorGraph, memory: np.ndarray, problem: Problem) -> float:
    (output,) = (k for k, buffer in enumerate(graph.buffers) if buffer.space == "output")
    got = jobs.operand(0, output, memory).astype(np.float64)
    want = problem.reference(*problem.inputs)
    difference = np.abs(got - want.reshape(got.shape)).max()
    return float(difference / max(1.0, np.abs(want).max()))


def _work(graph: OperatorGraph, library: KernelLibrary) -> Work:
    """What all operators do; bytes that pass between them count for both."""
    total = Work(0.0, 0)
    for op in graph.operators:
        kernel: Any = op.candidates[0]
        buffers = (graph.buffers[k] for k in op.arguments)
        sizes = [Operand(buffer.shape, buffer.dtype).nbytes for buffer in buffers]
        total += work_of(library.bodies[kernel.name], kernel.num_tiles, sizes)
    return total
