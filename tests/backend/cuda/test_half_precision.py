"""Models of float16 on GPUs compute what numpy does, in every form; sums are as models say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cuda_models import TARGET, outputs
from emulated_cuda import ORDERS, edited, looking_for_races, run_emulated
from tvm import relax, te, tirx
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_rammer
from tvm_rammer.backend.cuda.cubin import compile_cubin, find_tool
from tvm_rammer.backend.cuda.wide_functions import with_wide_functions
from tvm_rammer.testing.reference import relative_error

#: Of results that are rounded to float16, some of them after others.
TOLERANCE = 4e-3


@I.ir_module
class Operators:
    @R.function
    def main(
        x: R.Tensor((32, 66), "float16"),
        w: R.Tensor((66, 48), "float16"),
        v: R.Tensor((1, 66), "float16"),
        image: R.Tensor((1, 8, 9, 9), "float16"),
        filters: R.Tensor((6, 8, 3, 3), "float16"),
        scale: R.Tensor((66,), "float16"),
    ):
        with R.dataflow():
            product = R.matmul(x, w)
            wide_product = R.matmul(x, w, out_dtype="float32")
            vector_product = R.nn.relu(R.matmul(v, w, out_dtype="float32"))
            softmax = R.nn.softmax(x)
            normalized = R.nn.layer_norm(x, scale, scale, axes=[-1])
            convolution = R.nn.relu(R.nn.conv2d(image, filters, padding=1))
            total = R.sum(R.astype(x, "float32"), axis=1)
            activated = R.multiply(R.sigmoid(x), R.add(x, R.const(1.5, "float16")))
            largest = R.max(x, axis=0)
            R.output(
                *(product, wide_product, vector_product, softmax, normalized),
                *(convolution, total, activated, largest),
            )
        return (
            *(product, wide_product, vector_product, softmax, normalized),
            *(convolution, total, activated, largest),
        )


def given() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"x": (32, 66), "w": (66, 48), "v": (1, 66), "image": (1, 8, 9, 9)}
    shapes |= {"filters": (6, 8, 3, 3), "scale": (66,)}
    return {name: rng.standard_normal(s).astype("float16") for name, s in shapes.items()}


def expected() -> list[np.ndarray]:
    x, w, v, image, filters, scale = (a.astype("float64") for a in given().values())
    product = x @ w
    powers = np.exp(x)
    normalized = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return [
        *(product, product, np.maximum(v @ w, 0), powers / powers.sum(1, keepdims=True)),
        *(
            normalized * scale + scale,
            np.maximum(np.einsum("nchwij,ocij->nohw", windows, filters), 0),
        ),
        *(x.sum(1), (x + 1.5) / (1 + np.exp(-x)), x.max(0)),
    ]


def run(form: str) -> tuple[list[float], list[str], list[str], str]:
    """The worst errors in any order of lanes, types, reasons for what is left out; the source."""
    sources: list[str] = []
    with looking_for_races(), edited(lambda source: sources.append(source) or source):
        library = tvm_rammer.build(Operators, TARGET, form=form, policy="wavefront", num_veus=4)
    wanted = expected()
    errors = np.zeros(len(wanted))
    for order in ORDERS:
        got = outputs(library, given(), order)
        errors = np.maximum(
            errors, [relative_error(*each) for each in zip(got, wanted, strict=True)]
        )
    reasons = [item.reason for item in library.report.left_out]
    return [*errors], [str(a.dtype) for a in got], reasons, max(sources, key=len)


@pytest.mark.parametrize("form", ["program", "wavefront", "per-op"])
def test_operators_compute_what_numpy_does(form):
    errors, dtypes, reasons, source = run_emulated(run, form)
    half, wide = "float16", "float32"
    assert dtypes == [half, wide, wide, half, half, half, wide, half, half]
    # What numpy computes in float64 is rounded at least once.
    limits = [2e-5 if dtype == wide else TOLERANCE for dtype in dtypes]
    assert all(error < limit for error, limit in zip(errors, limits, strict=True)), errors
    assert reasons == [] or form == "per-op"
    if find_tool("nvcc"):
        assert not compile_cubin(source, "sm_90").spilling


#: Functions that CUDA's header has for float16, those that TVM writes itself, and the rest.
FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "floor", "ceil", "round", "abs", "trunc")
FUNCTIONS += ("tan", "tanh", "atan", "erf", "sigmoid")
FUNCTIONS += ("acos", "asin", "sinh", "cosh", "asinh", "acosh", "atanh")
KNOWN = {name: getattr(np, name) for name in FUNCTIONS if hasattr(np, name)}
KNOWN |= {"rsqrt": lambda x: x**-0.5, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}
KNOWN |= {"erf": np.vectorize(math.erf)}


def functions_error() -> float:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((70,), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            results = [builder.emit_output(getattr(relax.op, name)(x)) for name in FUNCTIONS]
        builder.emit_func_output(results)
    library = tvm_rammer.build(builder.get(), TARGET, policy="wavefront", num_veus=4)
    values = np.linspace(0.02, 0.98, 70).astype("float16")
    got = outputs(library, {"x": values})
    # Of what no number has, acosh below 1, both are NaN.
    with np.errstate(invalid="ignore"):
        wanted = [KNOWN[name](values.astype("float64")) for name in FUNCTIONS]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    return float(np.nanmax(np.abs(np.asarray(got, "float64") - wanted) / (1 + np.abs(wanted))))


def test_functions_compute_what_numpy_does():
    assert run_emulated(functions_error) < 1e-3


def test_no_function_of_float16_is_called():
    x = te.placeholder((8,), "float16")
    half = te.create_prim_func([x, te.compute((8,), lambda i: tirx.acos(tirx.exp(x[i])))])
    text = with_wide_functions(half).script()
    assert 'T.acos(T.Cast("float32", T.Cast("float16", T.exp(T.Cast("float32"' in text
    assert with_wide_functions(with_wide_functions(half)).script() == text
    wide = te.placeholder((8,), "float32")
    known = te.create_prim_func([wide, te.compute((8,), lambda i: tirx.exp(wide[i]))])
    assert with_wide_functions(known).same_as(known)
