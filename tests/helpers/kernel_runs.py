"""Runs PrimFuncs as their rKernels: tile by tile, in a random order, in guarded memory.

What a kernel must not depend on is made hostile: any candidate may run a stage, tiles run in random
ranges and a random order, results and scratch start as NaN, the bytes around every buffer must stay
what they were, and the pages around them cannot be read: what does ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, pairwise
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from aarch64_emulation import emulated_bodies
from tvm import relax, tirx
from tvm.ir import Call, GenericConst

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.kernel.blocks import is_choice
from tvm_rammer.kernel.bodies import compile_bodies
from tvm_rammer.machine import VDevice
from tvm_rammer.region.kernel_library import KernelLibrary, OperatorKernel, Tuned, untuned
from tvm_rammer.rprogram import ALIGNMENT

TARGET = resolve_target(None)
HOST = vdevice_for(TARGET)
#: x86 processors with vectors of so many bytes: one with wider ones runs their code, too.
_NARROWER = {32: "core-avx2", 16: "nehalem"}


#: An AArch64 processor, whose code is emulated.
_ARM_TARGET = resolve_target(
    {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1", "num-cores": 2}
)
ARM = vdevice_for(_ARM_TARGET)


def target_of(vdevice: VDevice) -> tvm.target.Target:
    """The code that a device has, if this machine can run or emulate it: else this machine's."""
    if vdevice == ARM:
        return _ARM_TARGET
    narrower = platform.machine() == "x86_64" and vdevice.vector_bytes < HOST.vector_bytes
    if not narrower:
        return TARGET
    return resolve_target({"kind": "llvm", "mcpu": _NARROWER[vdevice.vector_bytes]})


def _of_vectors(vector_bytes: int, vector_registers: int) -> VDevice:
    """This machine with such vectors, and with no instructions that others have."""
    vdevice = replace(HOST, vector_bytes=vector_bytes, vector_registers=vector_registers)
    return replace(vdevice, features=vdevice_for(target_of(vdevice)).features)


#: AVX-512, AVX and SSE: tiles of every width, whatever this machine has; and NEON.
VDEVICES = (*(_of_vectors(*each) for each in ((64, 32), (32, 16), (16, 16))), ARM)

#: As floating-point numbers of any width these are NaN: what reads them shows.
_GUARD_BYTE = 0xFF
#: Buffers lie at the beginning and at the end of their pages, by turns.
_TURN = count()


@dataclass(frozen=True)
class Run:
    """What a PrimFunc computed, and the rKernels that did."""

    outputs: list[np.ndarray]
    kernel: OperatorKernel

    @property
    def origin(self) -> str:
        return self.kernel.scheduled.origin

    @property
    def tiles(self) -> list[int]:
        return [stage.kernel.num_tiles for stage in self.kernel.stages]


def run_prim_func(
    func: tirx.PrimFunc,
    inputs: Sequence[np.ndarray],
    constants: Iterable[int] = (),
    vdevice: Any = HOST,
    seed: int = 0,
    tuned: Tuned = untuned,
    in_place: bool = False,
) -> Run:
    """Schedule, split and compile a PrimFunc, run it on ``inputs`` and return its results.

    Tensors lie in memory with the strides that the PrimFunc declares; ``in_place``, what may lie in
    the memory of an input does.
    """
    library, target = KernelLibrary(vdevice, tuned=tuned), target_of(vdevice)
    with target:
        kernel = library.get(func, frozenset(constants))
    made = emulated_bodies if vdevice == ARM else compile_bodies
    bodies = made(library.bodies, target, lowering_pipeline())
    packings = dict(kernel.packings)
    given = [packings[k](a) if k in packings else a for k, a in enumerate(inputs)]
    strides = [[] if k in packings else _strides(p) for k, p in enumerate(func.params)]
    results = [(_shape(p), str(p.dtype), _strides(p)) for p in func.params[len(inputs) :]]
    scratch = [(item.shape, item.dtype) for item in kernel.scratch]
    memory = [
        *(_Guarded.holding(array, steps) for array, steps in zip(given, strides, strict=False)),
        *(_Guarded.empty(*spec) for spec in [*results, *scratch]),
    ]
    changed: int | None = None
    if in_place:
        assert kernel.scheduled.in_place is not None
        changed, result = kernel.scheduled.in_place
        memory[result] = memory[changed]
    choice = random.Random(seed)
    for stage in kernel.stages:
        arrays = [memory[number].array for number in stage.arguments]
        candidate = choice.choice(stage.candidates)
        for start, stop in _ranges(candidate.num_tiles, choice):
            bodies[candidate.name](start, stop, arrays)
    for number, (place, array) in enumerate(zip(memory, given, strict=False)):
        if number == changed:
            continue
        np.testing.assert_array_equal(
            place.array, array, err_msg=f"a kernel wrote to input {number}"
        )
    assert all(place.intact for place in memory), "a kernel wrote outside of its buffers"
    return Run([m.array for m in memory[len(given) : len(func.params)]], kernel)


def run_relax(
    build: Callable[..., Any], *inputs: np.ndarray, vdevice: Any = HOST, seed: int = 0
) -> tuple[list[np.ndarray], list[str]]:
    """Legalize and fuse a Relax expression, run its PrimFuncs.

    Returns the results and which rule made the kernel of each PrimFunc.
    """
    return run_module(legalize(build, *inputs), *inputs, vdevice=vdevice, seed=seed)


