"""From the call of a region's kernel to the interpreter: the table that it gets is the plan."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from tvm_rammer.backend.protocol import KernelCompiler
from tvm_rammer.backend.signature import ANY, RegionSignature, TensorSpec
from tvm_rammer.kernel.bodies import Body, compile_bodies, exported
from tvm_rammer.kernel.lowering.lowering_passes import lowering
from tvm_rammer.rprogram import RProgram, interpret_numeric, legal_interleavings
from tvm_rammer.rprogram.program import dtype_bytes
from tvm_rammer.rprogram.serialize import from_json, to_json

#: TVM's registry knows this one function; the number that it is called with says whose bodies.
_SYMBOL = "tvm_rammer.interpret"

_seed: ContextVar[int | None] = ContextVar("seed", default=None)
_models: list[_Model] = []


@contextmanager
def interleaving(seed: int) -> Iterator[None]:
    """Run every plan in the interleaving of a seed instead of another one each time.

    Examples
    --------
    ``with tvm_rammer.backend.interpret.interleaving(7): model.run()``
    """
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


def lowering_pipeline() -> str:
    """The name of TVM's lowering, for ``tvm.tirx.build``."""
    return lowering("tvm_rammer_interpret")


def encode(program: RProgram) -> np.ndarray:
    """A program as the words of its JSON, after the number of its bytes."""
    text = to_json(program).encode()
    words = np.frombuffer(text + bytes(-len(text) % 4), np.int32)
    return np.concatenate([np.array([len(text)], np.int32), words])


@dataclass
class _Model:
    """The bodies of a model, its regions, and the plans that were called, by their JSON."""

    bodies: Mapping[str, Body]
    regions: Mapping[str, RegionSignature]
    programs: dict[bytes, RProgram] = field(default_factory=dict)
    runs: int = 0

    def run(self, region: str, addresses: Sequence[int]) -> None:
        """Interpret the plan in the table on the tensors at some addresses."""
        signature = self.regions[region]
        count = len(signature.inputs)
        program = self._program(addresses[count + 1])
        seed = _seed.get()
        order = next(legal_interleavings(program, self.runs if seed is None else seed))
        self.runs += 1
        inputs = list(map(_array, addresses, signature.inputs))
        constants = _array(addresses[count], TensorSpec((program.constant_bytes,), "uint8"))
        results = interpret_numeric(program, order, self.bodies, inputs, constants)
        places = map(_array, addresses[count + 2 :], signature.outputs)
        for place, result in zip(places, results, strict=True):
            place[...] = result

    def _program(self, address: int) -> RProgram:
        (nbytes,) = _array(address, TensorSpec((1,), "int32"))
        text = _array(address + 4, TensorSpec((int(nbytes),), "uint8")).tobytes()
        if text not in self.programs:
            self.programs[text] = from_json(text.decode())
        return self.programs[text]


@tvm_ffi.register_global_func(_SYMBOL, override=True)
def _run(model: int, region: str, *tensors: Any) -> None:
    _models[model].run(region, [tensor.value or 0 for tensor in tensors])


class Compiler(KernelCompiler):
    """Compiles bodies as functions on arrays, and entries that call the interpreter.

    What it made is kept for the rest of the process, as TVM's modules cannot hold it.
    """

    def __init__(self, target: tvm.target.Target) -> None:
        self.target = target

    def module(
        self, bodies: Mapping[str, tirx.PrimFunc], regions: Sequence[RegionSignature]
    ) -> tvm.runtime.Module:
        """What exports an entry for each region."""
        pipeline = lowering_pipeline()
        functions = compile_bodies(bodies, self.target, pipeline)
        _models.append(_Model(functions, {region.name: region for region in regions}))
        entries = {region.name: _entry(len(_models) - 1, region) for region in regions}
        return tvm.tirx.build(tvm.IRModule(entries), self.target, pipeline=pipeline)


def _entry(model: int, region: RegionSignature) -> tirx.PrimFunc:
    """A packed function that hands the addresses of its tensors on."""
    buffers = [
        tirx.decl_buffer(
            tuple(tirx.Var(f"extent{k}", "int64") if n == ANY else n for n in spec.shape),
            spec.dtype,
            name=f"tensor{k}",
            data_alignment=1,
        )
        for k, spec in enumerate(region.arguments())
    ]
    call = tirx.call_packed(_SYMBOL, model, region.name, *(each.data for each in buffers))
    return exported(region.name, buffers, tirx.Evaluate(call))


def _array(address: int, spec: TensorSpec) -> np.ndarray:
    """The memory of a tensor, in place."""
    nbytes = prod(spec.shape) * dtype_bytes(spec.dtype)
    if not nbytes:
        return np.empty(spec.shape, spec.dtype)
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.ctypeslib.as_array(memory).view(spec.dtype).reshape(spec.shape)
