"""The page of what GPUs took: forms of the same plans, stock TVM and PyTorch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from bench.markdown import table, whole_page
from tvm_rammer.typed_json import read_as

#: What the others are compared with, and what is ours, of :class:`GpuModel`'s forms.
BASELINE, OURS = "one-by-one", "persistent"

_INTRODUCTION = """# GPUs

Medians in milliseconds on an {gpu}, {date}; float32 without TF32, batch as the model has it.
`python python/pack_cuda.py MODEL --arch sm_90 -o packed` and `python packed/run.py` measure the
forms, and `python python/bench_cuda.py` stock TVM and PyTorch. "One by one" are this project's
kernels, each operator's fastest, in a launch each; "wavefront" is a launch for each wavefront;
"persistent" is one cooperative launch for all. "Graph" is a CUDA graph of the same launches, else
the host launches them by TVM's VM. PyTorch runs the same ONNX file through onnx2torch, operator by
operator; "cuDNN" is its own LSTM or GRU of that size, as a graph. The gain is of the faster of
our two forms over the same kernels one by one, both as graphs; "others" is the best time of stock
TVM, PyTorch and cuDNN over it."""
#: Contenders of `bench.pytorch_on_gpu`, and the heads of their columns.
_CONTENDERS = {
    "eager": "PyTorch",
    "eager-graph": "graph",
    "compile": "torch.compile",
    "rammer": "ours",
    "rammer-graph": "ours, graph",
}
_NETWORKS = """## Networks of PyTorch on an {gpu}

Medians in milliseconds, {date}; float32 without TF32. `python
python/bench_pytorch_cuda.py` measures these: networks as PyTorch has them, through `torch.export`.
`torch.compile` is its mode `reduce-overhead`, with CUDA graphs."""
_KERNELS = """## Other kernels for products

Products in slices of K (`backend/cuda/sliced_matmul.py`) in place of dlight's tiles, on an
{gpu}, {date}. Operators of models, each in a launch of its own by every schedule there is
(`python python/time_gpu_schedules.py MODEL` does this): microseconds of all of them together, by
the schedule that is the fastest for each, and of the whole device that they are busy, by the one
that is the most efficient."""
_NETWORKS_SINCE = """Networks of PyTorch as CUDA graphs, medians in milliseconds, by commits
{before} and {after}, beside PyTorch's own (`python python/bench_pytorch_cuda.py`)."""
_SPEEDS = """## What the GPU takes for the rest

`python python/measure_gpu.py`; `backend/cuda/sm_time.py` reckons with these."""


@dataclass(frozen=True)
class GpuForm:
    """Medians of a form.

    Attributes
    ----------
    launched, captured : float
        Milliseconds by TVM's VM, and as a CUDA graph.
    launches : int
    error : float
        The largest relative one of an output.
    """

    launched: float
    captured: float
    launches: int
    error: float


@dataclass(frozen=True)
class GpuModel:
    """What was measured of a model.

    Attributes
    ----------
    forms : dict of str to GpuForm
        ``one-by-one``, ``wavefront``, ``persistent``, and ``stock`` of TVM.
    pytorch : dict of str to float
        Milliseconds: ``eager``, and ``captured`` in a CUDA graph; ``cudnn`` of its own recurrent
        layers, captured.
    """

    forms: Mapping[str, GpuForm]
    pytorch: Mapping[str, float] = field(default_factory=dict)

    @property
    def ours(self) -> float:
        """The faster of our two forms, as a graph."""
        return min(self.forms[name].captured for name in ("wavefront", OURS))

    @property
    def gain(self) -> float:
        """How many times faster than the same kernels one by one, both as graphs."""
        return self.forms[BASELINE].captured / self.ours

    @property
    def others(self) -> float | None:
        """The time of the best of the others over ours; None where there are none."""
        times = list(self.pytorch.values())
        if "stock" in self.forms:
            times += [self.forms["stock"].launched, self.forms["stock"].captured]
        return min(times) / self.ours if times else None


@dataclass(frozen=True)
class NetworkTimes:
    """Networks of PyTorch on one GPU.

    Attributes
    ----------
    gpu, date : str
    networks : dict of str to dict of str to float
        Milliseconds by network and contender of ``bench.pytorch_on_gpu``.
    notes : tuple of str
    """

    gpu: str
    date: str
    networks: Mapping[str, Mapping[str, float]]
    notes: tuple[str, ...] = ()

    def parts(self) -> list[str]:
        """A section of the page."""
        rows = [
            [name, *(_ms(times.get(each)) for each in _CONTENDERS), _over(times)]
            for name, times in self.networks.items()
        ]
        title = _NETWORKS.format(gpu=self.gpu, date=self.date)
        columns = ["network", *_CONTENDERS.values(), "best of PyTorch over ours"]
        return [title, table(columns, rows), "\n".join(f"- {note}" for note in self.notes)]


