"""Tensors that are known step by step, and the operators that leave them so.

Between two recurrent layers an exported model has a Squeeze, or a Transpose and a Reshape. A layer
that looks through them reads each step as soon as it is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx
from onnx import helper

from tvm_rammer.frontend.onnx.infer import Types, static_shape
from tvm_rammer.frontend.onnx.new_nodes import Nodes


@dataclass(frozen=True)
class Steps:
    """The parts of a tensor.

    Attributes
    ----------
    parts : tuple of tuple of str
        For each step a tensor [batch, features] per direction.
    batch, features : int
    axes : str
        Those of the whole tensor, outermost first: t(ime), d(irection), b(atch), f(eatures).
    """

    parts: tuple[tuple[str, ...], ...]
    batch: int
    features: int
    axes: str

    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        directions = len(self.parts[0]) if self.parts else 1
        sizes = {"t": len(self.parts), "d": directions, "b": self.batch, "f": self.features}
        return tuple(sizes[axis] for axis in self.axes)


def passed_on(steps: Steps, node: onnx.NodeProto, nodes: Nodes, types: Types) -> Steps | None:
    """The steps of a node's result, given those of its first input; ``None`` if there are none."""
    if node.op_type == "Identity":
        return steps
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Transpose":
        order = attributes.get("perm") or range(len(steps.axes))[::-1]
        return replace(steps, axes="".join(steps.axes[axis] for axis in order))
    if node.op_type not in ("Squeeze", "Reshape"):
        return None
    joined = _without_directions(steps, nodes)
    shape = static_shape(types.get(node.output[0]))
    return joined if joined is not None and joined.shape() == shape else None


def _without_directions(steps: Steps, nodes: Nodes) -> Steps | None:
    """A step's directions as one tensor: there is only one, or they are neighbours."""
    axes = steps.axes.replace("d", "")
    if all(len(step) == 1 for step in steps.parts):
        return replace(steps, axes=axes)
    if not steps.axes.endswith("df"):
        return None
    parts = tuple((nodes.op("Concat", *step, axis=1),) for step in steps.parts)
    return Steps(parts, steps.batch, steps.features * len(steps.parts[0]), axes)
