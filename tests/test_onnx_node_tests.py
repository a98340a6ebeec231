"""What stock TVM computes right of ONNX's own node tests, this package computes right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_node_tests import Run, failures, node_tests, run_relax, stock_passes

import tvm_rammer
from tvm_rammer.errors import ModelError

#: Parts that are tested apart, so that several processes share the work.
_PARTS = 12
_OPTIONS = {"policy": "sequential", "num_veus": 2}


def run_build(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """:func:`tvm_rammer.build` from end to end."""
    module = tvm_rammer.build(model, "llvm", **_OPTIONS).create()
    for value, array in zip(model.graph.input, inputs, strict=True):
        module.set_input(value.name, array)
    module.run()
    return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


#: What stock TVM takes for inference, though its inputs may ask for training, is refused here.
TRAINING = "test_training_dropout_zero_ratio"


def is_taken(case: Any) -> bool:
    """Whether the front end takes a model: all inputs are tensors, not optional ones."""
    tensors = (value.type.HasField("tensor_type") for value in case.model.graph.input)
    return all(tensors) and case.name != TRAINING


#: What stock TVM computes wrong without a word.
WRONG_IN_STOCK = ("test_spacetodepth_crd_mode_example",)


@pytest.mark.parametrize("name", WRONG_IN_STOCK)
def test_what_stock_computes_wrong(name):
    case = node_tests()[name]
    assert not failures([case], run_build)


RUNS: dict[str, Run] = {
    "pipeline": run_relax(tvm_rammer.pipeline(**_OPTIONS)),
    "build": run_build,
}


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("way", RUNS)
def test_node_tests_of_onnx(way, part):
    """Shapes that are data at run time, too."""
    cases = stock_passes()[part::_PARTS]
    if way == "build":
        cases = list(filter(is_taken, cases))
    assert len(cases) > 40
    assert failures(cases, RUNS[way]) == {}


def test_training_that_is_decided_at_run_time_is_refused():
    with pytest.raises(ModelError, match="it is in training mode; export the model for inference"):
        tvm_rammer.build(node_tests()[TRAINING].model)
