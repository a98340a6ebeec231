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
_NETWORKS = """## Networks of PyTorch

Medians in milliseconds on an {gpu}, {date}; float32 without TF32. `python
python/bench_pytorch_cuda.py` measures these: networks as PyTorch has them, through `torch.export`.
`torch.compile` is its mode `reduce-overhead`, with CUDA graphs."""
_KERNELS = """## Other kernels

Medians in milliseconds on an {gpu}, {date}, of CUDA graphs of one cooperative launch, by commits
{before} and {after}: products in slices of K in place of dlight's tiles
(`backend/cuda/sliced_matmul.py`), and a thread for some results of a pool or of a convolution by
channel (`backend/cuda/short_sums.py`). "One by one" are today's kernels, each operator's fastest,
in a launch each, as a graph too. `python python/pack_cuda.py MODEL --arch sm_90 -o packed` packs a
model by the commit that is checked out."""
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
class KernelChange:
    """Models before and after other kernels, on one GPU.

    Attributes
    ----------
    gpu, date, before, after : str
        The last two are commits.
    models : dict of str to dict of str to float
        Milliseconds ``before``, ``after`` and ``one-by-one``, by model.
    notes : tuple of str
    """

    gpu: str
    date: str
    before: str
    after: str
    models: Mapping[str, Mapping[str, float]]
    notes: tuple[str, ...] = ()

    def parts(self) -> list[str]:
        """A section of the page."""
        gains = [times["before"] / times["after"] for times in self.models.values()]
        together = [times[BASELINE] / times["after"] for times in self.models.values()]
        rows = [
            [
                name,
                *(_ms(times[each]) for each in ("before", "after", BASELINE)),
                *map(_times, ours),
            ]
            for (name, times), *ours in zip(self.models.items(), gains, together, strict=True)
        ]
        means = [_times(geometric_mean(each)) for each in (gains, together)]
        columns = ["model", "before", "after", "one by one", "before/after", "one by one/after"]
        title = _KERNELS.format(gpu=self.gpu, date=self.date, before=self.before, after=self.after)
        notes = "\n".join(f"- {note}" for note in self.notes)
        return [title, table(columns, [*rows, ["geometric mean", "", "", "", *means]]), notes]


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
    pytorch_networks : NetworkTimes or None
    kernels : KernelChange or None
    """

    gpu: str
    date: str
    models: Mapping[str, GpuModel]
    speeds: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    pytorch_networks: NetworkTimes | None = None
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
        *(results.pytorch_networks.parts() if results.pytorch_networks else ()),
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
    ours = min(times["rammer"], times["rammer-graph"])
    return f"{min(times[each] for each in times if 'rammer' not in each) / ours:.2f}x"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"
