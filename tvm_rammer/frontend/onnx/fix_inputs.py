"""Puts the shapes of inputs into an ONNX graph, and the values of those that are constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.input_constants import Constants, as_constant, checked_constants
from tvm_rammer.frontend.input_shapes import (
    Dims,
    Shapes,
    Size,
    require_memory,
    resolved_shapes,
    symbol_values,
)
from tvm_rammer.frontend.onnx.onnx_file import OnnxModel

#: The version of ONNX's format since which initialisers need not be inputs.
_INITIALISERS_ALONE = 4

#: Names that exporters write for a dimension that has none.
_UNNAMED = {"none", "null", "unk", "unknown", "-1"}


def fix_inputs(model: OnnxModel, shapes: Shapes, constants: Constants, where: str) -> OnnxModel:
    """Give every input its shape, and make initialisers of those that are constants.

    Parameters
    ----------
    model : OnnxModel
        Is changed.
    shapes : mapping of str to sequence of int
        What the user gives; a name is a size that each run decides.
    constants : mapping of str to array_like
        Values of inputs, which are none any more.
    where : str
        The model, for messages.

    Raises
    ------
    ModelError
        An input is no tensor of numbers, or its shape stays unknown.
    InputError
        A shape or a constant does not fit.
    """
    graph = model.proto.graph
    # Before this version each initialiser had to be an input as well.
    model.proto.ir_version = max(model.proto.ir_version, _INITIALISERS_ALONE)
    constant = {tensor.name for tensor in graph.initializer}
    for value in [value for value in graph.input if value.name in constant]:
        graph.input.remove(value)
    inputs = {value.name: value for value in free_inputs(model)}
    dims = {name: _dims(value, where) for name, value in inputs.items()}
    checked_constants(constants, inputs, shapes, where)
    values = typed_constants(inputs, constants, where)
    given = {**shapes, **{name: value.shape for name, value in values.items()}}
    resolved = resolved_shapes(dims, given, where)
    require_memory(resolved, {name: _dtype(inputs[name]).itemsize for name in resolved}, where)
    symbols = symbol_values(dims, given, where)
    for name, value in inputs.items():
        if name in values:
            graph.initializer.append(numpy_helper.from_array(values[name], name))
            graph.input.remove(value)
        else:
            _set_shape(value, resolved[name])
    for value in (*graph.value_info, *graph.output):
        _settle(value, symbols)
    return model


def typed_constants(
    inputs: Mapping[str, onnx.ValueInfoProto], constants: Constants, where: str
) -> dict[str, np.ndarray]:
    """The values that a user gives for inputs, as arrays of their types."""
    return {
        name: as_constant(name, value, _dtype(inputs[name]), _dims(inputs[name], where), where)
        for name, value in constants.items()
    }


def free_inputs(model: OnnxModel) -> list[onnx.ValueInfoProto]:
    """The inputs of a graph that are no weights."""
    return [value for value in model.proto.graph.input if value.name not in model.weights]


def _dtype(value: onnx.ValueInfoProto) -> np.dtype:
    return helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)


def _dims(value: onnx.ValueInfoProto, where: str) -> Dims:
    kind = str(value.type.WhichOneof("value")).removesuffix("_type")
    tensor = value.type.tensor_type
    if kind != "tensor" or tensor.elem_type == onnx.TensorProto.STRING:
        what = "a tensor of strings" if kind == "tensor" else f"of the type {kind}"
        raise ModelError(f"{where}: input {value.name!r} is {what}; it must be a numeric tensor")
    if not tensor.HasField("shape"):
        return None
    return tuple(map(_dim, tensor.shape.dim))


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    """A size, a symbol or None: dimensions without a name are each their own, says ONNX."""
    if dim.HasField("dim_value"):
        # Some exporters write -1 for a size that is not known.
        return dim.dim_value if dim.dim_value >= 0 else None
    name = dim.dim_param
    unnamed = name.lower() in _UNNAMED or not any(map(str.isalnum, name))
    return None if unnamed else name


def _set_shape(value: onnx.ValueInfoProto, sizes: Sequence[Size]) -> None:
    elem_type = value.type.tensor_type.elem_type
    value.type.CopyFrom(helper.make_tensor_type_proto(elem_type, sizes))


def _settle(value: onnx.ValueInfoProto, symbols: Mapping[str, Size]) -> None:
    """Give the symbols in a result's shape their sizes; the names of others mean nothing."""
    for dim in value.type.tensor_type.shape.dim:
        size = symbols.get(dim.dim_param)
        if isinstance(size, int):
            dim.dim_value = size
        elif size is not None:
            dim.dim_param = size
        elif dim.dim_param:
            dim.ClearField("dim_param")
