"""Inputs that a user says are states: what an output was after a run is what the next run finds.

Streaming models and decoders from ONNX take what they remember as inputs, and return it as outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from tvm_rammer.errors import InputError
from tvm_rammer.frontend.loaded_model import LoadedModel
from tvm_rammer.relax_util import type_shape
from tvm_rammer.transform.attach_description import State
from tvm_rammer.units import listed

#: What a user gives: names of outputs by the names of the inputs that they become.
States = Mapping[str, str]


def require_states(states: object) -> None:
    """Raise an InputError for what are no names by names."""
    if not isinstance(states, Mapping):
        raise InputError(f"states is {states!r}; give a mapping of inputs to outputs, by name")


def keep_states(model: LoadedModel, states: States) -> LoadedModel:
    """Make inputs states, which begin as zeros; they and their outputs are no inputs and outputs.

    Parameters
    ----------
    model : LoadedModel
    states : mapping of str to str
        Names of outputs by names of inputs.

    Raises
    ------
    InputError
        A name is unknown, or the input and the output are not of one type and one static shape.
    """
    if not states:
        return model
    main = model.module["main"]
    params = dict(zip(model.input_names, model.input_params, strict=True))
    types = main.ret_ty.fields if isinstance(main.ret_ty, relax.TupleType) else [main.ret_ty]
    results = dict(zip(model.output_names, types, strict=False))
    for given, left in states.items():
        _require("input", given, params)
        _require("output", left, results)
        _require_same(given, params[given].ty, left, results[left])
    outputs = [name for name in model.output_names if name not in states.values()]
    inputs = [name for name in model.input_names if name not in states]
    if not outputs:
        raise InputError("states: every output becomes a state; leave one that a run returns")
    places = {name: number for number, name in enumerate(model.output_names)}
    # What an exported program keeps by itself stays behind all others.
    own = range(len(model.output_names), len(types))
    order = [*(places[name] for name in (*outputs, *states.values())), *own]
    taken = [*(params[name] for name in (*inputs, *states)), *list(main.params)[len(params) :]]
    module = tvm.IRModule(dict(model.module.functions_items()), attrs=model.module.attrs)
    module["main"] = _reordered(main, taken, order)
    return replace(
        model,
        module=relax.transform.Normalize()(module),
        input_names=tuple(inputs),
        output_names=tuple(outputs),
        states=(*map(State, states), *model.states),
    )


def _require(what: str, name: str, known: Mapping[str, Any]) -> None:
    if name not in known:
        names = listed(map(repr, known))
        raise InputError(f"states: there is no {what} {name!r}; the model's {what}s are {names}")


def _require_same(given: str, before: Any, left: str, after: Any) -> None:
    """Raise an InputError unless what is left is what can be given."""
    shape = type_shape(before)
    if shape is None or shape != type_shape(after) or before.dtype != after.dtype:
        raise InputError(
            f"states: input {given!r} is {_words(before)}, and output {left!r}, which it becomes, "
            f"is {_words(after)}; a state keeps its type and its shape, which is known"
        )


def _words(ty: Any) -> str:
    if not isinstance(ty, relax.TensorType):
        return "no tensor"
    shape = type_shape(ty)
    return f"{ty.dtype} of {'a dynamic shape' if shape is None else f'shape {shape}'}"


def _reordered(main: relax.Function, params: Sequence[Any], order: Sequence[int]) -> relax.Function:
    """A function with its parameters, and with its results, in another order."""
    result = main.body.body
    several = isinstance(main.ret_ty, relax.TupleType)
    types = list(main.ret_ty.fields) if several else [main.ret_ty]
    items = [relax.DataflowVar(f"result_{number}", types[number]) for number in order]
    values = [relax.TupleGetItem(result, number) if several else result for number in order]
    reordered = relax.TupleType([types[number] for number in order])
    together = relax.Var("results", reordered)
    bindings = list(map(relax.VarBinding, items, values))
    block = relax.DataflowBlock([*bindings, relax.VarBinding(together, relax.Tuple(items))])
    body = relax.SeqExpr([*main.body.blocks, block], together)
    return relax.Function(params, body, reordered, main.is_pure, main.attrs)
