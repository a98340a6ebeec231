"""The demo's measurement: one model under stock TVM and under the plans, against each other.

This is the one place outside of it that uses ``tvm_rammer.testing``: the demo needs no file because
the models are built there, and its figures are fair because the clock there is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx
    from rich.progress import Progress

    from tvm_rammer.runtime.description import LibraryDescription
    from tvm_rammer.testing.fair_timing import Settings, TimedContender
    from tvm_rammer.testing.timing_results import Outcome, Ratio

SEQUENTIAL, CO_SCHEDULED = "sequential", "co-scheduled"

#: Name, policy and form of this project's contenders.
_PLANS = (
    ("per-op", "sequential", "per-op"),
    (SEQUENTIAL, "sequential", "program"),
    (CO_SCHEDULED, "wavefront", "program"),
)

#: The error that is allowed against the reference.
_TOLERANCE = 1e-4

#: Upper over lower end of a ratio's 95 % interval, from which on the machine was not quiet.
_UNSTEADY = 1.5


@dataclass(frozen=True)
class DemoModel:
    """A model that the demo builds, and how it is timed."""

    name: str
    description: str
    build: Callable[[], onnx.ModelProto]
    settings: Settings


@dataclass(frozen=True)
class Race:
    """How the contenders did on a model.

    Attributes
    ----------
    model : DemoModel
    outcomes : tuple of Outcome
        The first is the reference: no kernel of this project is in it.
    plans : mapping of str to LibraryDescription
        What was compiled, by contender.
    """

    model: DemoModel
    outcomes: tuple[Outcome, ...]
    plans: Mapping[str, LibraryDescription]

    @property
    def reference(self) -> str:
        return self.outcomes[0].name

    @property
    def agreed(self) -> bool:
        """Whether every contender ran and computed what the reference did."""
        return all(outcome.status == "ok" for outcome in self.outcomes)

    @property
    def steady(self) -> bool:
        """Whether the ratios of this project's plans say something."""
        ratios = [self.ratio(outcome) for outcome in self.outcomes if outcome.name in self.plans]
        return all(ratio.high < _UNSTEADY * ratio.low for ratio in ratios if ratio)

    def ratio(self, outcome: Outcome) -> Ratio | None:
        """Time over that of the sequential plan; None where one of both has none."""
        from tvm_rammer.testing.timing_results import paired_ratio

        baseline = next(other for other in self.outcomes if other.name == SEQUENTIAL)
        timed = outcome.blocks_ns and baseline.blocks_ns
        return paired_ratio(outcome, baseline) if timed else None


def demo_models() -> tuple[DemoModel, ...]:
    """An LSTM of many small operators, and a convolutional network of branches."""
    from tvm_rammer.testing.fair_timing import Settings
    from tvm_rammer.testing.models import light, lstm

    return (
        DemoModel(
            "LSTM",
            "8 layers x 8 steps x 256, every cell eight products",
            lambda: lstm(8, 8, 256),
            Settings(blocks=7, runs=20, warm_up_s=0.3, max_block_s=0.4, tolerance=_TOLERANCE),
        ),
        DemoModel(
            "GoogLeNet",
            "inception_v1 of the onnx package",
            lambda: light("inception_v1"),
            # Stock TVM takes more than a second: one block of three runs is what it gets.
            Settings(
                blocks=5,
                runs=8,
                warm_up_s=0.3,
                max_block_s=4.5,
                budget_s=4.0,
                tolerance=_TOLERANCE,
            ),
        ),
    )


def race(model: DemoModel, folder: Path, display: Progress) -> Race:
    """Compile a model in every way, compare the answers, and let the contenders take turns.

    Parameters
    ----------
    model : DemoModel
    folder : Path
        For files that nobody needs afterwards.
    display : Progress
        Where to show how far it is.
    """
    import numpy as np
    import onnx

    from tvm_rammer.runtime.description import LibraryDescription
    from tvm_rammer.testing.fair_timing import time_contenders
    from tvm_rammer.testing.models import before_softmax
    from tvm_rammer.testing.reference import random_inputs

    # A saturated softmax hides errors: what it reads is compared as well.
    proto = before_softmax(model.build())
    files = {"model": str(folder / "model.onnx"), "inputs": str(folder / "inputs.npz")}
    onnx.save(proto, files["model"])
    inputs: dict[str, Any] = dict(random_inputs(proto))
    np.savez(files["inputs"], **inputs)
    outcomes = time_contenders(_contenders(files, folder), model.settings, display)
    plans = {}
    for name, _, _ in _PLANS:
        written = folder / f"{name}.json"
        if written.exists():
            plans[name] = LibraryDescription(json.loads(written.read_text()))
    return Race(model, tuple(outcomes), plans)


def _contenders(files: Mapping[str, str], folder: Path) -> list[TimedContender]:
    """The reference first: ONNX Runtime where it is installed, else stock TVM."""
    from tvm_rammer.backend import vdevice_for
    from tvm_rammer.testing.contenders import outside_contender, stock_tvm, tvm_contender
    from tvm_rammer.testing.fair_timing import TimedContender
    from tvm_rammer.testing.outside.onnxruntime_contender import onnxruntime

    threads = vdevice_for().cores
    common = {**files, "threads": threads}
    environment = {"TVM_NUM_THREADS": str(threads)}
    peers = [tvm_contender("stock TVM", stock_tvm, common, threads)]
    if find_spec("onnxruntime"):
        peers.insert(0, outside_contender("ONNX Runtime", onnxruntime, common))
    return [
        *peers,
        *(
            TimedContender(
                name,
                "tvm_rammer.commands.demo_contender:planned",
                {
                    **common,
                    "policy": policy,
                    "form": form,
                    "description": str(folder / f"{name}.json"),
                },
                environment,
            )
            for name, policy, form in _PLANS
        ),
    ]
