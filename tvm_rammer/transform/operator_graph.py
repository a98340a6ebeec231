"""From a region function to the operator graph that policies schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.analysis import has_reshape_pattern

from tvm_rammer.errors import ModelError
from tvm_rammer.kernel.library import KernelLibrary
from tvm_rammer.kernel.scheduled import Packing
from tvm_rammer.progress import tell_each
from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, aligned
from tvm_rammer.transform.eligibility import result_types
from tvm_rammer.transform.relax_util import type_shape


@dataclass(frozen=True)
class RegionGraph:
    """The operator graph of a region, with the bytes of its constants.

    ``constants`` is the pool that ``graph``'s constant buffers lie in (one-dimensional, uint8).
    """

    graph: OperatorGraph
    constants: np.ndarray

    def with_costs(self, seconds: Mapping[str, float]) -> RegionGraph:
        """The same graph, its kernels costing so many seconds per tile (by kernel name)."""
        operators = tuple(
            replace(
                op,
                candidates=tuple(
                    replace(kernel, tile_time=seconds.get(kernel.name, kernel.tile_time))
                    for kernel in op.candidates
                ),
            )
            for op in self.graph.operators
        )
        return replace(self, graph=replace(self.graph, operators=operators))


def region_graph(
    name: str, func: relax.Function, mod: tvm.IRModule, kernels: KernelLibrary
) -> RegionGraph:
    """Build the operator graph of a region function.

    Parameters
    ----------
    name : str
        Of the region.
    func : relax.Function
        A region function: call_tirs on its parameters, constants and each other.
    mod : IRModule
        Where the PrimFuncs are.
    kernels : KernelLibrary
        Makes and remembers the rKernels of every distinct PrimFunc.
    """
    builder = _Builder(name, mod, kernels)
    for index, param in enumerate(func.params):
        builder.bind(param, builder.add(_buffer(param.name, param.ty, "input", index)))
    returned = _returned(func)
    for binding in tell_each("choosing kernels", list(func.body.blocks[0].bindings)):
        builder.visit(binding, returned)
    graph = OperatorGraph(
        name, tuple(builder.buffers), tuple(builder.operators), builder.pool.nbytes
    )
    return RegionGraph(graph, builder.pool.array())


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


def _buffer(name: str, ty: Any, space: Any, index: int = 0) -> Buffer:
    shape = type_shape(ty)
    if shape is None:
        raise ModelError(f"{name}: its shape is not known at compile time; it cannot be planned")
    return Buffer(name, shape, str(ty.dtype), space, index)


@dataclass
class ConstantPool:
    """Constants one after the other, equal ones once."""

    parts: list[np.ndarray] = field(default_factory=list)
    nbytes: int = 0
    known: dict[Any, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def add(self, constant: Any, packing: Packing | None) -> tuple[int, tuple[int, ...]]:
        """Offset of a constant in the pool, and its shape there."""
        key = (constant.value, packing)
        if key not in self.known:
            value = constant.value.numpy()
            packed = packing(value) if packing else np.ascontiguousarray(value)
            flat = packed.reshape(-1).view(np.uint8)
            self.known[key] = self.nbytes, tuple(packed.shape)
            self.parts.append(np.pad(flat, (0, aligned(flat.size) - flat.size)))
            self.nbytes += aligned(flat.size)
        return self.known[key]

    def array(self) -> np.ndarray:
        """All constants as one array of bytes."""
        return np.concatenate(self.parts) if self.parts else np.zeros(0, np.uint8)


@dataclass
class _Builder:
    name: str
    mod: tvm.IRModule
    kernels: KernelLibrary
    buffers: list[Buffer] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    pool: ConstantPool = field(default_factory=ConstantPool)
    places: dict[Any, Any] = field(default_factory=dict)
    constant_buffers: dict[tuple[int, str], int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)

    def add(self, buffer: Buffer) -> int:
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def bind(self, variable: Any, place: Any) -> None:
        """Remember the buffer of a variable, or the buffers of a tuple."""
        self.places[variable] = place

    def visit(self, binding: Any, returned: Mapping[Any, int]) -> None:
        value = binding.value
        if isinstance(value, relax.Var):
            self.bind(binding.var, self.places[value])
        elif isinstance(value, relax.TupleGetItem):
            self.bind(binding.var, self.places[value.tuple_value][value.index])
        elif isinstance(value, relax.Tuple):
            self.bind(binding.var, [self.places[item] for item in value.fields])
        elif self._is_view(value) and binding.var not in returned:
            self.bind(binding.var, self._source(value))
        else:
            self._operator(binding, value, returned)

    def _is_view(self, call: Any) -> bool:
        """Whether a call only gives the same bytes another shape."""
        func = self.mod[call.args[0]]
        (source,) = call.args[1].fields[:1] or [None]
        return (
            len(call.args[1].fields) == 1
            and isinstance(source, relax.Var)
            and has_reshape_pattern(func)
        )

    def _source(self, call: Any) -> int:
        return int(self.places[call.args[1].fields[0]])

    def _operator(self, binding: Any, call: Any, returned: Mapping[Any, int]) -> None:
        symbol, arguments = call.args[0], list(call.args[1].fields)
        constants = frozenset(k for k, a in enumerate(arguments) if isinstance(a, GenericConst))
        kernel = self.kernels.get(self.mod[symbol], constants)
        packings = dict(kernel.packings)
        operands = [
            self._constant(argument, packings.get(k))
            if isinstance(argument, GenericConst)
            else int(self.places[argument])
            for k, argument in enumerate(arguments)
        ]
        results = self._results(binding, call, returned)
        scratch = [
            self.add(Buffer(f"{binding.var.name}.scratch{k}", item.shape, item.dtype, "arena"))
            for k, item in enumerate(kernel.scratch)
        ]
        everything = [*operands, *results, *scratch]
        label = self._label(symbol.name_hint)
        for number, stage in enumerate(kernel.stages):
            suffix = f".{number}" if len(kernel.stages) > 1 else ""
            self.operators.append(
                Operator(
                    label + suffix,
                    stage.candidates,
                    tuple(everything[position] for position in stage.arguments),
                )
            )

    def _results(self, binding: Any, call: Any, returned: Mapping[Any, int]) -> list[int]:
        types = result_types(call)
        variable = binding.var
        if len(types) == 1 and not isinstance(variable.ty, relax.TupleType):
            place = self._result(variable.name, types[0], returned.get(variable))
            self.bind(variable, place)
            return [place]
        places = [
            self._result(f"{variable.name}.{k}", ty, returned.get((variable, k)))
            for k, ty in enumerate(types)
        ]
        self.bind(variable, places)
        return places

    def _result(self, name: str, ty: Any, output: int | None) -> int:
        """The buffer of a result: of the region's output, if it is one, or in the arena."""
        space, index = ("arena", 0) if output is None else ("output", output)
        return self.add(_buffer(name, ty, space, index))

    def _constant(self, constant: Any, packing: Packing | None) -> int:
        offset, shape = self.pool.add(constant, packing)
        key = (offset, str(constant.ty))
        if key not in self.constant_buffers:
            dtype = str(constant.ty.dtype)
            self.constant_buffers[key] = self.add(
                Buffer(f"constant{offset}", shape, dtype, "constant", 0, offset)
            )
        return self.constant_buffers[key]

    def _label(self, name: str) -> str:
        """A name for an operator that no other operator of the region has."""
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        return f"{name}#{count}" if count else name
