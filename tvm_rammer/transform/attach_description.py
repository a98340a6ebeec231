"""Describes a planned module, and puts the description into it.

Relax functions are added: one returns the description, so that a library can be listed, drawn and
driven by the names of the model's own inputs wherever it is loaded; one for each function of the
model that consists of a region returns the constants and the instruction table of that, so that a
runtime may call the region's kernel without the VM between; one returns what states begin with that
are not zero.
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
    Interface,
    LibraryContent,
    RegionPlan,
    StateInfo,
    TensorInfo,
    packed,
)
from tvm_rammer.region.marks import read_left_out
from tvm_rammer.relax_util import operator_name
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

    States stand behind the inputs among the parameters of a ``function``, and behind its outputs.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[State, ...] = ()
    function: str = "main"


def describe(
    mod: tvm.IRModule,
    regions: Sequence[Region],
    goal: Goal,
    merged_rows: int = 1,
    names: Sequence[ModelNames] = (),
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
    names : sequence of ModelNames
        What the model itself calls the inputs and outputs of its functions; of ``main`` alone, the
        names of its parameters, if not given.

    Returns
    -------
    dict
        See :class:`LibraryContent`; empty for a module without ``main``, or with a description.
    """
    symbols = {symbol.name_hint for symbol in mod.get_global_vars()}
    if "main" not in symbols or DESCRIBE in symbols:
        return {}
    vdevice = goal.vdevice
    costs = backend_named(vdevice.kind).costs(vdevice)
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
        interfaces=tuple(
            _interface(mod[each.function], each, regions)
            for each in names or [_own_names(mod["main"])]
        ),
        programs=tuple(as_data(region.program) for region in regions),
        plans=tuple(
            RegionPlan(region.program.name, region.decision, explain(region.program, costs))
            for region in regions
        ),
        arenas={region.program.name: region.code.arena_bytes for region in regions},
        left_out=tuple(read_left_out(mod)),
    ).plain()


def _results(func: relax.Function) -> list[Any]:
    return list(func.ret_ty.fields) if _is_tuple(func.ret_ty) else [func.ret_ty]


def _own_names(main: relax.Function) -> ModelNames:
    outputs = (f"output_{k}" for k in range(len(_results(main))))
    return ModelNames(tuple(param.name for param in main.params), tuple(outputs))


def _interface(func: relax.Function, names: ModelNames, regions: Sequence[Region]) -> Interface:
    params, results, count = list(func.params), _results(func), len(names.states)
    direct = direct_call(func, {region.signature.name for region in regions})
    in_place = _in_place(direct, regions, len(params) - count, count)
    return Interface(
        names.function,
        inputs=tuple(
            tensor_info(name, param.ty)
            for name, param in zip(names.inputs, params[: len(params) - count], strict=True)
        ),
        outputs=tuple(
            tensor
            for name, ty in zip(names.outputs, results[: len(results) - count], strict=True)
            for tensor in _tensors(name, ty)
        ),
        states=tuple(
            StateInfo(tensor_info(state.name, param.ty), state.initial is None, stays)
            for state, param, stays in zip(
                names.states, params[len(params) - count :], in_place, strict=True
            )
        ),
        direct=direct,
    )


def attach_description(
    mod: tvm.IRModule, content: Mapping[str, Any], states: Sequence[State] = ()
) -> tvm.IRModule:
    """A module that says what :func:`describe` found, and more for those who run it by that."""
    if not content:
        return mod
    builder = relax.BlockBuilder(mod)
    with builder.function(DESCRIBE, []):
        builder.emit_func_output(builder.emit(relax.const(packed(content))))
    for interface in content["interfaces"]:
        if interface["direct"] is not None:
            function = interface["function"]
            with builder.function(STATE + function, []):
                builder.emit_func_output(builder.emit(relax.Tuple(_state(mod[function]))))
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
    """Which of so many states, a function's parameters from the ``first`` on, may stay in place."""
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
    return [tensor_info(name, ty)]


def tensor_info(name: str, ty: Any) -> TensorInfo:
    """Name, shape and dtype; what is no tensor has its kind as dtype."""
    if not isinstance(ty, relax.TensorType):
        return TensorInfo(name, None, type(ty).__name__.removesuffix("Type").lower())
    shape = tuple(map(_size, ty.shape.values)) if isinstance(ty.shape, relax.ShapeExpr) else None
    return TensorInfo(name, shape, str(ty.dtype))


def _size(size: Any) -> int | str:
    return int(size) if isinstance(size, tirx.IntImm) else str(size)


def _state(func: relax.Function) -> tuple[GenericConst, GenericConst]:
    """The constants and the table that a function passes to its one kernel."""
    for block in func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, Call) and (
                operator_name(binding.value) == "relax.call_dps_packed"
            ):
                *_, constants, table = binding.value.args[1].fields
                return constants, table
    raise AssertionError("a direct call has a call_dps_packed")
