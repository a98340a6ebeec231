"""From a region function to the operator graph that policies schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_rammer.kernel.replacement import REPLACED, replaced_parameter
from tvm_rammer.kernel.scheduled import Packing
from tvm_rammer.kernel.strides import with_strides
from tvm_rammer.progress import tell_each
from tvm_rammer.region.buffer_parts import Parts, strides_of
from tvm_rammer.region.concatenations import ConcatenationsInPlace
from tvm_rammer.region.kernel_library import KernelLibrary
from tvm_rammer.region.region_calls import RegionCalls, TensorCall, region_calls
from tvm_rammer.region.slices import SlicesInPlace
from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, aligned
from tvm_rammer.tensors import as_array, empty


@dataclass(frozen=True)
class RegionGraph:
    """The operator graph of a region, and the pool that its constant buffers lie in."""

    graph: OperatorGraph
    pool: ConstantPool

    @property
    def constants(self) -> np.ndarray:
        """The bytes of the constants (one-dimensional, uint8)."""
        return self.pool.array()

    def with_all_constants(self) -> RegionGraph:
        """The same graph, once other regions have put theirs into the pool as well."""
        return replace(self, graph=replace(self.graph, constant_bytes=self.pool.nbytes))

    def with_costs(self, seconds: Mapping[str, float]) -> RegionGraph:
        """The same graph, its kernels costing so many seconds per tile (by kernel name)."""
        return replace(self, graph=self.graph.with_costs(seconds))


def unwatched(complete: bool) -> None:
    """Nobody is told of bodies."""


def region_graph(
    name: str,
    func: relax.Function,
    mod: tvm.IRModule,
    kernels: KernelLibrary,
    pool: ConstantPool,
    watch: Callable[[bool], None] = unwatched,
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
    pool : ConstantPool
        Gets the constants; another region may have put some there.
    watch : callable
        Is told whenever there may be more bodies, and whether these are all of the region.
    """
    region = _without_copies(region_calls(func, mod), kernels.backend.vector_bytes)
    region = with_marked_replacements(region)
    builder = _Builder(kernels, pool, list(region.buffers))
    for call in tell_each("choosing kernels", region.calls):
        builder.add_operator(call)
        watch(False)
    watch(True)
    graph = OperatorGraph(name, tuple(builder.buffers), tuple(builder.operators), pool.nbytes)
    return RegionGraph(graph, pool)


def _without_copies(region: RegionCalls, alignment: int) -> RegionCalls:
    """Slices and concatenations that only say where something lies; ``alignment`` in bytes."""
    parts = Parts(region, alignment)
    slices, concatenations = SlicesInPlace(parts), ConcatenationsInPlace(parts)
    calls = [some for call in region.calls for some in slices.replacement(call)]
    # The last concatenation first: what others join on the way goes there with them.
    replaced = [concatenations.replacement(call) for call in reversed(calls)]
    return RegionCalls(
        tuple(parts.buffers), tuple(call for some in reversed(replaced) for call in some)
    )


