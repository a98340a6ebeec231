"""What a GPU would take for a model in each form, as the model of an SM says: nothing is run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import onnx
import tvm

from bench.graphs import operator_graphs
from tvm_rammer.backend import backend_for, resolve_target, vdevice_for
from tvm_rammer.backend.cuda.arch_target import LIMITS
from tvm_rammer.backend.cuda.cubin import (
    FunctionResources,
    check_nvcc,
    compile_cubin,
    known_architectures,
)
from tvm_rammer.backend.cuda.occupancy import blocks_per_sm
from tvm_rammer.errors import DeviceError
from tvm_rammer.frontend import load_model
from tvm_rammer.options import Options
from tvm_rammer.region.compiler import signature_of
from tvm_rammer.rprogram import OperatorGraph, RProgram
from tvm_rammer.schedule import CostModel, plan
from tvm_rammer.schedule.simulate import seconds_by_wave, simulate
from tvm_rammer.transform.partition_regions import PartitionRegions
from tvm_rammer.transform.pipeline import partition_module

#: Policies of a persistent kernel; ``auto`` would try all, which takes minutes for 264 vEUs.
_PERSISTENT = ("sequential", "estf", "wavefront")
#: The devices that are asked about, by the architecture that stands for each.
ESTIMATED = {"V100": "sm_70", "A100": "sm_80", "H100": "sm_90"}


@dataclass(frozen=True)
class CudaEstimate:
    """Simulated seconds of a model on a GPU.

    Attributes
    ----------
    operators : int
        Of all regions of the plans.
    per_op : float
        Every operator of a build one by one a launch of its own, one after the other.
    wavefront : float
        A launch for every wavefront.
    persistent : float
        One cooperative launch, of the faster of two plans.
    registers, spilled : int or None
        Of a thread of the merged kernel, and bytes that it writes to memory as they run out, as
        ptxas reports them; None where they were not asked for.
    room : int or None
        Blocks of it that an SM has room for by what ptxas reports.
    kept : int or None
        Blocks that the plan keeps on an SM.
    code : str
        The architecture that the kernel was compiled for.
    """

    operators: int
    per_op: float
    wavefront: float
    persistent: float
    registers: int | None = None
    spilled: int | None = None
    room: int | None = None
    kept: int | None = None
    code: str = ""


#: By model, then by GPU.
Estimates = dict[str, dict[str, CudaEstimate]]
#: Milliseconds that the authors of Rammer (OSDI 2020) measured on a V100: their kernels one by one,
#: and co-scheduled. Source: microsoft/nnfusion, artifacts/figure10 and figure11, paper_result.
_PAPER = {
    "lstm_10x100x256": (29.714, 4.726),
    "seq2seq": (9.274, 3.661),
    "resnext29_16x64d": (10.940, 4.629),
    "nasnet_cifar": (2.974, 1.737),
    "deepspeech2": (7.885, 4.691),
}
_PAGE = """Nothing on this page was measured on a GPU: it is what a model of one says.
What one took stands [beside it](gpu.md).

