"""Shapes and element types of the tensors of an ONNX graph, as far as ONNX's inference can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper, shape_inference

#: Shape and element type of tensors, by their names.
Types = Mapping[str, tuple[tuple[int | None, ...], int]]

#: Larger constants are not shown to ONNX's inference: they are data, not shapes.
_SHOWN = 1 << 12


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


def node_types(
    node: onnx.NodeProto, types: Types, constants: Mapping[str, np.ndarray], version: int
) -> dict[str, tuple[tuple[int | None, ...], int]]:
    """Types of the results of a node of ONNX's own domain; nothing where they cannot be told."""
    try:
        schema = defs.get_schema(node.op_type, version, "")
    except defs.SchemaError:
        return {}
    names = [name for name in node.input if name]
    if any(name not in types for name in names) or not node.output:
        return {}
    try:
        return _infer(schema, node, {name: types[name] for name in names}, constants, version)
    except Exception:
        pass
    # TVM knows some operators for more element types than ONNX: a convolution of integers.
    floats = {name: (types[name][0], int(onnx.TensorProto.FLOAT)) for name in names}
    try:
        found = _infer(schema, node, floats, constants, version)
    except Exception:
        return {}
    kind = types[names[0]][1]
    return {name: (dims, kind) for name, (dims, _) in found.items()}


def _infer(
    schema: defs.OpSchema,
    node: onnx.NodeProto,
    types: Types,
    constants: Mapping[str, np.ndarray],
    version: int,
) -> dict[str, tuple[tuple[int | None, ...], int]]:
    data = {
        name: numpy_helper.from_array(constants[name], name)
        for name in types
        if name in constants and constants[name].size <= _SHOWN
    }
    found = shape_inference.infer_node_outputs(
        schema,
        node,
        {name: helper.make_tensor_type_proto(kind, dims) for name, (dims, kind) in types.items()},
        data,
        opset_imports=[helper.make_opsetid("", version)],
    )
    return {
        name: (_dims(kind), kind.tensor_type.elem_type)
        for name, kind in found.items()
        if kind.tensor_type.HasField("shape")
    }


def size_of(dims: Sequence[int | None]) -> int | None:
    """How many elements a tensor has, if that is known."""
    return None if None in dims else prod(int(dim or 0) for dim in dims)


def opset_version(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators in a model."""
    versions = (each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    return next(versions, 1)


def _dims(kind: onnx.TypeProto) -> tuple[int | None, ...]:
    dims = kind.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)
