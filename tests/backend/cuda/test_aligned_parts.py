"""Kernels load and store vectors where a GPU can, and nowhere else: the emulation ends the run.

Operands of concatenations are written in place where all begin at multiples of a vector.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from cuda_models import TARGET, outputs, worst
from emulated_cuda import run_emulated
from tvm import relax

import tvm_rammer


def products(widths: list[int], dtype: str) -> tvm.IRModule:
    """Products of one matrix with several, side by side."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((32, 64), dtype))
    weights = [relax.Var(f"w{n}", relax.TensorType((64, n), dtype)) for n in widths]
    with builder.function("main", [x, *weights]):
        with builder.dataflow():
            parts = [relax.op.matmul(x, w) for w in weights]
            result = builder.emit_output(relax.op.concat(parts, axis=1))
        builder.emit_func_output(result)
    return builder.get()


def run(widths: list[int], dtype: str) -> tuple[float, bool]:
    """The error, and whether anything is written in place."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((32, 64)).astype(dtype)
    weights = {f"w{n}": rng.standard_normal((64, n)).astype(dtype) for n in widths}
    library = tvm_rammer.build(products(widths, dtype), TARGET, policy="wavefront", num_veus=4)
    expected = np.concatenate([x.astype("float64") @ w for w in weights.values()], axis=1)
    got = outputs(library, {"x": x, **weights})
    (program,) = library.programs.values()
    return worst(got, [expected]), any(b.space == "part" for b in program.buffers)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("widths", "in_place"), [([40, 64, 33], True), ([33, 64, 35], False)])
def test_vectors_are_stored_where_they_are_aligned(widths, in_place, dtype):
    error, parts = run_emulated(run, widths, dtype)
    assert error < (4e-3 if dtype == "float16" else 1e-5)
    assert parts == in_place
