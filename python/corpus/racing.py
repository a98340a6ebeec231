"""Times a compiled library against ONNX Runtime and OpenVINO, taking turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from bench.contenders import contender
from rich.progress import Progress

from corpus.checking import Case, Files, loaded
from tvm_rammer.frontend.onnx.fix_inputs import fix_inputs
from tvm_rammer.frontend.onnx.fold import fold
from tvm_rammer.frontend.onnx.onnx_file import OnnxModel
from tvm_rammer.testing.fair_timing import Settings, time_contenders
from tvm_rammer.testing.timing_results import Outcome, Ratio, paired_ratio

#: Whom people use now; the first decides where outputs differ.
PEERS = ("onnxruntime", "openvino")
OURS = "auto"


@dataclass(frozen=True)
class RaceTimes:
    """Who took how long.

    Attributes
    ----------
    ms : mapping of str to float
        Medians by contender.
    best : str
        The fastest peer; empty if none could be timed.
    ratio : Ratio or None
        Our time over the fastest peer's, paired by rounds.
    notes : mapping of str to str
        Why a contender has no time.
    disturbance : float
        CPUs that other processes kept busy, at most.
    """

    ms: Mapping[str, float] = field(default_factory=dict)
    best: str = ""
    ratio: Ratio | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    disturbance: float = 0.0


def race(
    case: Case,
    files: Files,
    library: Path,
    settings: Settings,
    progress: Progress | None = None,
    wait: Callable[[], float] | None = None,
) -> RaceTimes:
    """Time a library and the peers on the same inputs; see :func:`time_contenders`."""
    peers = []
    if files.onnx and files.onnx_inputs:
        model, inputs = files.onnx, files.onnx_inputs
        if files.shapes:
            model, inputs = library.with_name("fixed.onnx"), files.inputs
            write_fixed(files, model)
        peers = [contender(name, model, inputs, case.threads) for name in PEERS]
    ours = loaded(library, files.inputs, case.threads)
    return result(time_contenders([*peers, ours], settings, progress, wait))


def write_fixed(files: Files, path: Path) -> None:
    """Write the model with what a user knows about its inputs put in and folded.

    OpenVINO is slower where shapes are open, and ONNX Runtime ends with a segmentation fault on
    some models whose constants it folds itself.
    """
    proto = onnx.load(str(files.model))
    fix_inputs(OnnxModel(proto), files.shapes, files.constants, files.model.name)
    fold(proto, files.model.name)
    onnx.save(proto, str(path))


def result(outcomes: list[Outcome]) -> RaceTimes:
    """What outcomes say: medians, the fastest peer, and the ratio to it."""
    timed = {o.name: o for o in outcomes if o.status == "ok" and o.blocks_ns}
    ms = {name: outcome.quartiles_ms()[1] for name, outcome in timed.items()}
    best = min((name for name in PEERS if name in ms), key=lambda name: ms[name], default="")
    ratio = paired_ratio(timed[OURS], timed[best]) if best and OURS in timed else None
    notes = {o.name: f"{o.status}: {o.note}" for o in outcomes if o.name not in timed}
    disturbance = max((o.disturbance for o in timed.values()), default=0.0)
    return RaceTimes(ms, best, ratio, notes, disturbance)
