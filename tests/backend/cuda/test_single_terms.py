"""Sums of one term on GPUs: what follows them is added once."""

from __future__ import annotations

from cuda_models import TARGET, outputs
from emulated_cuda import run_emulated
from tvm import te, topi

import tvm_rammer
from tvm_rammer.backend.cuda.single_terms import with_single_terms
from tvm_rammer.kernel.blocks import reduces
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.reference import random_inputs, relative_error


def errors(form: str) -> list[float]:
    """Of a convolution of one channel, a product of one term, a mean and a maximum over one."""
    graph = GraphBuilder("single_terms")
    x, y = graph.input("x", (1, 1, 7, 9)), graph.input("y", (5, 1))
    weights, bias = graph.weight((6, 1, 1, 1), 1.0), graph.weight((6,), 1.0)
    graph.output("a", graph.op("Relu", graph.op("Conv", x, weights, bias)))
    column, row = graph.weight((1, 8), 1.0), graph.weight((8,), 1.0)
    graph.output("b", graph.op("Add", graph.op("MatMul", y, column), row))
    mean = graph.op("ReduceMean", y, axes=[1], keepdims=1)
    graph.output("c", graph.op("Add", mean, row))
    largest = graph.op("ReduceMax", y, axes=[1], keepdims=1)
    graph.output("d", graph.op("Mul", largest, row))
    model = graph.build()
    inputs = random_inputs(model)
    library = tvm_rammer.build(model, TARGET, form=form, policy="wavefront", num_veus=3)
    got = outputs(library, inputs)
    return [relative_error(*each) for each in zip(got, run_onnxruntime(model, inputs), strict=True)]


def test_what_follows_is_added_once():
    for form in ("program", "per-op"):
        assert max(run_emulated(errors, form)) < 1e-6


def product(terms: int) -> object:
    a, b = te.placeholder((4, terms), "float32"), te.placeholder((terms, 8), "float32")
    return te.create_prim_func([a, b, topi.nn.relu(topi.nn.matmul(a, b))])


def test_sums_of_several_terms_stay_as_they_are():
    several, single = product(2), product(1)
    assert with_single_terms(several) is several
    assert reduces(single) and not reduces(with_single_terms(single))