@dataclass
class ConstantPool:
    """Constants one after the other, equal ones once; they are packed when first asked for."""

    parts: list[tuple[int, np.ndarray, Packing | None]] = field(default_factory=list)
    nbytes: int = 0
    known: dict[Any, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    packed: np.ndarray | None = None

    def add(self, constant: Any, packing: Packing | None) -> tuple[int, tuple[int, ...]]:
        """Offset of a constant in the pool, and its shape there."""
        key = (constant.value, packing)
        if key not in self.known:
            value = as_array(constant.value)
            shape = packing.shape(value.shape) if packing else value.shape
            self.known[key] = self.nbytes, shape
            self.parts.append((self.nbytes, value, packing))
            self.nbytes += aligned(prod(shape) * value.itemsize)
        return self.known[key]

    def array(self) -> np.ndarray:
        """All constants as one array of bytes, which TVM can share."""
        if self.packed is None:
            self.packed = self._pack()
        return self.packed

    def _pack(self) -> np.ndarray:
        """Pack the constants, the largest first, and let go of each: others take its memory."""
        pool = empty((self.nbytes,), np.uint8)
        self.known.clear()
        self.parts.sort(key=lambda part: part[1].nbytes)
        while self.parts:
            offset, value, packing = self.parts.pop()
            shape = packing.shape(value.shape) if packing else value.shape
            end = offset + prod(shape) * value.itemsize
            pool[end : aligned(end)] = 0
            packed = pool[offset:end].view(value.dtype).reshape(shape)
            if packing:
                packing.fill(packed, value)
            else:
                packed[...] = value
        return pool


@dataclass
class _Builder:
    kernels: KernelLibrary
    pool: ConstantPool
    buffers: list[Buffer]
    operators: list[Operator] = field(default_factory=list)
    constant_buffers: dict[tuple[int, str], int] = field(default_factory=dict)
    strided: dict[Any, tirx.PrimFunc] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)

    def add_operator(self, call: TensorCall) -> None:
        """Add the operators of a call, one for each stage of its kernel."""
        constants = frozenset(k for k, a in enumerate(call.operands) if not isinstance(a, int))
        kernel = self.kernels.get(self._func(call), constants)
        packings = dict(kernel.packings)
        operands = [
            operand if isinstance(operand, int) else self._constant(operand, packings.get(k))
            for k, operand in enumerate(call.operands)
        ]
        scratch = range(len(self.buffers), len(self.buffers) + len(kernel.scratch))
        result = self.buffers[call.results[0]].name
        self.buffers += [
            Buffer(f"{result}.scratch{k}", item.shape, item.dtype, "arena")
            for k, item in enumerate(kernel.scratch)
        ]
        everything = [*operands, *call.results, *scratch]
        label = self._label(call.name)
        for number, stage in enumerate(kernel.stages):
            suffix = f".{number}" if len(kernel.stages) > 1 else ""
            self.operators.append(
                Operator(
                    label + suffix,
                    stage.candidates,
                    tuple(everything[position] for position in stage.arguments),
                )
            )

    def _func(self, call: TensorCall) -> tirx.PrimFunc:
        """The PrimFunc for where the buffers of a call are."""
        strides = {
            position: found
            for position, argument in enumerate(call.arguments)
            if isinstance(argument, int)
            if (found := strides_of(self.buffers, argument, call.shape(position))) is not None
        }
        key = (call.func, tuple(strides.items()))
        if key not in self.strided:
            self.strided[key] = with_strides(call.func, strides)
        return self.strided[key]

    def _constant(self, constant: Any, packing: Packing | None) -> int:
        offset, shape = self.pool.add(constant, packing)
        key = (offset, str(constant.ty))
        if key not in self.constant_buffers:
            dtype = str(constant.ty.dtype)
            self.constant_buffers[key] = len(self.buffers)
            self.buffers.append(Buffer(f"constant{offset}", shape, dtype, "constant", 0, offset))
        return self.constant_buffers[key]

    def _label(self, name: str) -> str:
        """A name for an operator that no other operator of the region has."""
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        return f"{name}#{count}" if count else name


def with_marked_replacements(region: RegionCalls) -> RegionCalls:
    """The same calls; PrimFuncs that replace a part of what no other call reads say so."""
    buffers = region.buffers
    uses = Counter(p for call in region.calls for p in call.operands if isinstance(p, int))
    uses.update(buffer.index for buffer in buffers if buffer.space == "part")
    made: dict[tirx.PrimFunc, tirx.PrimFunc] = {}

    def marked(call: TensorCall) -> TensorCall:
        if [buffers[result].space for result in call.results] != ["output"]:
            return call
        replaced = replaced_parameter(call.func)
        source = None if replaced is None else call.operands[replaced]
        if not isinstance(source, int) or buffers[source].space != "input" or uses[source] != 1:
            return call
        # Calls of one PrimFunc stay calls of one.
        if call.func not in made:
            made[call.func] = call.func.with_attr(REPLACED, replaced)
        return replace(call, func=made[call.func])

    return replace(region, calls=tuple(map(marked, region.calls)))
