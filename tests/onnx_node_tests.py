"""ONNX's own node tests, many of them in one model, and which of them stock TVM passes.

``python tests/onnx_node_tests.py`` finds out anew what stock TVM passes, and writes it down.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import compose
from onnx.backend.test.loader import load_model_tests
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

#: Names of the node tests that stock TVM imports and computes right, one a line.
STOCK_PASSES = Path(__file__).with_name("onnx_node_tests_of_stock.txt")

#: What computes the outputs of a model from its inputs, in order.
Run = Callable[[onnx.ModelProto, Sequence[np.ndarray]], list[np.ndarray]]


@cache
def node_tests() -> dict[str, Any]:
    """ONNX's node tests whose inputs and outputs are tensors of numbers, by name."""
    with warnings.catch_warnings():
        # ONNX computes what it expects with infinities and NaN among it.
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return {case.name: case for case in cases if case.data_sets and _is_numeric(case)}


def stock_passes() -> list[Any]:
    """The node tests that stock TVM passes."""
    known = node_tests()
    return [known[name] for name in STOCK_PASSES.read_text().split() if name in known]


def together(cases: Sequence[Any]) -> onnx.ModelProto:
    """One model that consists of those of all cases, whose opsets are the same."""
    parts = [compose.add_prefix(case.model, f"case{number}_") for number, case in enumerate(cases)]
    merged = onnx.ModelProto()
    merged.CopyFrom(parts[0])
    for part in parts[1:]:
        merged.graph.MergeFrom(part.graph)
        merged.ir_version = max(merged.ir_version, part.ir_version)
    return merged


def failures(cases: Sequence[Any], run: Run) -> dict[str, str]:
    """Why cases fail, by their names; all of one opset are run as one model if that works."""
    by_opset: dict[Any, list[Any]] = {}
    for case in cases:
        opsets = sorted((each.domain, each.version) for each in case.model.opset_import)
        by_opset.setdefault(tuple(opsets), []).append(case)
    found: dict[str, str] = {}
    for group in by_opset.values():
        found |= _failures(group, run)
    return found


def _failures(cases: Sequence[Any], run: Run) -> dict[str, str]:
    wanted = [_arrays(case, 1) for case in cases]
    try:
        results = run(together(cases), [x for case in cases for x in _arrays(case, 0)])
        if len(results) != sum(map(len, wanted)):
            raise AssertionError(f"{len(results)} results")
    except Exception as error:
        if len(cases) > 1:
            half = len(cases) // 2
            return _failures(cases[:half], run) | _failures(cases[half:], run)
        return {cases[0].name: f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"}
    left = iter(results)
    found = {
        case.name: _difference(case, list(islice(left, len(arrays))), arrays)
        for case, arrays in zip(cases, wanted, strict=True)
    }
    return {name: text for name, text in found.items() if text}


def _difference(case: Any, results: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> str:
    """How results differ from what a case expects."""
    for result, want in zip(results, wanted, strict=True):
        if (result.shape, result.dtype) != (want.shape, want.dtype):
            return f"{result.dtype}{result.shape} instead of {want.dtype}{want.shape}"
        try:
            np.testing.assert_allclose(result, want, case.rtol, case.atol)
        except AssertionError as error:
            return str(error)
    return ""


def _arrays(case: Any, part: int) -> list[np.ndarray]:
    return [np.asarray(value) for value in case.data_sets[0][part]]


def _is_numeric(case: Any) -> bool:
    values = [value for part in case.data_sets[0] for value in part]
    return all(
        isinstance(value, np.ndarray | np.generic) and np.asarray(value).dtype.kind not in "OUS"
        for value in values
    )


def run_relax(pipeline: Any) -> Run:
    """Stock TVM from end to end, but for its pipeline."""

    def run(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            module = from_onnx(model)
            executable = relax.build(module, tvm.target.Target("llvm"), relax_pipeline=pipeline)
        machine = relax.VirtualMachine(executable, tvm.cpu())
        results = machine["main"](*map(tvm.runtime.tensor, inputs))
        return [results.numpy()] if hasattr(results, "numpy") else [x.numpy() for x in results]

    return run


if __name__ == "__main__":
    failing = {name: failures([case], run_relax("default")) for name, case in node_tests().items()}
    passing = [name for name, reasons in failing.items() if not reasons]
    STOCK_PASSES.write_text("\n".join(passing) + "\n")
    print(f"{len(passing)} of {len(failing)} pass")
