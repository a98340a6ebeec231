"""Reads ONNX files; large weights go from the file into tensors, without copies in between.

They would be copied for protobuf, for Python, for the checker and for TVM, some seconds for half a
gigabyte. All cores read: what takes longest is to touch new memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import helper

from tvm_rammer.frontend.onnx.names import all_nodes, subgraphs
from tvm_rammer.frontend.onnx.protobuf import Part, message_without, read, whole
from tvm_rammer.tensors import as_tensor, empty

#: Numbers of fields in ModelProto, GraphProto and TensorProto.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
#: Weights of fewer bytes stay in the graph.
_LARGE = 1 << 16
#: Bytes that a thread reads at once.
_PIECE = 1 << 23
#: Rows of a matrix that are transposed at once: a line of the cache.
_ROWS = 16
#: Reads a piece of a weight.
_Read = Callable[[], None]
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


def in_memory(proto: onnx.ModelProto) -> OnnxModel:
    """A copy of a model in memory, as if it had been read from a file."""
    copy, graph = onnx.ModelProto(), proto.graph
    needed = set(_read_by_others(graph)) | {value.name for value in graph.output}
    large = [
        tensor.name not in needed
        and tensor.data_type == onnx.TensorProto.FLOAT
        and _LARGE <= 4 * prod(tensor.dims) == len(tensor.raw_data)
        for tensor in graph.initializer
    ]
    copy_fields(proto, copy, without="graph")
    copy_fields(graph, copy.graph, without="initializer")
    weights = {}
    inputs = {value.name: value for value in copy.graph.input}
    for tensor, is_large in zip(graph.initializer, large, strict=True):
        if not is_large:
            copy.graph.initializer.append(tensor)
            continue
        weight = empty(tuple(tensor.dims), np.float32)
        weight[...] = np.frombuffer(tensor.raw_data, "<f4").reshape(weight.shape)
        weights[tensor.name] = as_tensor(weight)
        description = helper.make_tensor_value_info(tensor.name, tensor.data_type, weight.shape)
        (inputs.get(tensor.name) or copy.graph.input.add()).CopyFrom(description)
    return OnnxModel(copy, weights)


def copy_fields(source: Any, target: Any, without: str) -> None:
    """Copy a message but for one field, which may be too large to copy."""
    for entry, value in source.ListFields():
        if entry.name == without:
            continue
        if entry.is_repeated:
            getattr(target, entry.name).extend(value)
        elif entry.message_type is not None:
            getattr(target, entry.name).CopyFrom(value)
        else:
            setattr(target, entry.name, value)


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
    needed = set(_read_by_others(graph)) | {value.name for value in graph.output}
    transposing = _transposing(graph)
    taken: dict[str, tvm.runtime.Tensor] = {}
    reads: list[_Read] = []
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
            weight = empty(tuple(tensor.dims)[::-1], np.float32)
            reads += _transposed_reads(file, part, weight)
        else:
            weight = empty(tuple(tensor.dims), np.float32)
            reads += _plain_reads(file, part, weight)
        taken[tensor.name] = as_tensor(weight)
        description = helper.make_tensor_value_info(tensor.name, tensor.data_type, weight.shape)
        (inputs.get(tensor.name) or graph.input.add()).CopyFrom(description)
        if tensor.name in described:
            described[tensor.name].CopyFrom(description)
        del graph.initializer[number]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        for done in [threads.submit(each) for each in reads]:
            done.result()
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


def _read_by_others(graph: onnx.GraphProto) -> Iterator[str]:
    """What nodes read that the importer may treat in another way if it is a constant."""
    for node in graph.node:
        if node.op_type not in _IMPORTED_ALIKE:
            yield from node.input
        for inner in subgraphs(node):
            yield from (name for each in all_nodes(inner) for name in each.input)


def _plain_reads(file: BufferedReader, part: Part, array: np.ndarray) -> Iterator[_Read]:
    """What fills an array with the bytes of a part."""
    content = array.reshape(-1).view(np.uint8).data
    for start in range(0, part.size, _PIECE):
        yield partial(_read_into, file, content[start : start + _PIECE], part.start + start)


def _transposed_reads(file: BufferedReader, part: Part, array: np.ndarray) -> Iterator[_Read]:
    """What fills an array with the matrix in a part, transposed."""
    columns, rows = array.shape
    step = max(1, _PIECE // (4 * _ROWS * columns)) * _ROWS
    for start in range(0, rows, step):
        some = array[:, start : start + step]
        yield partial(_read_transposed, file, part.start + 4 * columns * start, some)


def _read_transposed(file: BufferedReader, start: int, array: np.ndarray) -> None:
    columns, rows = array.shape
    some = np.empty((_ROWS, columns), np.float32)
    for row in range(0, rows, _ROWS):
        count = min(_ROWS, rows - row)
        content = some[:count].reshape(-1).view(np.uint8).data
        _read_into(file, content, start + 4 * columns * row)
        array[:, row : row + count] = some[:count].T


def _read_into(file: BufferedReader, content: memoryview, start: int) -> None:
    """Fill ``content`` from a byte of the file on, whatever other threads read."""
    while content:
        count = os.preadv(file.fileno(), [content], start)
        if not count:
            raise ValueError(f"byte {start}: the file has become shorter")
        content, start = content[count:], start + count
