"""Reads ONNX files; large weights go from the file into tensors, without copies in between.

They would be copied for protobuf, for Python, for the checker and for TVM, some seconds for half a
gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from math import prod
from pathlib import Path

import numpy as np
import onnx
import tvm
from onnx import helper

from tvm_rammer.protobuf import Part, message_without, read, whole
from tvm_rammer.tensors import as_tensor, empty

#: Numbers of fields in ModelProto, GraphProto and TensorProto.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
#: Weights of fewer bytes stay in the graph.
_LARGE = 1 << 16
#: Operators that TVM imports alike whether an operand is a constant or not.
_IMPORTED_ALIKE = {"Conv", "ConvTranspose", "Gemm", "MatMul", "Transpose", "LSTM", "GRU", "RNN"}


@dataclass(frozen=True)
class OnnxModel:
    """A model whose graph may have weights among its inputs.

    Attributes
    ----------
    proto : onnx.ModelProto
    weights : mapping of str to tvm.runtime.Tensor
        Those inputs of the graph that are weights.
    """

    proto: onnx.ModelProto
    weights: Mapping[str, tvm.runtime.Tensor] = field(default_factory=dict)


def read_onnx_file(path: Path) -> OnnxModel:
    """Read an ONNX file.

    Raises
    ------
    google.protobuf.message.DecodeError
        It is none.
    """
    with path.open("rb") as file:
        try:
            content, parts = _without_large_weights(file)
        except ValueError:
            # Protobuf knows best what is wrong with it.
            content, parts = read(file, whole(file)), {}
        proto = onnx.load_model_from_string(content)
        return OnnxModel(proto, _take_weights(file, proto.graph, parts))


def _without_large_weights(file: BufferedReader) -> tuple[bytes, dict[int, Part]]:
    """A model without its large weights; and where they are, by the initialiser's number."""
    parts: dict[int, Part] = {}
    count = 0

    def data(_: BufferedReader, part: Part) -> bytes | None:
        if part.size < _LARGE:
            return read(file, part)
        parts[count] = part
        return None

    def initializer(_: BufferedReader, part: Part) -> bytes:
        nonlocal count
        content = message_without(file, part, {_RAW_DATA: data})
        count += 1
        return content

    def graph(_: BufferedReader, part: Part) -> bytes:
        return message_without(file, part, {_INITIALIZER: initializer})

    return message_without(file, whole(file), {_GRAPH: graph}), parts


def _take_weights(
    file: BufferedReader, graph: onnx.GraphProto, parts: Mapping[int, Part]
) -> dict[str, tvm.runtime.Tensor]:
    """Make inputs of the weights that the importer need not know; the others get their bytes."""
    needed = set(_read_by_others(graph.node)) | {value.name for value in graph.output}
    taken: dict[str, tvm.runtime.Tensor] = {}
    inputs = {value.name for value in graph.input}
    for number in sorted(parts, reverse=True):
        tensor, part = graph.initializer[number], parts[number]
        plain = tensor.data_type == onnx.TensorProto.FLOAT and 4 * prod(tensor.dims) == part.size
        if not plain or tensor.name in needed:
            tensor.raw_data = read(file, part)
            continue
        taken[tensor.name] = _tensor(file, part, tuple(tensor.dims))
        if tensor.name not in inputs:
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
        del graph.initializer[number]
    return taken


def _read_by_others(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """What nodes read that the importer may treat in another way if it is a constant."""
    for node in nodes:
        if node.op_type not in _IMPORTED_ALIKE:
            yield from node.input
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                for inner in graph.node:
                    yield from inner.input
                yield from _read_by_others(graph.node)


def _tensor(file: BufferedReader, part: Part, shape: tuple[int, ...]) -> tvm.runtime.Tensor:
    array = empty(shape, np.float32)
    file.seek(part.start)
    file.readinto(array.reshape(-1).data)
    return as_tensor(array)
