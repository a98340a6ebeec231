"""The nine networks that ship inside the ``onnx`` package, with weights worth computing with.

They are real graphs with every weight replaced by a ConstantOfShape, so that the files are small.
Two traps in running them as they are: compilers fold the constant weights, and all channels are
equal.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

from tvm_rammer.errors import ModelError
from tvm_rammer.testing.models.builder import IR_VERSION

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
    readers: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in graph.node:
        for position, value in enumerate(node.input):
            readers.setdefault(value, (node, position))
    nodes = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            nodes.append(node)
            continue
        shape = tuple(int(d) for d in numpy_helper.to_array(shapes[node.input[0]]))
        value = _values(rng, shape, *_reader(readers, node.output[0]))
        graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
    del graph.node[:]
    graph.node.extend(nodes)
    _keep(graph.initializer, {value for node in nodes for value in node.input})


def _reader(
    readers: dict[str, tuple[onnx.NodeProto, int]], value: str
) -> tuple[onnx.NodeProto, int]:
    node, position = readers[value]
    while node.op_type == "Unsqueeze":
        node, position = readers[node.output[0]]
    return node, position


def _values(
    rng: np.random.Generator, shape: tuple[int, ...], reader: onnx.NodeProto, position: int
) -> np.ndarray:
    match reader.op_type, position:
        case "Conv", 1:
            scale = math.sqrt(2 / math.prod(shape[1:]))
        case "Gemm", 1:
            scale = math.sqrt(2 / shape[-1])  # every Gemm here has transB
        case ("BatchNormalization", 1 | 4) | ("Mul", _):
            return rng.uniform(0.8, 1.2, shape).astype(np.float32)
        case _:
            scale = 0.05
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)


def _only_real_inputs(graph: onnx.GraphProto) -> None:
    weights = {tensor.name for tensor in graph.initializer}
    read = {value for node in graph.node for value in node.input}
    _keep(graph.input, read - weights)


def _keep(items, names: set[str]) -> None:  # type: ignore[no-untyped-def]  # protobuf containers
    kept = [item for item in items if item.name in names]
    del items[:]
    items.extend(kept)
