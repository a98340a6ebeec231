"""What is known of the states and the results of a ``Loop`` whose steps only the run counts."""

from __future__ import annotations

import onnx
from onnx import helper

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.infer import Types, known_sizes
from tvm_rammer.frontend.onnx.names import describe, describe_type


def state_type(node: onnx.NodeProto, name: str, types: Types, where: str) -> onnx.TypeProto:
    """What a state is before the first step.

    Raises
    ------
    ModelError
        It is no tensor whose axes can be counted.
    """
    kind = types.get(name)
    if kind is None or not _has_axes(kind):
        raise _refused(node, where, f"how many axes {name!r} has is not known, or it is no tensor")
    return kind


def in_common(
    node: onnx.NodeProto, before: onnx.TypeProto, after: onnx.TypeProto, where: str
) -> onnx.TypeProto:
    """The type of a state, of what it is before a step and after it.

    Raises
    ------
    ModelError
        A step changes more than sizes.
    """
    own, other = before.tensor_type, after.tensor_type
    sizes = known_sizes(before)
    if not _has_axes(after):
        # ONNX cannot tell: no size is sure to stay.
        return helper.make_tensor_type_proto(own.elem_type, [None] * len(sizes))
    found = known_sizes(after)
    if own.elem_type != other.elem_type or len(sizes) != len(found):
        reason = f"a step makes {describe_type(after)} of the state {describe_type(before)}"
        raise _refused(node, where, reason)
    left = [size if size == now else None for size, now in zip(sizes, found, strict=True)]
    return helper.make_tensor_type_proto(own.elem_type, left)


def stacked_type(node: onnx.NodeProto, part: onnx.ValueInfoProto, where: str) -> onnx.TypeProto:
    """The type of what all steps write, of what one writes.

    Raises
    ------
    ModelError
        How many axes that has is not known.
    """
    if not _has_axes(part.type):
        raise _refused(node, where, f"how many axes {part.name!r} has is not known")
    sizes = [None, *known_sizes(part.type)]
    return helper.make_tensor_type_proto(part.type.tensor_type.elem_type, sizes)


def _has_axes(kind: onnx.TypeProto) -> bool:
    return kind.WhichOneof("value") == "tensor_type" and kind.tensor_type.HasField("shape")


def _refused(node: onnx.NodeProto, where: str, reason: str) -> ModelError:
    return ModelError(
        f"{where}: {describe(node)}, whose steps only the run counts, cannot be compiled: "
        f"{reason}; fix the inputs that decide how many there are with constants="
    )
