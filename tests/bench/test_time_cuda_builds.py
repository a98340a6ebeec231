"""What builds for a GPU take is told step by step."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from time_cuda_builds import main

from tvm_rammer.backend.cuda.cubin import find_tool


@pytest.mark.skipif(find_tool("nvcc") is None, reason="nvcc is not there")
def test_the_steps_of_a_build_are_timed(tmp_path):
    path = tmp_path / "builds.json"
    arguments = ["--models", "mixture_of_experts", "--quick", "--json", str(path)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    (found,) = json.loads(path.read_text())
    assert found["model"] == "mixture_of_experts"
    assert found["operators"] > 1
    assert found["source_kib"] > 1
    assert min(found[step] for step in ("generating", "nvcc")) > 0
    assert found["planning"] >= 0


def test_a_gpu_that_nobody_knows_is_an_error():
    result = CliRunner().invoke(main, ["--models", "mlp", "--quick", "--arch", "sm_12"])
    assert result.exit_code == 1
    assert "Error: the architecture 'sm_12' is not known: choose one of sm_70" in result.output
