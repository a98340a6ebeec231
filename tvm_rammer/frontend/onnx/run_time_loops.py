"""``Loop`` of ONNX, where only the run counts the steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm.relax import op

from tvm_rammer.frontend.onnx.infer import known_sizes, static_shape
from tvm_rammer.frontend.onnx.names import free, subgraphs
from tvm_rammer.frontend.onnx.run_time_sizes import as_tensor, is_shape, sized
from tvm_rammer.frontend.run_time_steps import LEVELS, RunTimeSteps, loose, number


class RunTimeLoop(RunTimeSteps):
    """One ``Loop`` whose body is folded, so that it says what its states and results are.

    Parameters
    ----------
    importer : ONNXGraphImporter
        Converts the nodes of the body.
    node : onnx.NodeProto
    weights : collection of relax.Var
        What will be constants: functions read them as they are.
    """

    def __init__(self, importer: Any, node: onnx.NodeProto, weights: Collection[Any]) -> None:
        super().__init__(importer.bb)
        self.importer, self.weights = importer, weights
        (self.body,) = subgraphs(node)
        self.limit, self.condition, *self.states = (*node.input, "", "")[: max(2, len(node.input))]
        count = 1 + len(self.states)
        self.state_kinds = [value.type for value in self.body.output[1:count]]
        self.slice_kinds = [value.type for value in self.body.output[count:]]
        read = dict.fromkeys([*free(self.body), *filter(None, [self.limit])])
        around = importer._nodes
        self.read = {name: self._outside(around[name]) for name in read if name in around}

    def results(self) -> list[relax.Expr]:
        """The results of the loop: its states, and what its steps have written."""
        around = self.importer._nodes
        states = [self._outside(around[name]) for name in self.states]
        begins: Any = relax.const(np.array(True), "bool")
        if self.condition:
            begins = self._scalar(self._outside(around[self.condition]))
        begins = self.importer._bound(self._below_limit(begins, number(0), self.read))
        passed = [value for value in self.read.values() if self._is_passed(value)]
        return self.convert(passed, begins, states)

    def one_step(
        self, inside: Mapping[str, Any], step: Any, after: Any, states: Sequence[Any]
    ) -> list[Any]:
        counted, going, *given = self.body.input
        shape = static_shape(counted.type) or ()
        own = {counted.name: self.bb.emit(op.reshape(step, shape)) if shape else step}
        own[going.name] = relax.const(np.full(static_shape(going.type) or (), True), "bool")
        own |= {value.name: state for value, state in zip(given, states, strict=True)}
        around = self.importer._nodes
        self.importer._nodes = {**inside, **own}
        try:
            self.importer._parse_graph_initializers(self.body)
            self.importer._construct_nodes(self.body)
            nodes = self.importer._nodes
            more, *found = (self.importer._bound(nodes[each.name]) for each in self.body.output)
        finally:
            self.importer._nodes = around
        more = self._below_limit(self._scalar(more), after, inside)
        count = len(states)
        slices = [self.bb.emit(op.expand_dims(each, 0)) for each in found[count:]]
        return [self.importer._bound(more), *found[:count], *slices]

    def _below_limit(self, going: Any, step: Any, known: Mapping[str, Any]) -> Any:
        """Whether there is a next step: the loop goes on, and is not at its limit."""
        if not self.limit:
            return going
        limit = self._scalar(known[self.limit])
        return op.logical_and(going, op.less(step, limit))

    def levels(self, inside: Mapping[str, Any]) -> int:
        limit = inside.get(self.limit)
        if not isinstance(limit, GenericConst):
            return LEVELS
        steps = int(limit.value.numpy().item())
        return min(LEVELS, max(steps - 1, 0).bit_length())

    def joined(self, place: int, first: Any, second: Any) -> relax.Expr:
        parts = [self.sized(each) for each in (first, second)]
        opset = self.importer.opset
        return self.bb.emit(self.importer._convert_operator("Concat", parts, {"axis": 0}, opset))

    def sized(self, value: Any) -> Any:
        return sized(self.bb, value, None)

    def inside(self) -> tuple[dict[str, Any], list[Any]]:
        symbols: dict[Any, Any] = {}
        inside, passed = dict(self.read), []
        for name, value in self.read.items():
            if self._is_passed(value):
                inside[name] = relax.Var(value.name, _renewed(value.ty, symbols))
                passed.append(inside[name])
        return inside, passed

    def _is_passed(self, value: Any) -> bool:
        return isinstance(value, relax.Var) and value not in self.weights

    def _outside(self, value: Any) -> Any:
        """A tensor that is read in functions."""
        if is_shape(value):
            value = as_tensor(self.bb, value)
        value = sized(self.bb, self.importer._bound(value), None)
        if not isinstance(value.ty, relax.TensorType):
            raise ValueError("a loop whose steps only the run counts cannot read a sequence")
        return value

    def state_variables(self) -> list[relax.Var]:
        names = (value.name for value in self.body.input[2:])
        return [
            relax.Var(name, relax.TensorType(_sizes(kind), _dtype(kind)))
            for name, kind in zip(names, self.state_kinds, strict=True)
        ]

    def state_types(self) -> list[Any]:
        return [loose(known_sizes(kind), _dtype(kind)) for kind in self.state_kinds]

    def slices(self) -> list[tuple[Sequence[int | None], str]]:
        return [(known_sizes(kind), _dtype(kind)) for kind in self.slice_kinds]

    def _scalar(self, value: Any) -> relax.Expr:
        """A tensor of one element, of no axes."""
        return self.bb.emit(op.reshape(value, ())) if value.ty.ndim else value


def _sizes(kind: onnx.TypeProto) -> list[Any]:
    """Of the axes of a state: numbers, and a symbol for what may change."""
    return [
        tirx.Var(f"size_{axis}", "int64") if size is None else size
        for axis, size in enumerate(known_sizes(kind))
    ]


def _dtype(kind: onnx.TypeProto) -> str:
    return str(helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))


def _renewed(ty: relax.TensorType, symbols: dict[Any, Any]) -> relax.TensorType:
    """A type of a parameter, with symbols of the function's own."""
    sizes = [
        size if isinstance(size, tirx.IntImm) else symbols.setdefault(size, _like(size))
        for size in ty.shape.values
    ]
    return relax.TensorType(sizes, ty.dtype)


def _like(size: Any) -> tirx.Var:
    return tirx.Var(getattr(size, "name", "size"), "int64")
