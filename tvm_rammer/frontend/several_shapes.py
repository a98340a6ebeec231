"""One model for inputs of several shapes: a function for each, and the weights once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GlobalVar
from tvm.relax.expr import _update_type
from tvm.relax.utils import copy_with_new_vars
from tvm.s_tir import renew_defs
from tvm_ffi import structural_map

from tvm_rammer.errors import InputError
from tvm_rammer.frontend.input_constants import Constants
from tvm_rammer.frontend.input_shapes import Shapes
from tvm_rammer.frontend.input_states import States
from tvm_rammer.frontend.load import load_model
from tvm_rammer.frontend.loaded_model import LoadedModel
from tvm_rammer.relax_util import type_shape
from tvm_rammer.transform.attach_description import ModelNames
from tvm_rammer.transform.share_constants import ShareConstants
from tvm_rammer.units import listed

#: Shapes of all inputs, or several times those.
SeveralShapes = Shapes | Sequence[Shapes] | None


def load_several(
    model: Any,
    shapes: SeveralShapes = None,
    constants: Constants | None = None,
    states: States | None = None,
) -> list[LoadedModel]:
    """Load a model once for every mapping among the shapes.

    Raises
    ------
    ModelError, InputError
        As :func:`~tvm_rammer.frontend.load.load_model`; or if two of the shapes are the same, or
        a state has another shape with each.
    """
    loaded: list[LoadedModel] = []
    mappings = _mappings(shapes)
    # Each has its weights anew where it is read from a file.
    share = tvm.transform.Sequential([ShareConstants()] if len(mappings) > 1 else [])
    for number, mapping in enumerate(mappings):
        each = load_model(model, mapping, constants, states)
        _require_another(number, each, loaded)
        loaded.append(replace(each, module=share(each.module)))
        _require_same_states(number, each, loaded[0])
    return loaded


def _mappings(shapes: SeveralShapes) -> list[Any]:
    """The mappings; what else was given is for who reads one to refuse."""
    several = isinstance(shapes, Sequence) and all(isinstance(each, Mapping) for each in shapes)
    return list(shapes) if several and shapes else [shapes]


def joined(models: Sequence[LoadedModel]) -> tuple[tvm.IRModule, tuple[ModelNames, ...]]:
    """A module with the ``main`` of every model; of the second it is ``main_1``, and so on."""
    names = tuple(
        ModelNames(each.input_names, each.output_names, each.states, _name("main", number))
        for number, each in enumerate(models)
    )
    if len(models) == 1:
        return models[0].module, names
    functions: dict[GlobalVar, Any] = {}
    for number, each in enumerate(models):
        functions |= _renamed(each.module, number)
    return tvm.IRModule(functions, attrs=models[0].module.attrs), names


def _name(name: str, number: int) -> str:
    return f"{name}_{number}" if number else name


def _renamed(mod: tvm.IRModule, number: int) -> dict[GlobalVar, Any]:
    """The functions of a module, whose names end with a number."""
    symbols = {symbol: _named_as(symbol, number) for symbol in mod.functions}

    def rename(symbol: GlobalVar) -> GlobalVar:
        return symbols.get(symbol, symbol)

    functions = {}
    for symbol, func in mod.functions_items():
        made = structural_map(func, (GlobalVar, rename))
        # A variable, also one that no size was given, is of one function.
        made = copy_with_new_vars(made) if isinstance(made, relax.Function) else renew_defs(made)
        if made.attrs and "global_symbol" in made.attrs:
            made = made.with_attr("global_symbol", symbols[symbol].name_hint)
        functions[symbols[symbol]] = made
    return functions


def _named_as(symbol: GlobalVar, number: int) -> GlobalVar:
    made = GlobalVar(_name(symbol.name_hint, number))
    if symbol.ty is not None:
        _update_type(made, symbol.ty)
    return made


def _shapes(model: LoadedModel) -> list[Any]:
    return [info.shape for info in model.input_infos]


def _require_another(number: int, model: LoadedModel, others: Sequence[LoadedModel]) -> None:
    shapes = _shapes(model)
    for first, other in enumerate(others):
        if shapes == _shapes(other):
            said = listed(map("{} {}".format, model.input_names, shapes))
            raise InputError(
                f"shapes[{number}] and shapes[{first}] are the same for the model: {said}; give "
                "each once"
            )


def _require_same_states(number: int, model: LoadedModel, first: LoadedModel) -> None:
    def kept(loaded: LoadedModel) -> list[Any]:
        return list(loaded.module["main"].params)[len(loaded.input_names) :]

    for state, param, other in zip(model.states, kept(model), kept(first), strict=True):
        here, there = type_shape(param.ty), type_shape(other.ty)
        if here != there:
            raise InputError(
                f"states: {state.name!r} has the shape {there} with shapes[0], and {here} with "
                f"shapes[{number}]; what is kept from run to run has one shape"
            )
