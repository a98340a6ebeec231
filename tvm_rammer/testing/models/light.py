"""The nine networks that ship inside the ``onnx`` package, with weights worth computing with.

They are real graphs with every weight replaced by a ConstantOfShape, so that the files are small.
Two traps in running them as they are: compilers fold the constant weights, and all channels are
equal.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

from tvm_rammer.errors import ModelError
from tvm_rammer.testing.models.builder import IR_VERSION
from tvm_rammer.testing.models.layers import conv_weight

LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


def light(
    name: str, seed: int = 0, random_weights: bool = True, stop: int | None = None
) -> onnx.ModelProto:
    """One of the networks in the ``onnx`` package.

    Parameters
    ----------
    name : str
        One of :data:`LIGHT`.
    seed : int
        Seed of the weights.
    random_weights : bool
        False gives the graph as shipped: constant weights computed by ConstantOfShape nodes.
    stop : int, optional
        Keep only the first operators (weights not counted); their unread results are the outputs.
    """
    if name not in LIGHT:
        raise ModelError(f"the onnx package has no light model {name!r}; it has {', '.join(LIGHT)}")
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(str(folder / f"light_{name}.onnx"))
    if not random_weights:
        return model
    model = shape_inference.infer_shapes(model)
    if stop is not None:
        _truncate(model.graph, stop)
    _randomise(model.graph, np.random.default_rng(seed))
    _only_real_inputs(model.graph)
    model.ir_version = IR_VERSION  # from version 4 on an initialiser need not be an input
    return model


def _truncate(graph: onnx.GraphProto, stop: int) -> None:
    weights = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"][:stop]
    read = {value for node in kept for value in node.input}
    ends = [node.output[0] for node in kept if node.output[0] not in read]
    types = {info.name: info for info in [*graph.value_info, *graph.output]}
    del graph.node[:]
    graph.node.extend([node for node in weights if node.output[0] in read])
    graph.node.extend(kept)
    outputs = [types[end] for end in ends]
    del graph.output[:]
    graph.output.extend(outputs)
    used = {value for node in graph.node for value in [*node.input, *node.output]}
    _keep(graph.initializer, used)
    _keep(graph.value_info, used)


def _randomise(graph: onnx.GraphProto, rng: np.random.Generator) -> None:
    """Replace every ConstantOfShape by an initialiser that suits the operator that reads it."""
    shapes = {tensor.name: tensor for tensor in graph.initializer}
    context = _Context(graph)
    nodes = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            nodes.append(node)
            continue
        shape = tuple(int(d) for d in numpy_helper.to_array(shapes[node.input[0]]))
        value = _values(rng, shape, context, node.output[0])
        graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
    del graph.node[:]
    graph.node.extend(nodes)
    _keep(graph.initializer, {value for node in nodes for value in node.input})


class _Context:
    """Who makes and who reads a value."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.producers = {value: node for node in graph.node for value in node.output}
        self.readers: dict[str, tuple[onnx.NodeProto, int]] = {}
        for node in graph.node:
            for position, value in enumerate(node.input):
                self.readers.setdefault(value, (node, position))

    def reader(self, value: str) -> tuple[onnx.NodeProto, int]:
        """The operator that reads a weight, and as which of its inputs."""
        node, position = self.readers[value]
        return self.reader(node.output[0]) if node.op_type == "Unsqueeze" else (node, position)

    def after_relu(self, value: str) -> bool:
        """Whether a convolution's input is what a ReLU left, perhaps pooled or moved."""
        node = self.producers.get(value)
        passing = ("BatchNormalization", "Reshape", "Transpose", "AveragePool", "MaxPool")
        if node is not None and node.op_type in passing:
            return self.after_relu(node.input[0])
        return node is not None and node.op_type != "Conv"

    def is_summed(self, node: onnx.NodeProto) -> bool:
        """Whether a result goes straight into a sum with a shortcut."""
        reader = self.readers.get(node.output[0])
        return reader is not None and reader[0].op_type == "Sum"


def _values(
    rng: np.random.Generator, shape: tuple[int, ...], context: _Context, weight: str
) -> np.ndarray:
    reader, position = context.reader(weight)
    match reader.op_type, position:
        case "Conv", 1:
            return conv_weight(rng, shape, context.after_relu(reader.input[0]))
        case "Gemm", 1:
            scale = math.sqrt(2 / shape[-1])  # every Gemm here has transB
        case ("BatchNormalization", 1 | 4) | ("Mul", _):
            # Sums of a dozen blocks would double the variance a dozen times.
            middle = 0.5 if position == 1 and context.is_summed(reader) else 1.0
            return (middle * rng.uniform(0.8, 1.2, shape)).astype(np.float32)
        case _:
            scale = 0.05
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)


def _only_real_inputs(graph: onnx.GraphProto) -> None:
    weights = {tensor.name for tensor in graph.initializer}
    read = {value for node in graph.node for value in node.input}
    _keep(graph.input, read - weights)


def _keep(items: Any, names: set[str]) -> None:
    kept = [item for item in items if item.name in names]
    del items[:]
    items.extend(kept)
