"""Who can be timed on a model: this project's plans, and the peers at their best.

Each function runs in a process of its own, reads the model and the inputs from files, and returns
two callables: one that runs once, and one that gives the outputs of the last run. Those of this
project return a third one that tells about the plan. The peers' functions are in folders
``outside``, here and in ``tvm_rammer.testing``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.outside.openvino_contender import openvino
from bench.outside.pytorch_contender import pytorch
from tvm_rammer.errors import InputError
from tvm_rammer.schedule import POLICIES
from tvm_rammer.testing.contenders import (
    Prepared,
    of_module,
    outside_contender,
    stock_tvm,
    tvm_contender,
)
from tvm_rammer.testing.fair_timing import TimedContender
from tvm_rammer.testing.outside.onnxruntime_contender import onnxruntime

if TYPE_CHECKING:
    from tvm_rammer.options import Form
    from tvm_rammer.runtime.report import Report

Planned = tuple[Callable[[], object], Callable[[], list[np.ndarray]], Callable[[], dict[str, Any]]]


@dataclass(frozen=True)
class Candidate:
    """A contender before it knows its model.

    Attributes
    ----------
    function : callable
    description : str
    peer : bool
        Others' work, not this project's.
    outside : bool
        Its function is in a folder ``outside``.
    options : mapping of str to anything
        More arguments of the function.
    """

    function: Callable[..., Prepared | Planned]
    description: str
    peer: bool = True
    outside: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


def get_candidate(name: str) -> Candidate:
    """The candidate of that name; an unknown name raises InputError with the nearest one."""
    if name in CANDIDATES:
        return CANDIDATES[name]
    nearest = get_close_matches(name, CANDIDATES, n=1, cutoff=0.0)[0]
    raise InputError(f"there is no contender {name!r}; did you mean {nearest!r}?")


def contender(
    name: str,
    model: Path,
    inputs: Path,
    threads: int,
    *,
    cache: Path | None = None,
    python: str = sys.executable,
    **ours: Any,
) -> TimedContender:
    """A contender on a model.

    Parameters
    ----------
    name : str
        In :data:`CANDIDATES`.
    model, inputs : path
        An ONNX file, and an ``.npz`` file of its inputs.
    threads : int
        For those that have no number of their own.
    cache : path, optional
        The folder of measurements that this project's contenders use; the user's if not given.
    python : str
        The interpreter that has PyTorch.
    **ours
        Options of :func:`tvm_rammer.build` for those that are this project's.
    """
    candidate = get_candidate(name)
    function = candidate.function
    arguments = {"model": str(model), "inputs": str(inputs), "threads": threads}
    arguments |= candidate.options if candidate.peer else {**candidate.options, **ours}
    if candidate.outside:
        interpreter = python if function is pytorch else sys.executable
        return outside_contender(name, function, arguments, interpreter)
    return tvm_contender(name, function, arguments, threads, cache)


def rammer(
    model: str, inputs: str, threads: int, policy: str, form: Form = "program", **options: Any
) -> Planned:
    """This project's library under a policy; ``form="per-op"`` launches operator by operator."""
    from tvm_rammer import build
    from tvm_rammer.runtime.report import make_report

    library = build(model, policy=policy, form=form, num_veus=threads, **options)
    module = library.create()
    run, outputs = of_module(module, inputs)
    return (
        run,
        outputs,
        lambda: plan_facts(make_report(library.description), module.num_workers),
    )


def plan_facts(report: Report, workers: int) -> dict[str, Any]:
    """What decides how fast a library is, as plain data."""
    regions = [
        {
            "policy": region.policy,
            "operators": region.operators,
            "tasks": region.tasks,
            "waits": region.waits,
            "explanation": asdict(region.explanation),
            "decision": asdict(region.decision) if region.decision else None,
        }
        for region in report.regions
    ]
    return {"workers": workers, "left_out": len(report.left_out), "regions": regions}


def available_threads() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


_rammer = partial(Candidate, rammer, peer=False)
_outside = partial(Candidate, outside=True)

#: Every contender by its name; the most trusted first, the slow stock TVM last.
CANDIDATES: dict[str, Candidate] = {
    "onnxruntime": _outside(onnxruntime, "ONNX Runtime, all threads"),
    "onnxruntime-1": _outside(onnxruntime, "ONNX Runtime, 1 thread", options={"threads": 1}),
    "onnxruntime-parallel": _outside(
        onnxruntime, "ONNX Runtime, parallel executor", options={"parallel": True}
    ),
    "openvino": _outside(openvino, "OpenVINO, latency hint, float32, all threads"),
    "pytorch": _outside(pytorch, "PyTorch through onnx2torch, eager"),
    "pytorch-compiled": _outside(
        pytorch,
        "PyTorch through onnx2torch, torch.compile with its own cache",
        options={"compiled": True},
    ),
    "auto": _rammer("tvm-rammer's default", options={"policy": "auto"}),
    "per-op": _rammer("operator by operator", options={"policy": "sequential", "form": "per-op"}),
    **{
        policy: _rammer(f"one program, policy {policy}", options={"policy": policy})
        for policy in POLICIES
    },
    "tvm": Candidate(stock_tvm, "stock TVM, default pipeline"),
}

#: Those that say most in the least time.
CORE = ("onnxruntime", "openvino", "auto", "per-op", "sequential")