@dataclass(frozen=True)
class KernelTimes:
    """Microseconds of operators of a model, by their fastest and by their most efficient schedules.

    Attributes
    ----------
    operators : int
    fastest, device : tuple of float
        Before and after, of all operators: launched one by one, and of a device that is full.
    """

    operators: int
    fastest: tuple[float, float]
    device: tuple[float, float]


@dataclass(frozen=True)
class KernelChange:
    """Models before and after other kernels, on one GPU.

    Attributes
    ----------
    gpu, date, before, after : str
        The last two are commits.
    kernels : dict of str to KernelTimes
        By model.
    networks : dict of str to dict of str to float
        Milliseconds ``before`` and ``after``, and of contenders of ``bench.pytorch_on_gpu``.
    notes : tuple of str
    """

    gpu: str
    date: str
    before: str
    after: str
    kernels: Mapping[str, KernelTimes]
    networks: Mapping[str, Mapping[str, float]]
    notes: tuple[str, ...] = ()

    def parts(self) -> list[str]:
        """A section of the page."""
        kernels = [
            [name, str(each.operators), *_change(*each.fastest), *_change(*each.device)]
            for name, each in self.kernels.items()
        ]
        peers = ("eager-graph", "compile")
        networks = [
            [name, *_change(times["before"], times["after"]), *(_ms(times.get(p)) for p in peers)]
            for name, times in self.networks.items()
        ]
        changes = ["before", "after", ""]
        return [
            _KERNELS.format(gpu=self.gpu, date=self.date),
            table(["model", "operators", *changes, "device, before", "after", ""], kernels),
            _NETWORKS_SINCE.format(before=self.before, after=self.after),
            table(["network", *changes, "PyTorch, graph", "torch.compile"], networks),
            "\n".join(f"- {note}" for note in self.notes),
        ]


@dataclass(frozen=True)
class GpuResults:
    """Everything that was measured on a GPU.

    Attributes
    ----------
    gpu, date : str
    models : dict of str to GpuModel
    speeds : tuple of dict
        As measure_gpu.py writes them.
    notes : tuple of str
    pytorch_networks : tuple of NetworkTimes
    kernels : KernelChange or None
    """

    gpu: str
    date: str
    models: Mapping[str, GpuModel]
    speeds: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    pytorch_networks: tuple[NetworkTimes, ...] = ()
    kernels: KernelChange | None = None

    @property
    def gain(self) -> float:
        """The geometric mean over the models."""
        return geometric_mean([model.gain for model in self.models.values()])

    @property
    def others(self) -> float:
        """The geometric mean of the best of the others over ours."""
        found = (model.others for model in self.models.values())
        return geometric_mean([each for each in found if each is not None])


def load_gpu(path: Path) -> GpuResults:
    """Read docs/results/gpu.json."""
    results: GpuResults = read_as(GpuResults, json.loads(path.read_text()))
    return results


def gpu_page(results: GpuResults) -> str:
    """The page in Markdown."""
    parts = [
        _INTRODUCTION.format(gpu=results.gpu, date=results.date),
        _models(results),
        "\n".join(f"- {note}" for note in results.notes),
        *(part for networks in results.pytorch_networks for part in networks.parts()),
        *(results.kernels.parts() if results.kernels else ()),
        _SPEEDS,
        table(
            ["", "median"],
            [[each["what"], f"{each['value']:,.4g} {each['unit']}"] for each in results.speeds],
        ),
    ]
    return whole_page(parts)


def _models(results: GpuResults) -> str:
    columns = ["model", "launches", "stock TVM", "graph", "PyTorch", "graph", "cuDNN"]
    columns += ["one by one", "graph", "wavefront, graph", "persistent", "graph", "gain", "others"]
    rows = []
    for name, model in results.models.items():
        forms = model.forms
        row = [name, f"{forms[BASELINE].launches:,}", *_both(forms.get("stock"))]
        row += [_ms(model.pytorch.get(kind)) for kind in ("eager", "captured", "cudnn")]
        row += [*_both(forms[BASELINE]), _ms(forms["wavefront"].captured), *_both(forms[OURS])]
        row += [f"{model.gain:.2f}x", "" if model.others is None else f"{model.others:.2f}x"]
        rows.append(row)
    means = ["geometric mean", *[""] * 11, f"{results.gain:.2f}x", f"{results.others:.2f}x"]
    return table(columns, [*rows, means])


def _both(form: GpuForm | None) -> tuple[str, str]:
    return ("", "") if form is None else (_ms(form.launched), _ms(form.captured))


def _over(times: Mapping[str, float]) -> str:
    ours = min(times[each] for each in times if "rammer" in each)
    return f"{min(times[each] for each in times if 'rammer' not in each) / ours:.2f}x"


def _change(before: float, after: float) -> tuple[str, str, str]:
    return _ms(before), _ms(after), f"{before / after:.2f}x"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"
