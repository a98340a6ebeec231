"""The cases are right by their references, and the script says so."""

from __future__ import annotations

import json

import bench_kernels
import numpy as np
import pytest
from bench import numpy_operators as ref
from bench.kernel_bench import measure_case
from bench.kernel_cases import KernelCase, kernel_cases
from click.testing import CliRunner

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.machine.ceilings import Ceilings

TARGET = resolve_target()
HOST = vdevice_for(TARGET)
CORE = Ceilings(1e11, 2e11, 1e11, 1e11, 3e10)
CASES = kernel_cases()
TABLES = list(dict.fromkeys(case.table for case in CASES))

pytestmark = pytest.mark.usefixtures("empty_cache")


def measured(case: KernelCase):
    return measure_case(case, TARGET, HOST, CORE, 5e-5, total_seconds=0.0)


@pytest.mark.parametrize("table", TABLES)
def test_the_first_case_of_every_table_is_computed_right(table):
    result = measured(next(case for case in CASES if case.table == table))
    assert result.error < 5e-5
    assert result.seconds > 0 and result.rate > 0 and result.ceiling_share > 0
    assert len(result.kernels) == len(result.tilings) == len(result.num_tiles) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.table}: {case.name}")
def test_every_case_is_computed_right(case):
    assert measured(case).error < 5e-5


def test_columns_that_fill_no_vector_are_packed_and_right():
    """The packed constant may be larger than the model's."""
    (case,) = (case for case in CASES if case.name == "2048 -> 1000")
    assert measured(case).error < 1e-5


def test_names_are_unique_within_a_table():
    names = [(case.table, case.name) for case in CASES]
    assert len(set(names)) == len(names)


def test_the_reference_convolution_is_the_definition():
    x = np.arange(50, dtype=np.float32).reshape(1, 5, 5, 2)
    weight = np.arange(36, dtype=np.float32).reshape(4, 3, 3, 1)
    got = ref.convolution(x, weight, stride=2, padding=1, groups=2)
    padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    for y, x_, o in np.ndindex(3, 3, 4):
        window = padded[0, 2 * y : 2 * y + 3, 2 * x_ : 2 * x_ + 3, o // 2]
        assert got[0, y, x_, o] == (window * weight[o, :, :, 0]).sum()


# The script


def test_the_script_prints_and_writes_what_was_asked_for(tmp_path):
    path = tmp_path / "out.json"
    arguments = ["--quick", "--filter", "softmax", "--json", str(path)]
    result = CliRunner().invoke(bench_kernels.main, arguments)
    assert result.exit_code == 0, result.output
    assert "softmax" in result.stdout and "1536x128" in result.stdout
    document = json.loads(path.read_text())
    assert [row["name"] for row in document["results"]] == ["1536x128", "128x768"]
    assert document["ceilings"]["flops"] > 1e8
    assert all(row["schedule_seconds"] > 0 < row["compile_seconds"] for row in document["results"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--filter", "nothing"], "no table or row has 'nothing' in it"),
        (
            ["--target", '{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}'],
            "generic CPU is another machine: nothing can be timed",
        ),
    ],
)
def test_what_the_script_refuses(arguments, message):
    result = CliRunner().invoke(bench_kernels.main, arguments)
    assert result.exit_code != 0
    assert message in result.output