def run_module(
    mod: tvm.IRModule, *inputs: np.ndarray, vdevice: Any = HOST, seed: int = 0
) -> tuple[list[np.ndarray], list[str]]:
    """Run the PrimFuncs that ``main`` calls; what it returns is as for :func:`run_relax`."""
    values: dict[Any, Any] = dict(zip(mod["main"].params, inputs, strict=True))
    origins: list[str] = []

    def value_of(expression: Any) -> Any:
        if isinstance(expression, GenericConst):
            return expression.value.numpy()
        if isinstance(expression, relax.Tuple):
            return [value_of(item) for item in expression.fields]
        if isinstance(expression, relax.TupleGetItem):
            return value_of(expression.tuple_value)[expression.index]
        if isinstance(expression, relax.Var):
            return values[expression]
        assert expression.op.name == "relax.call_tir", expression
        arguments = list(expression.args[1].fields)
        constants = [k for k, a in enumerate(arguments) if isinstance(a, GenericConst)]
        func = mod[expression.args[0]]
        run = run_prim_func(func, [value_of(a) for a in arguments], constants, vdevice, seed)
        origins.append(run.origin)
        return run.outputs if len(run.outputs) > 1 else run.outputs[0]

    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            values[binding.var] = value_of(binding.value)
    result = value_of(mod["main"].body.body)
    return result if isinstance(result, list) else [result], origins


def legalize(build: Callable[..., Any], *inputs: np.ndarray) -> tvm.IRModule:
    """A Relax function of one or several results as call_tirs of fused PrimFuncs."""
    passes = [
        relax.backend.DispatchSortScan(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    with TARGET:
        return tvm.transform.Sequential(passes)(relax_module(build, *inputs))


def relax_module(build: Callable[..., Any], *inputs: np.ndarray) -> tvm.IRModule:
    """A Relax function of one or several results."""
    params = [
        relax.Var(f"x{k}", relax.TensorType(array.shape, str(array.dtype)))
        for k, array in enumerate(inputs)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            results = build(*params)
            several = isinstance(results, list)
            outputs = [builder.emit_output(r) for r in (results if several else [results])]
        builder.emit_func_output(outputs if several else outputs[0])
    return builder.get()


def legalized_func(build: Callable[..., Any], *inputs: np.ndarray) -> tirx.PrimFunc:
    """The one PrimFunc that a Relax expression becomes."""
    funcs = [f for _, f in legalize(build, *inputs).functions_items() if _is_prim_func(f)]
    assert len(funcs) == 1, funcs
    return funcs[0]


def padded_with(func: tirx.PrimFunc, value: float) -> tirx.PrimFunc:
    """A PrimFunc that pads with something else."""

    def pad(call: Any) -> Any:
        if not is_choice(call):
            return call
        return tirx.if_then_else(*call.args[:2], tirx.const(value, str(call.ty)))

    return func.with_body(tvm_ffi.structural_map(func.body, (Call, pad)))


def constant(array: np.ndarray) -> Any:
    """An array as a Relax constant."""
    return relax.const(array, str(array.dtype))


@cache
def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Random numbers, the same ones for the same arguments."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0 if dtype.startswith("u") else -7, 8, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@dataclass(frozen=True)
class _Guarded:
    """A buffer in the middle of bytes that nobody may touch; its rows may lie apart."""

    memory: np.ndarray
    outside: np.ndarray
    array: np.ndarray

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: str, strides: Sequence[int] = ()) -> _Guarded:
        item = np.dtype(dtype).itemsize
        steps = [item * step for step in strides] or np.empty(shape, dtype).strides
        last = sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
        nbytes = last + item if 0 not in shape else 0
        memory = _pages(nbytes)
        memory[...] = _GUARD_BYTE
        outside = np.ones(memory.shape, bool)
        start = next(_TURN) % 2 * ((memory.size - nbytes) // ALIGNMENT * ALIGNMENT)
        for array, value in ((memory, 0xFF), (outside, False)):
            inside = array[start : start + nbytes]
            # 0xFF is NaN in every floating-point type.
            np.lib.stride_tricks.as_strided(inside, (*shape, item), (*steps, 1))[...] = value
        elements = memory[start : start + nbytes].view(dtype)
        return cls(memory, outside, np.lib.stride_tricks.as_strided(elements, shape, tuple(steps)))

    @classmethod
    def holding(cls, array: np.ndarray, strides: Sequence[int] = ()) -> _Guarded:
        place = cls.empty(array.shape, str(array.dtype), strides)
        place.array[...] = array
        return place

    @property
    def intact(self) -> bool:
        return bool((self.memory[self.outside] == _GUARD_BYTE).all())


def _pages(nbytes: int) -> np.ndarray:
    """Whole pages for so many bytes, between two that nobody may read."""
    page = mmap.PAGESIZE
    inner = max(1, -(-nbytes // page)) * page
    memory = np.frombuffer(mmap.mmap(-1, inner + 2 * page), np.uint8)
    for start in (0, page + inner):
        guard = ctypes.c_void_p(memory.ctypes.data + start)
        assert not ctypes.CDLL(None).mprotect(guard, ctypes.c_size_t(page), 0)
    return memory[page : page + inner]


def _ranges(num_tiles: int, choice: random.Random) -> list[tuple[int, int]]:
    inner = {choice.randint(0, num_tiles) for _ in range(4)}
    ranges = list(pairwise(sorted({0, num_tiles, *inner})))
    choice.shuffle(ranges)
    return ranges


def _shape(param: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in param.shape)


def _strides(param: Any) -> list[int]:
    return [int(step) for step in param.strides]


def _is_prim_func(func: Any) -> bool:
    return isinstance(func, tirx.PrimFunc)