Times in milliseconds of three forms of a build, simulated; in brackets how many times faster than
one launch for each operator, in the schedule that is the fastest for it alone.
`python python/estimate_cuda.py` makes this page. The column "paper" is what the authors of Rammer
measured on a V100, their kernels one by one and together
([their results](https://github.com/microsoft/nnfusion), artifacts/figure10 and figure11).
"Registers" are what ptxas reports of a thread of the merged kernel, "blocks" those that the plan
keeps on an SM, of those for which it has room by registers, threads and shared memory. V100's are
of code for sm_75, the oldest that nvcc 13 compiles for.

TABLE

How it is estimated: operations, bank conflicts and sectors of memory are counted from each kernel's
TIR (`backend/cuda/operation_counts.py`); an SM issues, computes, loads and waits as published
numbers say (`backend/cuda/sm_time.py`, `backend/cuda/devices.py`, each with its source); launches,
barriers and hand-overs cost what others have measured. Where it is wrong:

- **The kernels are not the paper's.** They are dlight's and others beside them, at most 256 threads
  of a block, for each operator an efficient one and a fast one; the paper's were tuned. What they
  take one by one on V100, over what the authors measured of theirs: ONE_BY_ONE.
- **A launch is the gap to the next kernel** in a stream that is never empty. A host that cannot
  launch as fast makes launches dearer, and the gains larger.
- **Launches are from two sources that count differently.** V100's, taken for A100 too, is the gap
  between kernels that hide a part of it, 0.9 us; H100's is what `python/measure_gpu.py` measures in
  a stream, 3.8 us, as its host launches no faster (1.0 us in a CUDA graph). Gains on H100 are not
  to be compared with the others.
- **Walking the table costs the same everywhere**: 5.5 latencies of the L2 cache for each rTask, to
  look up the next one and to say that one is done, as profiles of an H100 have it (0.7 us).
- **The L2 cache loses the weight that was not read for longest**, whole, as soon as another needs
  its place. LSTM 10x100 reads 21 MB of weights in each of its steps if all layers run at once, and
  V100's cache has 6 MB: nothing is found there again. A cache that keeps some of what is read in
  turns does better. What the runs before left in it is not counted: what all weights together
  have more than it holds comes from memory in every run.
- **Small operators gain more than the paper measured**, Seq2Seq's above all. Most of its time one
  by one are launches, and a block hands over to others in four latencies of the L2 cache here,
  however many wait; the paper's rTasks meet at barriers.
- **Every number is of one source and one device.** What comes from V100 or A100 and is assumed to
  hold for others is marked so where it stands.
- **Not every number could be checked.** Rammer's are the authors' own files; V100's L2 cache and
  memory (Jia) stand in other texts as well. H100's launches, hand-overs, bandwidths and its L2
  cache's latency are measured ([what a GPU took](gpu.md)). V100's 0.9 us of a launch and 1.4 us of
  a barrier of the grid (Zhang), and the latencies of A100 and RTX 4090 (Luo), were not found a
  second time.
"""


def page(found: Estimates) -> str:
    """The page of all estimates."""
    columns = ["model", "operators", "GPU", "one by one", "wavefront", "persistent", "paper"]
    columns += ["registers", "blocks"]
    lines = [columns, ["---", *["--:"] * (len(columns) - 1)]]
    for name, some in found.items():
        for gpu, each in some.items():
            paper = _measured(*_PAPER[name]) if gpu == "V100" and name in _PAPER else ""
            times = (f"{t * 1e3:.3f} ({each.per_op / t:.1f}x)" for t in _forms(each))
            one = f"{each.per_op * 1e3:.3f}"
            lines.append([name, f"{each.operators:,}", gpu, one, *times, paper, *_taken(each)])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    compared = [
        f"{name} {some['V100'].per_op * 1e3 / _PAPER[name][0]:.1f}"
        for name, some in found.items()
        if name in _PAPER and "V100" in some
    ]
    return _PAGE.replace("TABLE", table).replace("ONE_BY_ONE", ", ".join(compared) or "not known")


def _measured(one_by_one: float, together: float) -> str:
    return f"{one_by_one:.2f}, {together:.2f} ({one_by_one / together:.1f}x)"


def _taken(each: CudaEstimate) -> tuple[str, str]:
    """Registers of a thread, and the blocks that are kept of those for which there is room."""
    if each.registers is None:
        return "", ""
    spilled = f" ({each.spilled} B spilled)" if each.spilled else ""
    return f"{each.registers}{spilled}", f"{each.kept} of {each.room}"


def _forms(each: CudaEstimate) -> tuple[float, float]:
    return each.wavefront, each.persistent


def estimate(model: onnx.ModelProto, arch: str) -> CudaEstimate:
    """Plan and simulate a model.

    Parameters
    ----------
    model : onnx.ModelProto
    arch : str
        Such as ``"sm_90"``.
    """
    target = resolve_target({"kind": "cuda", "arch": arch})
    vdevice = vdevice_for(target)
    costs = backend_for(target).costs(vdevice)
    operators, wavefront, persistent = 0, 0.0, 0.0
    per_op = sum(
        _by_wave(plan(graph, vdevice, "sequential", costs), costs)
        for graph in _launched_singly(model, target)
    )
    for graph in operator_graphs(model, target=target):
        operators += len(graph.operators)
        programs = {name: plan(graph, vdevice, name, costs) for name in _PERSISTENT}
        wavefront += _by_wave(programs["wavefront"], costs)
        persistent += min(simulate(each, costs).makespan for each in programs.values())
    return CudaEstimate(operators, per_op, wavefront, persistent)


def _launched_singly(model: onnx.ModelProto, target: Any) -> list[OperatorGraph]:
    """The operators that a build one by one has, each as fast as it is alone.

    They are fewer than those of a plan, for which products stay apart.
    """
    goal = Options(form="per-op").resolve(target)
    partitions = partition_module(load_model(model).module, goal)
    compiler, vdevice = partitions.compiler, goal.vdevice
    refusal = partial(compiler.backend.refusal, vdevice=vdevice)
    partition = tvm.transform.Sequential([PartitionRegions(refusal=refusal)])
    with goal.target:
        regions = partition(partitions.merged_for(vdevice))
    graphs = [region.graph for region in compiler.graphs(regions).values()]
    # Of an operator's schedules the fastest is the last.
    return [graph.with_candidates(op.candidates[-1:] for op in graph.operators) for graph in graphs]


def _by_wave(program: RProgram, costs: CostModel) -> float:
    return seconds_by_wave(program, simulate(program, costs), costs)


def with_registers(found: CudaEstimate, model: onnx.ModelProto, arch: str) -> CudaEstimate:
    """An estimate with what nvcc reports of the model's merged kernels.

    Where nvcc knows a GPU's architecture no more, the oldest that it does stands for it.

    Raises
    ------
    DeviceError
        When nvcc is not there, or an SM has less room than the plan counts on.
    """
    target = resolve_target({"kind": "cuda", "arch": arch})
    try:
        check_nvcc(arch)
        code = arch
    except DeviceError:
        code = known_architectures()[0]
    kernels = [
        each
        for source in kernel_sources(model, target)
        for each in compile_cubin(source, code, "-O3").functions
        if each.kernel
    ]
    largest = max(kernels, key=lambda each: (each.registers, each.shared_bytes))
    device = vdevice_for(target)
    kept, room = device.threads // device.cores, _room(arch, kernels)
    if room < kept:
        raise DeviceError(
            f"an SM of {arch} has room for {room} blocks of the kernel, and the plan keeps {kept}"
        )
    spilled = max(each.spill_stores for each in kernels)
    return replace(
        found, registers=largest.registers, spilled=spilled, room=room, kept=kept, code=code
    )


def _room(arch: str, kernels: list[FunctionResources]) -> int:
    """Blocks of the largest kernel on an SM."""
    return min(
        blocks_per_sm(arch, LIMITS.threads, each.registers, each.shared_bytes) for each in kernels
    )


def kernel_sources(model: onnx.ModelProto, target: Any) -> list[str]:
    """CUDA C of the kernels of a model's regions, which are the same for every plan."""
    goal = Options().resolve(target)
    partitions = partition_module(load_model(model).module, goal)
    compiler = partitions.compiler
    regions = compiler.graphs(partitions.merged_for(goal.vdevice)).values()
    built = compiler.module(tuple(signature_of(region.graph) for region in regions))
    return [each.inspect_source() for each in built.imports if each.kind == "cuda"]
