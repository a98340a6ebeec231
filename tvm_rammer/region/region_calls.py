"""From a region function to calls of PrimFuncs on numbered buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm.relax.analysis import has_reshape_pattern

from tvm_rammer.errors import ModelError
from tvm_rammer.region.eligibility import result_types
from tvm_rammer.relax_util import type_shape
from tvm_rammer.rprogram import Buffer


@dataclass(frozen=True)
class TensorCall:
    """A call of a PrimFunc.

    ``operands`` are what it reads, numbers of buffers or constants, and ``results`` the buffers
    that it writes, together in the order of its parameters.
    """

    name: str
    func: tirx.PrimFunc
    operands: tuple[int | GenericConst, ...]
    results: tuple[int, ...]

    @property
    def arguments(self) -> tuple[int | GenericConst, ...]:
        """Operands and results."""
        return (*self.operands, *self.results)

    def shape(self, position: int) -> tuple[int, ...]:
        """The shape that the PrimFunc gives to an argument."""
        return tuple(int(extent) for extent in self.func.params[position].shape)


@dataclass(frozen=True)
class RegionCalls:
    """The calls of a region in order, and the buffers of everything but constants."""

    buffers: tuple[Buffer, ...]
    calls: tuple[TensorCall, ...]


def region_calls(func: relax.Function, mod: tvm.IRModule) -> RegionCalls:
    """The calls of a region function; copies and views have become the buffers they stand for.

    Parameters
    ----------
    func : relax.Function
        A region function: call_tirs on its parameters, constants and each other.
    mod : IRModule
        Where the PrimFuncs are.
    """
    reader = _Reader(mod, _returned(func))
    for index, param in enumerate(func.params):
        reader.places[param] = reader.add(param.name, param.ty, "input", index)
    for binding in func.body.blocks[0].bindings:
        reader.visit(binding)
    return RegionCalls(tuple(reader.buffers), tuple(reader.calls))


def _returned(func: relax.Function) -> dict[Any, int]:
    """Which output every returned variable is, looked up through plain copies.

    An item of a tuple stands under the tuple's variable and the item's number.
    """
    result = func.body.body
    variables = list(result.fields) if isinstance(result, relax.Tuple) else [result]
    outputs: dict[Any, int] = {variable: index for index, variable in enumerate(variables)}
    for binding in reversed(func.body.blocks[0].bindings):
        value = binding.value
        if binding.var in outputs and isinstance(value, relax.Var):
            outputs[value] = outputs.pop(binding.var)
        elif binding.var in outputs and isinstance(value, relax.TupleGetItem):
            outputs[value.tuple_value, int(value.index)] = outputs.pop(binding.var)
    return outputs


@dataclass
class _Reader:
    mod: tvm.IRModule
    returned: Mapping[Any, int]
    buffers: list[Buffer] = field(default_factory=list)
    calls: list[TensorCall] = field(default_factory=list)
    #: The buffer of a variable, or the buffers of a tuple.
    places: dict[Any, Any] = field(default_factory=dict)

    def add(self, name: str, ty: Any, space: Any, index: int = 0) -> int:
        shape = type_shape(ty)
        if shape is None:
            raise ModelError(
                f"{name}: its shape is not known at compile time; it cannot be planned"
            )
        self.buffers.append(Buffer(name, shape, str(ty.dtype), space, index))
        return len(self.buffers) - 1

    def visit(self, binding: Any) -> None:
        value, places = binding.value, self.places
        if isinstance(value, relax.Var):
            places[binding.var] = places[value]
        elif isinstance(value, relax.TupleGetItem):
            places[binding.var] = places[value.tuple_value][value.index]
        elif isinstance(value, relax.Tuple):
            places[binding.var] = [places[item] for item in value.fields]
        elif self._is_view(value) and binding.var not in self.returned:
            places[binding.var] = places[value.args[1].fields[0]]
        else:
            self._call(binding.var, value)

    def _is_view(self, call: Any) -> bool:
        """Whether a call only gives the same bytes another shape."""
        func = self.mod[call.args[0]]
        (source,) = call.args[1].fields[:1] or [None]
        return (
            len(call.args[1].fields) == 1
            and isinstance(source, relax.Var)
            and has_reshape_pattern(func)
        )

    def _call(self, variable: Any, call: Any) -> None:
        symbol = call.args[0]
        operands = tuple(
            argument if isinstance(argument, GenericConst) else int(self.places[argument])
            for argument in call.args[1].fields
        )
        results = self._results(variable, call)
        self.calls.append(TensorCall(symbol.name_hint, self.mod[symbol], operands, tuple(results)))

    def _results(self, variable: Any, call: Any) -> list[int]:
        types = result_types(call)
        if len(types) == 1 and not isinstance(variable.ty, relax.TupleType):
            place = self._result(variable.name, types[0], self.returned.get(variable))
            self.places[variable] = place
            return [place]
        places = [
            self._result(f"{variable.name}.{k}", ty, self.returned.get((variable, k)))
            for k, ty in enumerate(types)
        ]
        self.places[variable] = places
        return places

    def _result(self, name: str, ty: Any, output: int | None) -> int:
        """The buffer of a result: of the region's output, if it is one, or in the arena."""
        return self.add(name, ty, *(("arena", 0) if output is None else ("output", output)))
