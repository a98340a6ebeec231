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
#: Rows of a matrix that are transposed at once: a line of the cache.
_ROWS = 16
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
    """Make inputs of the weights that the importer need not know; the others get their bytes.

    What is only used transposed is transposed while it is read, not copied for that later.
    """
    needed = set(_read_by_others(graph.node)) | {value.name for value in graph.output}
    transposing = _transposing(graph)
    taken: dict[str, tvm.runtime.Tensor] = {}
    inputs = {value.name: value for value in graph.input}
    described = {value.name: value for value in graph.value_info}
    for number in sorted(parts, reverse=True):
        tensor, part = graph.initializer[number], parts[number]
        plain = tensor.data_type == onnx.TensorProto.FLOAT and 4 * prod(tensor.dims) == part.size
        if not plain or tensor.name in needed:
            tensor.raw_data = read(file, part)
            continue
        if tensor.name in transposing:
            transposing[tensor.name].i = 0
            weight = _transposed(file, part, *tensor.dims)
        else:
            weight = _tensor(file, part, tuple(tensor.dims))
        taken[tensor.name] = weight
        description = helper.make_tensor_value_info(tensor.name, tensor.data_type, weight.shape)
        (inputs.get(tensor.name) or graph.input.add()).CopyFrom(description)
        if tensor.name in described:
            described[tensor.name].CopyFrom(description)
        del graph.initializer[number]
    return taken


def _transposing(graph: onnx.GraphProto) -> dict[str, onnx.AttributeProto]:
    """The ``transB`` of the Gemm that alone reads a matrix, by the matrix's name."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return {
        name: attribute
        for name, (node, *others) in readers.items()
        if node.op_type == "Gemm" and node.input[1] == name and not others
        for attribute in node.attribute
        if attribute.name == "transB" and attribute.i
    }


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


def _transposed(file: BufferedReader, part: Part, rows: int, columns: int) -> tvm.runtime.Tensor:
    array = empty((columns, rows), np.float32)
    some = np.empty((_ROWS, columns), np.float32)
    file.seek(part.start)
    for start in range(0, rows, _ROWS):
        count = min(_ROWS, rows - start)
        file.readinto(some[:count].reshape(-1).data)
        array[:, start : start + count] = some[:count].T
    return as_tensor(array)
