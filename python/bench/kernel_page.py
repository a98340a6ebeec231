"""The page of single operators on one core, written from what bench_kernels.py measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from bench import machine
from bench.kernel_bench import CaseResult
from bench.markdown import table, whole_page
from bench.result_file import load
from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.typed_json import read_as
from tvm_rammer.units import duration
from tvm_rammer.whole_files import write_whole

#: Raised when the contents of the file change.
_FORMAT = 1
_COLUMNS = ("operator", "kernels", "time", "rate", "share", "error")


@dataclass(frozen=True)
class KernelResults:
    """Every case of a run.

    Attributes
    ----------
    target, vdevice : str
        What was compiled for.
    ceilings : Ceilings
        What the core reaches at best.
    machine : mapping
        As :func:`~bench.machine.machine` tells.
    results : tuple of CaseResult
    """

    target: str
    vdevice: str
    ceilings: Ceilings
    machine: Mapping[str, Any]
    results: tuple[CaseResult, ...]

    def save(self, path: Path) -> None:
        """Write a file."""
        write_whole(path, json.dumps({"format": _FORMAT, **asdict(self)}, indent=1).encode())


def load_kernels(path: Path) -> KernelResults:
    """Read a file.

    Raises
    ------
    InputError
        It is missing or of another kind.
    """
    return load(path, _FORMAT, "bench_kernels.py", _parsed)


def kernels_page(found: Sequence[KernelResults]) -> str:
    """Tables of all cases, a part for each target."""
    parts = [
        "# Single operators on one core",
        "The share is that of the core's multiply-adds where the rate is in GFLOP/s, else that of "
        "the roofline. Useful operations are those of a direct convolution with all its padding: "
        "one that skips the padding, or Winograd's algorithm, may be above 100 %. The error is the "
        "largest, relative to the largest result.",
    ]
    for one in found:
        parts += [f"## {one.vdevice}", _setting(one), *machine.typed(one.machine)]
        for title, cases in groupby(one.results, lambda case: case.table):
            parts += [f"### {title}", table(_COLUMNS, [_row(case) for case in cases], left=2)]
    return whole_page(parts)


def read_speeds(reached: Ceilings) -> str:
    """What a core reads from every memory, in words."""
    return (
        f"reads GB/s from L1 {reached.l1 / 1e9:.0f}, L2 {reached.l2 / 1e9:.0f}, "
        f"L3 {reached.l3 / 1e9:.0f}, memory {reached.dram / 1e9:.0f}"
    )


def _setting(one: KernelResults) -> str:
    shares = [case.ceiling_share for case in one.results if case.unit == "GFLOP/s"]
    middle = f" Median share of the multiply-adds: {median(shares):.0%}." if shares else ""
    return (
        f"{one.ceilings.flops / 1e9:.0f} GFLOP/s in multiply-adds; {read_speeds(one.ceilings)}."
        f"{middle} {machine.sentence(one.machine)}"
    )


def _row(case: CaseResult) -> list[str]:
    kernels = dict.fromkeys(map(" ".join, zip(case.kernels, case.tilings, strict=True)))
    return [
        case.name,
        "; ".join(kernels),
        duration(case.seconds),
        f"{case.rate:.3g} {case.unit}",
        f"{case.ceiling_share:.0%}",
        f"{case.error:.0e}",
    ]


def _parsed(data: Mapping[str, Any]) -> KernelResults:
    found: KernelResults = read_as(
        KernelResults, {name: value for name, value in data.items() if name != "format"}
    )
    return found
