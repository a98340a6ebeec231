"""Shapes and element types of the tensors of an ONNX graph, as far as ONNX's inference can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import shape_inference

#: Shape and element type of tensors, by their names.
Types = Mapping[str, tuple[tuple[int | None, ...], int]]


def value_types(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[tuple[int | None, ...], int]]:
    """Types of the tensors of a model whose inputs have the given static shapes."""
    sized = onnx.ModelProto()
    sized.CopyFrom(model)
    for value in sized.graph.input:
        if value.name in shapes:
            dims = value.type.tensor_type.shape.dim
            del dims[:]
            for size in shapes[value.name]:
                dims.add().dim_value = size
    graph = shape_inference.infer_shapes(sized, data_prop=True).graph
    found = {
        value.name: (_dims(value.type), value.type.tensor_type.elem_type)
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }
    return found | {t.name: (tuple(t.dims), t.data_type) for t in graph.initializer}


def opset_version(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators in a model."""
    versions = (each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    return next(versions, 1)


def _dims(kind: onnx.TypeProto) -> tuple[int | None, ...]:
    dims = kind.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)
