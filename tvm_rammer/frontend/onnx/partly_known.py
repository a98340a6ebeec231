"""Vectors of sizes of which only some are known while a graph is folded.

An image of a batch of any size has a known height; exporters join it with the batch, cut it out
again, and pad by what they compute from it. A vector is followed twice: as it would be if every
size that is not known were some number, and another. Operators that only choose, join, add or
multiply give the same elements both times where those do not depend on such sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_rammer.frontend.onnx.infer import (
    LARGEST_SHAPE,
    Types,
    Values,
    domain_of,
    ends_of,
    evaluated,
    known_sizes,
)

#: What unknown sizes are taken for: products of a few of them fit into 64 bits.
_NUMBERS = 1 << 16, 1 << 20
#: Operators whose results are polynomials of the elements of these of their operands; the others
#: say which elements there are.
_FOLLOWED = {
    **dict.fromkeys(("Add", "Cast", "Concat", "Identity", "Mul", "Neg", "Sub"), slice(None)),
    **dict.fromkeys(("Gather", "Reshape", "Slice", "Squeeze"), slice(0, 1)),
    **dict.fromkeys(("Transpose", "Unsqueeze"), slice(0, 1)),
}

_WHOLE = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)

#: What a vector would be, with one and with another number in place of what is not known.
Pair = tuple[onnx.TensorProto, onnx.TensorProto]


class PartlyKnown:
    """What is known of the vectors of sizes of a model."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self._opsets = opsets
        self._random = np.random.default_rng(0)
        self._pairs: dict[str, Pair] = {}

    def note(
        self, node: onnx.NodeProto, types: Types, values: Values
    ) -> dict[str, onnx.TensorProto] | None:
        """Follow a node whose results are not known as a whole: its result, if it is after all."""
        for name in node.output:
            # The body of a loop is folded more than once, and may know less then.
            self._pairs.pop(name, None)
        if domain_of(node):
            return None
        pair = self._sizes(node, types) if node.op_type == "Shape" else self._pair(node, values)
        if pair is None:
            return None
        (name,) = node.output
        one, other = pair
        if np.array_equal(numpy_helper.to_array(one), numpy_helper.to_array(other)):
            return {name: one}
        self._pairs[name] = pair
        return None

    def shaped(self, node: onnx.NodeProto, types: Types) -> dict[str, onnx.TypeProto]:
        """The type of what takes such a vector for its shape, as far as it is known."""
        is_reshape = node.op_type == "Reshape" and not domain_of(node)
        # Its first version has the shape as an attribute.
        if not is_reshape or len(node.input) < 2 or node.input[0] not in types:
            return {}
        pair = self._pairs.get(node.input[1])
        if pair is None:
            return {}
        given = known_sizes(types[node.input[0]])
        keeps = not any(each.name == "allowzero" and each.i for each in node.attribute)
        sizes: list[int | None] = []
        for place, (one, other) in enumerate(zip(*map(numpy_helper.to_array, pair), strict=True)):
            if one == 0 == other and keeps and place < len(given):
                sizes.append(given[place])
            else:
                sizes.append(int(one) if one == other and one > 0 else None)
        kind = types[node.input[0]].tensor_type.elem_type
        return {node.output[0]: helper.make_tensor_type_proto(kind, sizes)}

    def _sizes(self, node: onnx.NodeProto, types: Types) -> Pair | None:
        kind = types.get(node.input[0])
        if kind is None or not kind.tensor_type.HasField("shape"):
            return None
        sizes = known_sizes(kind)
        filled = self._random.integers(*_NUMBERS, (2, len(sizes)))
        for place, size in enumerate(sizes):
            if size is not None:
                filled[:, place] = size
        one, other = filled[:, slice(*ends_of(node))]
        (name,) = node.output
        return numpy_helper.from_array(one, name), numpy_helper.from_array(other, name)

    def _pair(self, node: onnx.NodeProto, values: Values) -> Pair | None:
        kinds = [each.i for each in node.attribute if each.name == "to"]
        if kinds and kinds[0] not in _WHOLE:
            # Floats are cut, and whatever is not 0 is true.
            return None
        followed = set(node.input[_FOLLOWED.get(node.op_type, slice(0))])
        if not any(name in self._pairs for name in followed):
            return None
        found = []
        for which in range(2):
            operands = {}
            for name in filter(None, node.input):
                if name in self._pairs and name in followed:
                    operands[name] = self._pairs[name][which]
                elif name in values and prod(values[name].dims) <= LARGEST_SHAPE:
                    operands[name] = values[name]
                else:
                    return None
            found.append(evaluated(node, operands, self._opsets))
        one, other = found
        if one is None or other is None:
            return None
        (name,) = node.output
        return one[name], other[name]
