"""The table of single operators: every row is a model, and its times are made by one command."""

from __future__ import annotations

import bench_operators
import onnx
import pytest
from bench.operator_models import operator_models
from click.testing import CliRunner


def test_every_row_is_a_model_of_its_own():
    models = list(operator_models())
    assert len({(model.table, model.name) for model in models}) == len(models)
    for model in models:
        onnx.checker.check_model(model.make(), full_check=True)


def test_ratios_are_to_the_first_contender():
    pytest.importorskip("onnxruntime")
    options = ["--filter", "5 queries of 32", "--seconds", "0.1"]
    options += ["--contenders", "onnxruntime,onnxruntime-1"]
    result = CliRunner().invoke(bench_operators.main, options)
    assert result.exit_code == 0, result.output
    assert "onnxruntime-1 ratio" in result.output
    (row,) = [line for line in result.output.splitlines() if "5 queries of 32" in line]
    assert row.count("x ") == 2  # 32 x 100, and one ratio


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--filter", "nothing such"], "no table or row has 'nothing such' in it"),
        (["--contenders", "onnxrun"], "there is no contender 'onnxrun'; did you mean"),
    ],
)
def test_what_is_not_there(options, message):
    result = CliRunner().invoke(bench_operators.main, options)
    assert result.exit_code == 2
    assert message in result.output
