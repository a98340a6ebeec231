"""TVM's importer of ONNX graphs, with the operators of a branch inside of the branch.

TVM 0.27 puts most of what the branches of an ``If`` compute in front of it: both are always run.
It has no operators on what may be of one shape or of another.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import onnx
import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.infer import opsets_of, static_shape
from tvm_rammer.frontend.onnx.names import (
    attributes_of,
    describe,
    describe_type,
    free,
    reads,
    subgraphs,
)
from tvm_rammer.frontend.onnx.onnx_converters import CONVERTERS
from tvm_rammer.frontend.onnx.open_sizes import OPEN_CONVERTERS
from tvm_rammer.frontend.onnx.run_time_loops import RunTimeLoop
from tvm_rammer.frontend.onnx.run_time_sizes import as_tensor, operands, sized
from tvm_rammer.frontend.onnx.size_values import Elements, SizeValues, as_value


def import_graph(
    model: onnx.ModelProto, shapes: dict[str, tuple[Any, ...]], weights: Collection[str] = ()
) -> tvm.IRModule:
    """The Relax module of a model whose inputs have the given shapes.

    Those that are ``weights`` are read by the functions of loops as they are.

    What onnx.checker has to say about the model becomes a warning.
    """
    try:
        onnx.checker.check_model(model)
    except Exception as error:
        warnings.warn(str(error), stacklevel=2)
    importer = _Importer(shapes, weights)
    return importer.from_onnx(model.graph, opsets_of(model).get("", 1))


def refuse_unequal_branches(graph: onnx.GraphProto, where: str) -> None:
    """Raise a ModelError for an ``If`` whose results vary in shape and are computed with."""
    read = {name for node in graph.node if node.op_type != "Identity" for name in reads(node)}
    for node in graph.node:
        for inner in subgraphs(node):
            refuse_unequal_branches(inner, where)
        if node.op_type != "If":
            continue
        for name, *results in zip(
            node.output, *(each.output for each in subgraphs(node)), strict=True
        ):
            known = all(static_shape(result.type) is not None for result in results)
            types = dict.fromkeys(describe_type(result.type) for result in results)
            if known and len(types) > 1 and name in read:
                raise ModelError(
                    f"{where}: {describe(node)} gives {name!r} as {' or as '.join(types)}, which "
                    "TVM cannot compute with; export a model whose branches agree, or fix the "
                    f"condition {node.input[0]!r}"
                )


class _Importer(ONNXGraphImporter):
    _nodes: dict[str, Any]

    def __init__(self, shapes: dict[str, tuple[Any, ...]], weights: Collection[str]) -> None:
        super().__init__(shapes, "float32")
        self.weights, self.sizes = weights, SizeValues()
        for size in {size for shape in shapes.values() for size in shape}:
            if isinstance(size, tirx.Var):
                self.sizes.is_open(size)

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        own = CONVERTERS.keys() | {"Loop"}
        others = (node for node in graph.node if node.op_type not in own)
        super()._check_for_unsupported_ops(onnx.GraphProto(node=others))

    def _convert_operator(
        self, op_name: str, inputs: list[Any], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        own = CONVERTERS.get(op_name)
        if own is not None and (found := own(self.bb, inputs, attrs)) is not None:
            return self.bb.normalize(found)
        return super()._convert_operator(op_name, inputs, attrs, opset)

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        """Convert the nodes of a graph; every size of a result is known or has a symbol."""
        types = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        for node in graph.node:
            found = self._elements(node)
            known = None if found is None else as_value(*found)
            if known is not None:
                self._nodes[node.output[0]] = known
                continue
            self._construct_node(node)
            for name in self._nodes.keys() & set(node.output):
                self._nodes[name] = sized(self.bb, self._nodes[name], types.get(name))
            if found is not None:
                (name,) = node.output
                self._nodes[name] = self.bb.emit(self._nodes[name])
                self.sizes.note(self._nodes[name], found[0])
        for value in graph.output:
            self._nodes[value.name] = as_tensor(self.bb, self._nodes[value.name])

    def _elements(self, node: onnx.NodeProto) -> tuple[Elements, str] | None:
        """What sizes and constants decide of a node's result."""
        values = [self._nodes.get(name) if name else None for name in node.input]
        return self.sizes.result(node, values)

    def _construct_node(self, node: onnx.NodeProto) -> None:
        if node.op_type == "Loop":
            found = RunTimeLoop(self, node, self._weights()).results()
            named = zip(node.output, found, strict=False)
            self._nodes |= {name: value for name, value in named if name}
            return
        values = [self._nodes[name] if name else None for name in node.input]
        convert = OPEN_CONVERTERS.get(node.op_type)
        if convert is not None:
            made = convert(self.bb, self.sizes, values, attributes_of(node))
            if made is not None:
                self._nodes[node.output[0]] = self.bb.emit(made)
                return
        given = operands(self.bb, node.op_type, values)
        # Each operand has a name of its own: one value may be wanted as a shape and as a tensor.
        own = onnx.NodeProto()
        own.CopyFrom(node)
        del own.input[:]
        for number, value in enumerate(given):
            own.input.append("" if value is None else f"{node.name}/operand {number}")
        operand_of = {name: value for name, value in zip(own.input, given, strict=True) if name}
        self._nodes |= operand_of
        super()._construct_nodes(SimpleNamespace(node=[own]))
        for name in operand_of:
            del self._nodes[name]

    def _convert_subgraph(self, bb: relax.BlockBuilder, graph: onnx.GraphProto) -> relax.SeqExpr:
        around = self._nodes
        # The importer leaves results unbound until they are read: then it would be in the branch.
        around |= {name: self._bound(around[name]) for name in free(graph) if name in around}
        self._nodes = dict(around)
        bb._begin_binding_block()
        try:
            self._parse_graph_initializers(graph)
            self._construct_nodes(graph)
            results = [self._bound(self._nodes[value.name]) for value in graph.output]
        finally:
            self._nodes = around
            block = bb._end_block()
        return relax.SeqExpr([block], results[0] if len(results) == 1 else relax.Tuple(results))

    def _weights(self) -> list[relax.Var]:
        return [self._inputs[name] for name in self.weights]

    def _bound(self, value: Any) -> Any:
        """A variable, or what needs none."""
        bound = isinstance(value, relax.Var | GenericConst | relax.ShapeExpr | relax.Tuple)
        return value if bound or not isinstance(value, relax.Expr) else self.bb.emit(value)
