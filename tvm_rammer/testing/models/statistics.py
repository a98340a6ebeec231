"""What a model's graph says about itself: size, work, and how much of it could run at once."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import onnx
from onnx import shape_inference

from tvm_rammer.machine.cache import CacheFile
from tvm_rammer.testing.models.zoo import ModelInfo

#: Operators that only move or rename data.
_FREE = {"Concat", "Dropout", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze"}
_FREE |= {"Constant", "ConstantOfShape", "Gather", "Pad", "Transpose", "Unsqueeze"}


@dataclass(frozen=True)
class ModelStatistics:
    """Counts over a model's graph.

    Attributes
    ----------
    operators : int
        Nodes.
    parameters : int
        Trained weights (a batch norm's running mean and variance, shapes and scalars are not).
    flops : int
        A multiply-add is two; an element of a pointwise result is one.
    width, depth : int
        Operators in the widest level of the graph, and the number of levels.
    parallelism : float
        Work over critical path, both in flops: the speed-up of infinitely many execution units.
    """

    operators: int
    parameters: int
    flops: int
    width: int
    depth: int
    parallelism: float


def statistics(model: onnx.ModelProto) -> ModelStatistics:
    """Count a model's operators, weights, work and parallelism."""
    shapes = _shapes(model)
    work = [_flops(node, shapes) for node in model.graph.node]
    level: dict[str, int] = {}
    path: dict[str, int] = {}
    levels = Counter[int]()
    for node, flops in zip(model.graph.node, work, strict=True):
        depth = 1 + max((level.get(value, 0) for value in node.input), default=0)
        length = flops + max((path.get(value, 0) for value in node.input), default=0)
        levels[depth] += 1
        level |= dict.fromkeys(node.output, depth)
        path |= dict.fromkeys(node.output, length)
    longest = max(path.values(), default=0)
    return ModelStatistics(
        operators=len(model.graph.node),
        parameters=_parameters(model.graph),
        flops=sum(work),
        width=max(levels.values(), default=0),
        depth=max(levels, default=0),
        parallelism=sum(work) / longest if longest else 1.0,
    )


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    graph = model.graph
    known = {info.name for info in graph.value_info} | {info.name for info in graph.output}
    if any(value not in known for node in graph.node for value in node.output if value):
        graph = shape_inference.infer_shapes(model).graph
    infos = [*graph.input, *graph.value_info, *graph.output]
    shapes = {
        info.name: tuple(d.dim_value for d in info.type.tensor_type.shape.dim) for info in infos
    }
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}


def _flops(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> int:
    if node.op_type in _FREE:
        return 0
    size = math.prod(shapes.get(node.output[0], ()))
    match node.op_type:
        case "Conv":
            return 2 * size * math.prod(shapes[node.input[1]][1:])
        case "MatMul" | "Gemm":
            return 2 * size * shapes[node.input[0]][-1]
        case "MaxPool" | "AveragePool":
            kernel: Sequence[int] = next(a.ints for a in node.attribute if a.name == "kernel_shape")
            return size * math.prod(kernel)
        case "GlobalAveragePool" | "ReduceMax" | "ReduceMean" | "ReduceSum":
            return math.prod(shapes[node.input[0]])
    return size


def _parameters(graph: onnx.GraphProto) -> int:
    running = {v for n in graph.node if n.op_type == "BatchNormalization" for v in n.input[3:5]}
    return sum(
        math.prod(tensor.dims)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
        and math.prod(tensor.dims) > 1
        and tensor.name not in running
    )


#: What was counted before, for every state of the builders.
_COUNTED = CacheFile("model_statistics.json", ModelStatistics)


def known_statistics(info: ModelInfo, tiny: bool = False) -> ModelStatistics:
    """Count a model, unless the builders as they are now have been counted before.

    Parameters
    ----------
    info : ModelInfo
    tiny : bool
        At the size for quick tests.
    """
    name = f"{info.name} (tiny)" if tiny else info.name
    key = f"{_builders()}/{name}"
    known: ModelStatistics | None = _COUNTED.load().get(key)
    if known is None:
        known = statistics(info.tiny() if tiny else info.build())
        _COUNTED.add({key: asdict(known)})
    return known


@cache
def _builders() -> str:
    """What the counts depend on: the sources of this folder, and onnx, which brings some graphs."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(onnx.__version__.encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()
