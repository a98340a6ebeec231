"""Loops whose steps only the run counts, as functions that call themselves.

At level 0 such a function takes one step. At level n it calls itself at level n - 1, and then once
more if there is a next step: what is under way at once are n calls, for 2^n steps, where a
function that called itself for each next step would end with the stack. What steps write is joined
in pairs, so that a slice is copied as many times as there are levels, and not steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tvm import relax, tirx
from tvm.ir import Call, GenericConst
from tvm.relax import op

from tvm_rammer.frontend.onnx.infer import known_sizes, static_shape
from tvm_rammer.frontend.onnx.names import free, subgraphs
from tvm_rammer.frontend.onnx.run_time_sizes import as_tensor, is_shape, sized

#: Levels where nothing limits the steps.
_LEVELS = 62

_FLAG = relax.TensorType((), "bool")
_NUMBER = relax.TensorType((), "int64")


class RunTimeLoop:
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
        self.importer, self.bb, self.weights = importer, importer.bb, weights
        (self.body,) = subgraphs(node)
        self.limit, self.condition, *self.states = (*node.input, "", "")[: max(2, len(node.input))]
        count = 1 + len(self.states)
        self.state_types = [value.type for value in self.body.output[1:count]]
        self.slice_types = [value.type for value in self.body.output[count:]]
        read = dict.fromkeys([*free(self.body), *filter(None, [self.limit])])
        around = importer._nodes
        self.read = {name: self._outside(around[name]) for name in read if name in around}

    def convert(self) -> list[relax.Expr]:
        """The results of the loop: its states, and what its steps have written."""
        around = self.importer._nodes
        states = [self._outside(around[name]) for name in self.states]
        begins: Any = relax.const(np.array(True), "bool")
        if self.condition:
            begins = self._scalar(self._outside(around[self.condition]))
        begins = self.importer._bound(self._below_limit(begins, _number(0), self.read))
        arguments = [value for value in self.read.values() if self._is_passed(value)]
        found = self.bb.emit(Call(self._whole(), [*arguments, begins, *states]))
        count = len(self.state_types) + len(self.slice_types)
        return [self.bb.emit(relax.TupleGetItem(found, number)) for number in range(count)]

    def _whole(self) -> Any:
        """The function of the loop; nothing is done where there is no first step."""
        inside, passed = self._inside()
        begins, states = relax.Var("begins", _FLAG), self._state_variables()
        results = relax.TupleType([*self._types(), *self._stacked_types()])
        many = self._many()
        levels = _number(self._levels(inside))
        first = _number(0)

        def all_steps() -> relax.Expr:
            found = self.bb.emit(Call(many, [levels, *passed, first, *states]))
            return relax.Tuple(self._fields(found)[2:])

        def no_step() -> relax.Expr:
            return relax.Tuple([*states, *map(_nothing, self.slice_types)])

        def either() -> relax.Expr:
            return relax.If(begins, self._block(all_steps), self._block(no_step))

        params = [*passed, begins, *states]
        return self.bb.add_func(self._function(params, results, either), "loop")

    def _many(self) -> Any:
        """The function of some steps: whether there is a next one, its number, states, slices."""
        inside, passed = self._inside()
        level, step = relax.Var("level", _NUMBER), relax.Var("step", _NUMBER)
        states = self._state_variables()
        params = [level, *passed, step, *states]
        results = relax.TupleType([_FLAG, _NUMBER, *self._types(), *self._stacked_types()])
        # What is called before it is there has a name of its own: equal functions become one.
        own = self.bb.get_unique_name("loop_steps")
        empty = relax.Function.create_empty(params, results).with_attr("will_be", own)
        symbol = self.bb.add_func(empty, "loop_steps")

        def two_halves() -> relax.Expr:
            below = self.bb.emit(op.subtract(level, _number(1)))
            found = self.bb.emit(Call(symbol, [below, *passed, step, *states]))
            going, *rest = first = self._fields(found)

            def second_half() -> relax.Expr:
                count = 1 + len(states)
                given = [sized(self.bb, each, None) for each in rest[:count]]
                more = self._fields(self.bb.emit(Call(symbol, [below, *passed, *given])))
                pairs = zip(rest[count:], more[1 + count :], strict=True)
                return relax.Tuple([*more[: 1 + count], *(self._joined(*pair) for pair in pairs)])

            parts = [self._block(second_half), self._block(lambda: relax.Tuple(first))]
            return self.bb.emit(relax.If(going, *parts))

        def either() -> relax.Expr:
            is_last = self.bb.emit(op.equal(level, _number(0)))
            one = self._block(lambda: self._one_step(inside, step, states))
            return relax.If(is_last, one, self._block(two_halves))

        self.bb.update_func(symbol, self._function(params, results, either))
        return symbol

    def _one_step(self, inside: Mapping[str, Any], step: Any, states: Sequence[Any]) -> relax.Expr:
        number, going, *given = self.body.input
        shape = static_shape(number.type) or ()
        own = {number.name: self.bb.emit(op.reshape(step, shape)) if shape else step}
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
        after = self.bb.emit(op.add(step, _number(1)))
        more = self._below_limit(self._scalar(more), after, inside)
        count = len(states)
        slices = [self.bb.emit(op.expand_dims(each, 0)) for each in found[count:]]
        return relax.Tuple([self.importer._bound(more), after, *found[:count], *slices])

    def _below_limit(self, going: Any, step: Any, known: Mapping[str, Any]) -> Any:
        """Whether there is a next step: the loop goes on, and is not at its limit."""
        if not self.limit:
            return going
        limit = self._scalar(known[self.limit])
        return op.logical_and(going, op.less(step, limit))

    def _levels(self, inside: Mapping[str, Any]) -> int:
        limit = inside.get(self.limit)
        if not isinstance(limit, GenericConst):
            return _LEVELS
        steps = int(limit.value.numpy().item())
        return min(_LEVELS, max(steps - 1, 0).bit_length())

    def _joined(self, first: Any, second: Any) -> relax.Expr:
        parts = [sized(self.bb, each, None) for each in (first, second)]
        opset = self.importer.opset
        return self.bb.emit(self.importer._convert_operator("Concat", parts, {"axis": 0}, opset))

    def _inside(self) -> tuple[dict[str, Any], list[Any]]:
        """What is read of the graph around, in a function, and which of it are parameters."""
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

    def _state_variables(self) -> list[relax.Var]:
        names = (value.name for value in self.body.input[2:])
        return [
            relax.Var(name, relax.TensorType(_sizes(kind), _dtype(kind)))
            for name, kind in zip(names, self.state_types, strict=True)
        ]

    def _types(self) -> list[relax.TensorType]:
        return [_loose(known_sizes(kind), _dtype(kind)) for kind in self.state_types]

    def _stacked_types(self) -> list[relax.TensorType]:
        return [_loose([None, *known_sizes(kind)], _dtype(kind)) for kind in self.slice_types]

    def _fields(self, found: relax.Var) -> list[relax.Expr]:
        count = len(found.ty.fields)
        return [self.bb.emit(relax.TupleGetItem(found, number)) for number in range(count)]

    def _scalar(self, value: Any) -> relax.Expr:
        """A tensor of one element, of no axes."""
        return self.bb.emit(op.reshape(value, ())) if value.ty.ndim else value

    def _block(self, make: Callable[[], relax.Expr]) -> relax.SeqExpr:
        """What is computed in a branch, or in a function."""
        self.bb._begin_binding_block()
        try:
            result = make()
        finally:
            block = self.bb._end_block()
        return relax.SeqExpr([block], result)

    def _function(
        self, params: Sequence[Any], results: Any, make: Callable[[], relax.Expr]
    ) -> relax.Function:
        self.bb.begin_scope(list(params))
        try:
            body = self._block(lambda: self.bb.emit(make()))
        finally:
            self.bb.end_scope()
        return relax.Function(list(params), body, results)


def _number(value: int) -> relax.Expr:
    return relax.const(np.array(value), "int64")


def _sizes(kind: onnx.TypeProto) -> list[Any]:
    """Of the axes of a state: numbers, and a symbol for what may change."""
    return [
        tirx.Var(f"size_{axis}", "int64") if size is None else size
        for axis, size in enumerate(known_sizes(kind))
    ]


def _dtype(kind: onnx.TypeProto) -> str:
    return str(helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))


def _loose(shape: Sequence[int | None], dtype: str) -> relax.TensorType:
    """A type that says no more than what all steps have in common."""
    known = [size for size in shape if size is not None]
    if len(known) == len(shape):
        return relax.TensorType(known, dtype)
    return relax.TensorType(dtype=dtype, ndim=len(shape))


def _nothing(kind: onnx.TypeProto) -> relax.Expr:
    """What no steps have written."""
    shape = [0, *(size or 0 for size in known_sizes(kind))]
    return relax.const(np.empty(shape, _dtype(kind)), _dtype(kind))


def _renewed(ty: relax.TensorType, symbols: dict[Any, Any]) -> relax.TensorType:
    """A type of a parameter, with symbols of the function's own."""
    sizes = [
        size if isinstance(size, tirx.IntImm) else symbols.setdefault(size, _like(size))
        for size in ty.shape.values
    ]
    return relax.TensorType(sizes, ty.dtype)


def _like(size: Any) -> tirx.Var:
    return tirx.Var(getattr(size, "name", "size"), "int64")
