"""Describes a planned module, and puts the description into it.

Relax functions are added: one returns the description, so that a library can be listed, drawn and
driven by the names of the model's own inputs wherever it is loaded; one returns the constants and
the instruction table of the region that ``main`` consists of, so that a runtime may call the
region's kernel without the VM between; one returns what states begin with that are not zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, PrimType

from tvm_rammer.backend.registry import backend_named
from tvm_rammer.options import Goal
from tvm_rammer.region.compiler import Region
from tvm_rammer.region.direct_call import DirectCall, direct_call
from tvm_rammer.region.library_content import (
    DESCRIBE,
    FORMAT_VERSION,
    INITIAL_STATE,
    NUM_VEUS,
    STATE,
    LibraryContent,
    RegionPlan,
    StateInfo,
    TensorInfo,
    packed,
)
from tvm_rammer.region.marks import read_left_out
from tvm_rammer.relax_util import operator_name, type_shape
from tvm_rammer.rprogram import updated_in_place
from tvm_rammer.rprogram.serialize import as_data
from tvm_rammer.schedule import explain


@dataclass(frozen=True)
class State:
    """A tensor that a run of a model leaves for the next run.

    Attributes
    ----------
    name : str
    initial : tvm.runtime.Tensor, optional
        What the first run finds; zeros if not given.
    """

    name: str
    initial: Any = None


@dataclass(frozen=True)
class ModelNames:
    """What the model itself calls its inputs and outputs, and what it keeps between runs.

    States stand behind the inputs among ``main``'s parameters, and behind its outputs.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[State, ...] = ()


def describe(
    mod: tvm.IRModule,
    regions: Sequence[Region],
    goal: Goal,
    merged_rows: int = 1,
    names: ModelNames | None = None,
) -> dict[str, Any]:
    """What a library of a module will say about itself.

    Parameters
    ----------
    mod : IRModule
        Planned.
    regions : sequence of Region
        What was planned.
    goal : Goal
    merged_rows : int
        Of merged products at most.
    names : ModelNames, optional
        What the model itself calls its inputs and outputs.

    Returns
    -------
    dict
        See :class:`LibraryContent`; empty for a module without ``main``, or with a description.
    """
    symbols = {symbol.name_hint for symbol in mod.get_global_vars()}
    if "main" not in symbols or DESCRIBE in symbols:
        return {}
    main, vdevice = mod["main"], goal.vdevice
    costs = backend_named(vdevice.kind).costs(vdevice)
    results = list(main.ret_ty.fields) if _is_tuple(main.ret_ty) else [main.ret_ty]
    names = names or ModelNames(
        tuple(param.name for param in main.params),
        tuple(f"output_{k}" for k in range(len(results))),
    )
    params = list(main.params)
    count = len(names.states)
    direct = direct_call(main, {region.signature.name for region in regions})
    return LibraryContent(
        format=FORMAT_VERSION,
        tvm=tvm.__version__,
        target=str(goal.target),
        options=goal.options,
        num_veus=vdevice.num_veus,
        merged_rows=merged_rows,
        vdevice=vdevice.name,
        backend=vdevice.kind,
        costs=costs,
        inputs=tuple(
            _tensor(name, param.ty)
            for name, param in zip(names.inputs, params[: len(params) - count], strict=True)
        ),
        outputs=tuple(
            tensor
            for name, ty in zip(names.outputs, results[: len(results) - count], strict=True)
            for tensor in _tensors(name, ty)
        ),
        states=tuple(
            StateInfo(_tensor(state.name, param.ty), state.initial is None, in_place)
            for state, param, in_place in zip(
                names.states,
                params[len(params) - count :],
                _in_place(direct, regions, len(params) - count, count),
                strict=True,
            )
        ),
        direct=direct,
        programs=tuple(as_data(region.program) for region in regions),
        plans=tuple(
            RegionPlan(region.program.name, region.decision, explain(region.program, costs))
            for region in regions
        ),
        arenas={region.program.name: region.code.arena_bytes for region in regions},
        left_out=tuple(read_left_out(mod)),
    ).plain()


def attach_description(
    mod: tvm.IRModule, content: Mapping[str, Any], states: Sequence[State] = ()
) -> tvm.IRModule:
    """A module that says what :func:`describe` found, and more for those who run it by that."""
    if not content:
        return mod
    builder = relax.BlockBuilder(mod)
    with builder.function(DESCRIBE, []):
        builder.emit_func_output(builder.emit(relax.const(packed(content))))
    if content["direct"] is not None:
        constants, table = _state(mod["main"])
        with builder.function(STATE, []):
            builder.emit_func_output(builder.emit(relax.Tuple([constants, table])))
    initial = [relax.const(state.initial) for state in states if state.initial is not None]
    if initial:
        with builder.function(INITIAL_STATE, []):
            builder.emit_func_output(builder.emit(relax.Tuple(initial)))
    result = builder.get()
    result[NUM_VEUS] = _constant_function(NUM_VEUS, content["num_veus"])
    return result


def _in_place(
    direct: DirectCall | None, regions: Sequence[Region], first: int, count: int
) -> list[bool]:
    """Which of so many states, parameters of ``main`` from the ``first`` on, may stay in place."""
    if direct is None:
        return [False] * count
    (program,) = (each.program for each in regions if each.signature.name == direct.region)
    sources, outputs, inputs = updated_in_place(program), direct.outputs, direct.inputs

    def alone(state: int, place: int) -> bool:
        """Whether the kernel takes a state once, and returns what becomes of it, and once."""
        found = place in sources and inputs[sources[place]] == first + state
        return found and inputs.count(first + state) == outputs.count(place) == 1

    return [alone(*state) for state in enumerate(outputs[len(outputs) - count :])]


def _constant_function(symbol: str, value: int) -> tirx.PrimFunc:
    """A packed function that returns a number.

    A library with at least one function of TVM's own build needs no C++ compiler to run in the
    process that built it: for one without any, TVM makes a stand-in from C source.
    """
    body = tirx.Return(tirx.const(value, "int32"))
    func = tirx.PrimFunc([], body, ret_type=PrimType("int32"))
    return func.with_attrs({"global_symbol": symbol, "tirx.is_scheduled": True})


def _is_tuple(ty: Any) -> bool:
    return isinstance(ty, relax.TupleType)


def _tensors(name: str, ty: Any) -> list[TensorInfo]:
    """The tensors of a type in order; those of a tuple by its name and their number."""
    if _is_tuple(ty):
        return [leaf for k, part in enumerate(ty.fields) for leaf in _tensors(f"{name}.{k}", part)]
    return [_tensor(name, ty)]


def _tensor(name: str, ty: Any) -> TensorInfo:
    """Name, shape and dtype; an unknown shape is None, what is no tensor has its kind as dtype."""
    kind = type(ty).__name__.removesuffix("Type").lower()
    dtype = str(ty.dtype) if isinstance(ty, relax.TensorType) else kind
    return TensorInfo(name, type_shape(ty), dtype)


def _state(main: Any) -> tuple[GenericConst, GenericConst]:
    """The constants and the table that ``main`` passes to its one kernel."""
    for block in main.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, Call) and (
                operator_name(binding.value) == "relax.call_dps_packed"
            ):
                *_, constants, table = binding.value.args[1].fields
                return constants, table
    raise AssertionError("a direct call has a call_dps_packed")
