"""What was measured on a machine of many cores, which this project seldom has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.markdown import table

_CONTENDERS = {
    "sequential": "sequential, ms",
    "auto": "auto, ms",
    "per-op": "per-op, ms",
    "ort": "ONNX Runtime, ms",
}


@dataclass(frozen=True)
class ManyCores:
    """Medians of models, in milliseconds.

    Attributes
    ----------
    machine, date : str
    models : dict of str to dict of str to float
        By model and contender: ``sequential`` and ``auto`` in one launch, ``per-op`` the same
        kernels one by one, ``ort`` ONNX Runtime. Not all were measured for all.
    """

    machine: str
    date: str
    models: Mapping[str, Mapping[str, float]]

    @classmethod
    def load(cls, path: Path) -> ManyCores:
        """Read docs/results/cores.json."""
        return cls(**json.loads(path.read_text()))

    def parts(self) -> list[str]:
        """A section of a page."""
        rows = [
            [
                name,
                *(f"{times[each]:.3g}" if each in times else "" for each in _CONTENDERS),
                f"{times['sequential'] / times['auto']:.2f}x",
                f"{times['ort'] / times['auto']:.2f}x",
            ]
            for name, times in self.models.items()
        ]
        columns = ["model", *_CONTENDERS.values(), "sequential to auto", "ONNX Runtime to auto"]
        text = (
            f"On {self.machine}, {self.date}: each in a process of its own for 0.6 seconds, one "
            "after the other. Libraries were built there side by side, so `auto` measured its "
            "plans on a busy machine; `python python/bench_peers.py --contenders "
            "onnxruntime,auto,per-op,sequential` does better. `sequential` and `auto` are one "
            "launch, `per-op` is one for each operator."
        )
        return ["## Measured on 16 cores", text, table(columns, rows)]
