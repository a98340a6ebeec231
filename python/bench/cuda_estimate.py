"""What a GPU would take for a model in each form, as the model of an SM says: nothing is run."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from bench.graphs import operator_graphs
from tvm_rammer.backend import backend_for, resolve_target, vdevice_for
from tvm_rammer.schedule import plan
from tvm_rammer.schedule.simulate import simulate, simulate_by_wave

#: Policies of a persistent kernel; ``auto`` would try all, which takes minutes for 264 vEUs.
_PERSISTENT = ("estf", "wavefront")
#: The devices that are asked about, by the architecture that stands for each.
ESTIMATED = {"V100": "sm_70", "A100": "sm_80", "H100": "sm_90"}


@dataclass(frozen=True)
class CudaEstimate:
    """Simulated seconds of a model on a GPU.

    Attributes
    ----------
    operators : int
        Of all regions.
    per_op : float
        Every operator a launch of its own, one after the other.
    wavefront : float
        A launch for every wavefront.
    persistent : float
        One cooperative launch, of the faster of two plans.
    """

    operators: int
    per_op: float
    wavefront: float
    persistent: float


#: By model, then by GPU.
Estimates = dict[str, dict[str, CudaEstimate]]
#: What Rammer's paper (OSDI 2020) measured on a V100, over its own kernels one by one.
_PAPER = {
    "lstm_10x100x256": 6.3,
    "seq2seq": 2.5,
    "resnext29_16x64d": 2.4,
    "nasnet_cifar": 1.7,
    "deepspeech2": 1.7,
}
_PAGE = """Nothing on this page was measured on a GPU: it is what a model of one says.

Times in milliseconds of the same kernels in three forms, simulated; in brackets how many times
faster than one launch for each operator. `python python/estimate_cuda.py` makes this page. The last
column is what the authors of Rammer measured on a V100 with their kernels and their compiler.

TABLE

How it is estimated: operations, bank conflicts and sectors of memory are counted from each kernel's
TIR (`backend/cuda/operation_counts.py`); an SM issues, computes, loads and waits as published
numbers say (`backend/cuda/sm_time.py`, `backend/cuda/devices.py`, each with its source); launches,
barriers and hand-overs cost what others have measured. Where it is wrong:

- **The kernels one by one are slow.** They are dlight's, at most 256 threads of a block, made to be
  run beside others: few blocks each, so that alone they leave most of a GPU idle. The paper's were
  tuned. What is won is therefore larger here, most of all where operators are small convolutions.
- **A launch is the gap to the next kernel** in a stream that is never empty. A host that cannot
  launch as fast makes launches dearer, and the gains larger.
- **Launches are from two sources that count differently.** V100's, taken for A100 too, is the gap
  between kernels that hide a part of it, 0.9 us; H100's is all of an empty kernel, 2.1 us. Gains on
  H100 are not to be compared with the others.
- **Walking the table is free**: that a block looks up its next task, some loads from the L2 cache,
  is not counted, and takes most from plans of many small tasks.
- **Every number is of one source and one device.** What comes from V100 or A100 and is assumed to
  hold for others is marked so where it stands.
"""


def page(found: Estimates) -> str:
    """The page of all estimates."""
    columns = ["model", "operators", "GPU", "one by one", "wavefront", "persistent", "paper"]
    lines = [columns, ["---", *["--:"] * (len(columns) - 1)]]
    for name, some in found.items():
        for gpu, each in some.items():
            paper = f"{_PAPER[name]}x" if gpu == "V100" and name in _PAPER else ""
            times = (f"{t * 1e3:.3f} ({each.per_op / t:.1f}x)" for t in _forms(each))
            one = f"{each.per_op * 1e3:.3f}"
            lines.append([name, f"{each.operators:,}", gpu, one, *times, paper])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return _PAGE.replace("TABLE", table)


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
    operators, per_op, wavefront, persistent = 0, 0.0, 0.0, 0.0
    for graph in operator_graphs(model, target=target):
        operators += len(graph.operators)
        per_op += simulate_by_wave(plan(graph, vdevice, "sequential", costs), costs)
        programs = {name: plan(graph, vdevice, name, costs) for name in _PERSISTENT}
        wavefront += simulate_by_wave(programs["wavefront"], costs)
        persistent += min(simulate(each, costs).makespan for each in programs.values())
    return CudaEstimate(operators, per_op, wavefront, persistent)
