"""The rewritten operators give what ONNX's own node tests say."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from node_tests import (
    bound,
    check,
    converted_node_tests,
    node_tests,
    run_with_tvm,
    some_of_each,
)
from onnx.reference import ReferenceEvaluator

from tvm_rammer.frontend.onnx.operators import rewrite_operators


@pytest.mark.parametrize("name", node_tests())
def test_a_rewritten_node_test_gives_the_same_in_onnx_reference(name: str) -> None:
    case = node_tests()[name]
    model, inputs, expected = bound(case)
    rewrite_operators(model, "the model")
    names = (value.name for value in model.graph.input)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    check([np.asarray(each) for each in found], expected, case)


@pytest.mark.parametrize("name", some_of_each())
def test_some_node_tests_of_each_operator_pass_when_compiled(name: str) -> None:
    case = node_tests()[name]
    model, inputs, expected = bound(case)
    check(run_with_tvm(model, inputs), expected, case)


@pytest.mark.parametrize("name", converted_node_tests())
def test_node_tests_of_operators_that_tvm_has_no_converter_for(name: str) -> None:
    case = converted_node_tests()[name]
    model, inputs, expected = bound(case)
    check(run_with_tvm(model, inputs), expected, case)


@pytest.mark.parametrize("name", [name for name in node_tests() if "ext_cache_rank" in name])
def test_masks_of_attentions_may_be_shorter_than_rows(name: str) -> None:
    """They are padded by a constant of the type that the scores have."""
    case = node_tests()[name]
    model, inputs, expected = bound(case)
    check(run_with_tvm(model, inputs), expected, case)


@pytest.mark.slow
@pytest.mark.parametrize("name", node_tests())
def test_all_node_tests_of_these_operators_pass_when_compiled(name: str) -> None:
    case = node_tests()[name]
    model, inputs, expected = bound(case)
    check(run_with_tvm(model, inputs), expected, case)
