"""The program that times all schedules of a model's operators on a GPU, but for what a GPU says."""

from __future__ import annotations

import re

import pytest
from bench.gpu_schedules import TimedSchedule, choices, compile_program, program_text, schedules_of
from click.testing import CliRunner
from time_gpu_schedules import main

from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cuda.cubin import find_tool
from tvm_rammer.testing.models.builder import GraphBuilder

TARGET = resolve_target({"kind": "cuda", "arch": "sm_90"})


def two_products():
    graph = GraphBuilder("two")
    x = graph.input("x", (24, 64))
    y = graph.op("Relu", graph.op("MatMul", x, graph.weight((64, 40), 0.1)))
    graph.output("y", graph.op("MatMul", y, graph.weight((40, 24), 0.1)))
    return graph.build()


def test_every_schedule_has_a_kernel_and_a_row():
    operators, bodies = schedules_of(two_products(), TARGET)
    assert [some[0].shapes[-1] for some in operators] == [(24, 40), (24, 24)]
    assert all(len({each.rule for each in some}) > 2 for some in operators)
    assert len(bodies) == sum(map(len, operators))
    text = program_text(operators, bodies, TARGET)
    kernels = set(re.findall(r"\n +run_(\w+)\(", text))
    rows = re.findall(r'\{"(\w+)", run_(\w+), (\d+), (\d+)\}', text)
    assert kernels == set(bodies) == {key for key, *_ in rows}
    assert all(key == name and int(tiles) > 0 < int(some) for key, name, tiles, some in rows)
    assert "rammer_dispatch" not in text and "{1536, 2560, 960}" in text


@pytest.mark.skipif(find_tool("nvcc") is None, reason="nvcc is not there")
def test_nvcc_compiles_it(tmp_path):
    operators, bodies = schedules_of(two_products(), TARGET)
    compile_program(program_text(operators, bodies, TARGET), "sm_90", tmp_path / "program")
    assert (tmp_path / "program").stat().st_mode & 0o100
    assert [path.name for path in tmp_path.iterdir()] == ["program"]


def test_what_the_model_takes_for_the_fastest_is_compared_with_the_fastest():
    some = [
        TimedSchedule(key, "rule", ((1,),), ((1, 1, 1),), (0,), 1, 1.0, alone)
        for key, alone in (("a", 1.0), ("b", 2.0))
    ]
    times = {"a": {"alone": 3e-6}, "b": {"alone": 2e-6}}
    assert list(choices(times, [some])) == [1.5]


def test_an_unknown_model_is_refused(tmp_path):
    done = CliRunner().invoke(
        main, ["inception_v9", "--arch", "sm_90", "--program", str(tmp_path / "program")]
    )
    assert done.exit_code == 1
    assert "there is no model 'inception_v9'; did you mean 'inception_v3'?" in done.output
