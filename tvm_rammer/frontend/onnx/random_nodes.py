"""Operators that draw random numbers, as ones that compute them from the number of the run.

That is a state of the model. In a loop the number of the step is mixed into it, so that steps draw
other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from tvm import relax

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.infer import OWN_DOMAIN, domain_of, opsets_of
from tvm_rammer.frontend.onnx.names import (
    all_names,
    all_nodes,
    attributes_of,
    describe,
    fresh,
    subgraphs,
)
from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.random_numbers import STATE, key_of, normal, uniform

#: Operators of our own, which draw by a number and a key: as many as the first operand has.
_UNIFORM, _NORMAL = "UniformLike", "NormalLike"
#: Since this version of ONNX's operators one can cast to the type of another tensor.
_CAST_LIKE_SINCE = 15

#: How far apart the steps of a loop are in what they draw.
_STEP = 1_000_003

_FLOAT = TensorProto.FLOAT


def draw_by_state(proto: onnx.ModelProto, where: str) -> bool:
    """Rewrite the operators of a model that draw; whether there are any.

    Then the number of the run is its last input, and the number of the next run its last output.

    Raises
    ------
    ModelError
        A Scan draws: it does not tell the number of its step.
    """
    if not _draws(proto.graph):
        return False
    taken = all_names(proto.graph)
    draw, after = fresh(STATE, taken), fresh(f"{STATE}_after", taken)
    version = opsets_of(proto).get("", 1)
    nodes = Nodes(proto.graph, version, "random", taken)
    _Rewriter(nodes, version, where).rewrite(proto.graph, draw)
    nodes.op("Add", draw, nodes.constant(1, np.int64), output=after)
    for values, name in ((proto.graph.input, draw), (proto.graph.output, after)):
        values.append(helper.make_tensor_value_info(name, TensorProto.INT64, ()))
    proto.opset_import.append(helper.make_opsetid(OWN_DOMAIN, 1))
    return True


def _draws(graph: onnx.GraphProto) -> bool:
    return any(_is_random(node) for node in all_nodes(graph))


def _is_random(node: onnx.NodeProto) -> bool:
    return node.op_type in DRAWING and not domain_of(node)


class _Rewriter:
    """Gives every operator that draws a key of its own."""

    def __init__(self, nodes: Nodes, version: int, where: str) -> None:
        self.nodes, self.version, self.where, self.count = nodes, version, where, 0

    def rewrite(self, graph: onnx.GraphProto, draw: str) -> None:
        """Rewrite a graph in which ``draw`` is the name of the number to draw by."""
        given = list(graph.node)
        del graph.node[:]
        with self.nodes.into(graph):
            for node in given:
                if _is_random(node):
                    self._drawn(node, draw)
                    continue
                for inner in filter(_draws, subgraphs(node)):
                    self.rewrite(inner, self._of_step(node, inner, draw))
                self.nodes.append(node)

    def _of_step(self, node: onnx.NodeProto, inner: onnx.GraphProto, draw: str) -> str:
        if node.op_type == "If":
            return draw
        if node.op_type == "Scan":
            raise ModelError(
                f"{self.where}: {describe(node)} draws random numbers, and does not tell its steps "
                "apart; make them an input of the model"
            )
        body = list(inner.node)
        del inner.node[:]
        with self.nodes.into(inner):
            step = self.nodes.reshape(inner.input[0].name)
            apart = self.nodes.op("Mul", draw, self.nodes.constant(_STEP, np.int64))
            own = self.nodes.op("Add", self.nodes.op("Add", apart, step), apart)
        inner.node.extend(body)
        return own

    def _drawn(self, node: onnx.NodeProto, draw: str) -> None:
        attributes = attributes_of(node)
        key = f"seed {attributes['seed']}" if "seed" in attributes else f"operator {self.count}"
        self.count += 1

        def numbers(kind: str, like: str) -> str:
            return self.nodes.op(kind, like, draw, domain=OWN_DOMAIN, key=key)

        form = DRAWING[node.op_type]
        value, own = form(self.nodes, list(node.input), attributes, numbers)
        dtype = attributes.get("dtype", own)
        if dtype is None and self.version >= _CAST_LIKE_SINCE:
            self.nodes.op("CastLike", value, node.input[0], output=node.output[0])
        else:
            self.nodes.op("Cast", value, output=node.output[0], to=dtype or _FLOAT)


#: Makes numbers of a kind, as many as a tensor has elements.
_Numbers = Callable[[str, str], str]
#: Makes what a node draws of its operands and attributes, and the type that it has by itself:
#: ``None`` for that of its operand.
_Form = Callable[[Nodes, Sequence[str], Mapping[str, Any], _Numbers], tuple[str, int | None]]


def _like(nodes: Nodes, given: Sequence[str], attributes: Mapping[str, Any]) -> str:
    """A tensor of the shape of a result, in float32."""
    if given:
        return nodes.op("Cast", given[0], to=_FLOAT)
    return nodes.op("ConstantOfShape", nodes.constant(attributes["shape"], np.int64))


def _normal(
    nodes: Nodes, given: Sequence[str], attributes: Mapping[str, Any], numbers: _Numbers
) -> tuple[str, int | None]:
    found = numbers(_NORMAL, _like(nodes, given, attributes))
    scale, mean = attributes.get("scale", 1.0), attributes.get("mean", 0.0)
    return _scaled(nodes, found, scale, mean), None if given else _FLOAT


def _uniform(
    nodes: Nodes, given: Sequence[str], attributes: Mapping[str, Any], numbers: _Numbers
) -> tuple[str, int | None]:
    found = numbers(_UNIFORM, _like(nodes, given, attributes))
    low, high = attributes.get("low", 0.0), attributes.get("high", 1.0)
    return _scaled(nodes, found, high - low, low), None if given else _FLOAT


def _scaled(nodes: Nodes, value: str, factor: float, added: float) -> str:
    scaled = nodes.op("Mul", value, nodes.constant(factor, np.float32))
    return nodes.op("Add", scaled, nodes.constant(added, np.float32))


def _bernoulli(
    nodes: Nodes, given: Sequence[str], attributes: Mapping[str, Any], numbers: _Numbers
) -> tuple[str, int | None]:
    chance = _like(nodes, given, attributes)
    return nodes.op("Less", numbers(_UNIFORM, chance), chance), None


def _multinomial(
    nodes: Nodes, given: Sequence[str], attributes: Mapping[str, Any], numbers: _Numbers
) -> tuple[str, int | None]:
    """Classes by the logarithms of their chances: the largest sum with Gumbel's numbers."""
    logits = nodes.unsqueeze(nodes.op("Cast", given[0], to=_FLOAT), 1)
    samples = nodes.constant([1, attributes.get("sample_size", 1), 1], np.int64)
    logits = nodes.op("Expand", logits, samples)
    spread = nodes.op("Neg", nodes.op("Log", numbers(_UNIFORM, logits)))
    found = nodes.op("Sub", logits, nodes.op("Log", spread))
    return nodes.op("ArgMax", found, axis=2, keepdims=0), TensorProto.INT32


#: By operators of ONNX that draw.
DRAWING: Mapping[str, _Form] = {
    "Bernoulli": _bernoulli,
    "Multinomial": _multinomial,
    "RandomNormal": _normal,
    "RandomNormalLike": _normal,
    "RandomUniform": _uniform,
    "RandomUniformLike": _uniform,
}
_KINDS = {_UNIFORM: uniform, _NORMAL: normal}


def _numbers(kind: str) -> Callable[..., relax.Expr]:
    """The converter of an operator of ours."""

    def convert(
        bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
    ) -> relax.Expr:
        like, draw = inputs
        key = key_of(attributes["key"].decode())
        return bb.emit_te(
            lambda like, draw: _KINDS[kind](like.shape, draw, key),
            *(like, draw),
            primfunc_name_hint=kind.removesuffix("Like").lower(),
        )

    return convert


CONVERTERS = {kind: _numbers(kind) for kind in _KINDS}
