"""Single operators on one core: their file, and their page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.kernel_bench import CaseResult
from bench.kernel_page import KernelResults, kernels_page, load_kernels

from tvm_rammer.errors import InputError
from tvm_rammer.machine.ceilings import Ceilings

MACHINE: dict[str, Any] = {
    "cpu": "Some CPU",
    "cpus": 2,
    "system": "Linux 6",
    "date": "2026-11-22T09:00:00+00:00",
    "python": "3.11.7",
    "versions": {"apache-tvm": "0.27.0"},
    "commands": {"python python/bench_kernels.py": "2026-11-22T09:00:00+00:00"},
}


def case(title: str, name: str, unit: str, share: float, *rules: str) -> CaseResult:
    tilings = tuple(f"tiles of {rule}" for rule in rules)
    tiles = (4,) * len(rules)
    return CaseResult(
        title, name, unit, rules, tilings, tiles, 2e-3, 0.1, 98.76, share, 1e-7, 0.1, 0.2
    )


FOUND = KernelResults(
    "llvm -mcpu=some",
    "some core",
    Ceilings(118e9, 400e9, 110e9, 90e9, 27e9),
    MACHINE,
    (
        case("1 x 1", "64 -> 64", "GFLOP/s", 0.96, "convolution"),
        case("1 x 1", "64 -> 65", "GFLOP/s", 0.9, "convolution", "convolution"),
        case("norms", "layer norm", "GB/s", 0.5, "reduction", "elementwise"),
    ),
)


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    FOUND.save(tmp_path / "kernels.json")
    assert load_kernels(tmp_path / "kernels.json") == FOUND


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernels.json"
    path.write_text('{"format": 1}')
    with pytest.raises(InputError) as caught:
        load_kernels(path)
    assert str(caught.value) == f"{path} is not a result of bench_kernels.py; give another file"


def test_the_page_has_a_part_for_each_target_and_a_table_for_each_kind() -> None:
    page = kernels_page([FOUND, FOUND])
    assert page.count("## some core\n") == 2
    assert "118 GFLOP/s in multiply-adds; reads GB/s from L1 400, L2 110, L3 90, memory 27." in page
    assert "Median share of the multiply-adds: 93%. Some CPU, 2 CPUs" in page
    assert "python python/bench_kernels.py  # 2026-11-22" in page
    assert (
        "### 1 x 1\n\n"
        "| operator | kernels | time | rate | share | error |\n"
        "| --- | --- | --: | --: | --: | --: |\n"
        "| 64 -> 64 | convolution tiles of convolution | 2 ms | 98.8 GFLOP/s | 96% | 1e-07 |\n"
    ) in page
    assert "reduction tiles of reduction; elementwise tiles of elementwise" in page
    assert "98.8 GB/s | 50% |" in page


def test_kernels_alike_are_named_once() -> None:
    assert "| 64 -> 65 | convolution tiles of convolution | " in kernels_page([FOUND])
