"""Models on emulated CUDA: what they compute, and what they are to compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import tvm
from emulated_cuda import ORDERS, edited, lane_order, looking_for_races
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from tvm import relax, s_tir
from tvm.s_tir import dlight

import tvm_rammer
from tvm_rammer.backend.cuda import schedules
from tvm_rammer.kernel.blocks import is_reduction, root_blocks
from tvm_rammer.testing.models import get_model
from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.reference import random_inputs, relative_error

TARGET = {"kind": "cuda", "arch": "sm_90"}


@dataclass(frozen=True)
class Run:
    """What a model computed on emulated CUDA.

    Attributes
    ----------
    errors : dict of int to float
        The largest relative error of an output, by the order of lanes.
    source : str
        The CUDA C of its regions.
    waits, operators : int
        Of its plans.
    """

    errors: dict[int, float]
    source: str
    waits: int
    operators: int


def branches() -> ModelProto:
    """Two convolutions side by side, their results together, and a softmax."""
    graph = GraphBuilder("branches")
    x = graph.input("x", (1, 8, 10, 10))
    parts = [
        graph.op("Conv", x, graph.weight((8, 8, size, size), 0.3), pads=[size // 2] * 4)
        for size in (1, 3)
    ]
    together = graph.op("Concat", *parts, axis=1)
    graph.output("y", graph.op("Softmax", graph.op("Flatten", together, axis=1), axis=-1))
    return graph.build()


def volumes() -> ModelProto:
    """A convolution of volumes, and a transposed one behind it."""
    graph = GraphBuilder("volumes")
    x = graph.input("x", (1, 4, 4, 5, 6))
    inner = graph.op("Relu", graph.op("Conv", x, graph.weight((8, 4, 3, 3, 3), 0.3), pads=[1] * 6))
    wide = graph.op("ConvTranspose", inner, graph.weight((8, 8, 2, 2, 2), 0.3), strides=[2] * 3)
    graph.output("y", graph.op("Tanh", wide))
    return graph.build()


def router() -> ModelProto:
    """Tokens that choose three of forty experts each, and the weights of what they choose."""
    graph = GraphBuilder("router")
    x = graph.input("x", (6, 16))
    scores = graph.op("Softmax", graph.op("MatMul", x, graph.weight((16, 40), 1.0)), axis=-1)
    best, _ = graph.ops("TopK", [scores, graph.constant([3], "int64")], 2, axis=-1)
    graph.output("y", graph.op("Mul", best, best))
    return graph.build()


def run_model(name: str, **options: Any) -> Run:
    """Build the small variant of a model of the zoo, and run it in every order of lanes."""
    return run_onnx(get_model(name).tiny(), **options)


def run_onnx(model: Any, **options: Any) -> Run:
    """Build an ONNX model, and run it in every order of lanes; numpy says what is right."""
    sources: list[str] = []

    def look(source: str) -> str:
        sources.append(source)
        return source

    with edited(look):
        library = tvm_rammer.build(model, TARGET, **options)
    inputs = random_inputs(model)
    expected = ReferenceEvaluator(model).run(None, inputs)
    programs = library.programs.values()
    return Run(
        {order: worst(outputs(library, inputs, order), expected) for order in ORDERS},
        max(sources, key=len),
        sum(len(task.waits) for program in programs for _, _, task in program.tasks()),
        sum(len(program.operators) for program in programs),
    )


def outputs(library: Any, inputs: dict[str, np.ndarray], order: int = 0) -> list[np.ndarray]:
    """What a library computes."""
    module = library.create(tvm.cuda(0))
    for name, value in inputs.items():
        module.set_input(name, value)
    with lane_order(order):
        module.run()
    return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


def worst(got: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest relative error of an output."""
    return max(relative_error(a, np.asarray(b)) for a, b in zip(got, expected, strict=True))


class NoSums(dlight.gpu.Fallback):
    """dlight's rule for everything, here for what has no sum."""

    def apply(self, func: Any, target: Any, _: bool) -> Any:
        sch = s_tir.Schedule(func)
        if any(is_reduction(sch, block) for block in root_blocks(sch)):
            return None
        return super().apply(func, target, _)


#: Shapes of inputs, what is made of them for Relax, and for numpy.
Case = tuple[tuple[tuple[int, ...], ...], Callable[..., Any], Callable[..., Any]]


def errors_by_rule(case: Case, rule: Any, dtype: str = "float32") -> tuple[list[float], set[str]]:
    """Errors in any order of lanes, where no other rule knows sums; the rules of kernels."""
    shapes, model, known = case
    builder = relax.BlockBuilder()
    given = [relax.Var(f"x{k}", relax.TensorType(s, dtype)) for k, s in enumerate(shapes)]
    with builder.function("main", given):
        with builder.dataflow():
            # A region has two operators.
            made = [builder.emit_output(e) for e in (model(*given), relax.op.tanh(given[0]))]
        builder.emit_func_output(made)
    rng = np.random.default_rng(0)
    values = {f"x{k}": rng.standard_normal(s).astype(dtype) for k, s in enumerate(shapes)}
    wanted = known(*(each.astype("float64") for each in values.values()))
    with (
        patch.object(schedules, "_rules", lambda: [rule, NoSums()]),
        looking_for_races(),
    ):
        library = tvm_rammer.build(builder.get(), TARGET, policy="wavefront", num_veus=3)
    found = [relative_error(outputs(library, values, order)[0], wanted) for order in ORDERS]
    return found, {kernel.origin for p in library.programs.values() for kernel in p.kernels}


def convolution(x: Any, w: Any, stride: int = 1) -> Any:
    """Of rows of channels, padded by one; as many groups as inputs of a filter make of them."""
    groups = int(x.ty.shape[3]) // int(w.ty.shape[3])
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    return relax.op.nn.conv2d(x, w, strides=stride, padding=1, groups=groups, **layouts)


def convolved(x: np.ndarray, w: np.ndarray, stride: int = 1) -> np.ndarray:
    """What :func:`convolution` is to numpy, group by group."""
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    outputs, high, wide, inputs = w.shape
    groups = x.shape[3] // inputs
    rows = (x.shape[1] - high) // stride + 1
    ends = stride * (rows - 1) + 1
    found = np.zeros((x.shape[0], rows, rows, outputs))
    for group in range(groups):
        own = slice(group * outputs // groups, (group + 1) * outputs // groups)
        read = slice(group * inputs, (group + 1) * inputs)
        for i in range(high):
            for j in range(wide):
                part = x[:, i : i + ends : stride, j : j + ends : stride, read]
                found[..., own] += part @ w[own, i, j].T
    return found
