"""Whether a function is one call of a region's kernel, so that a runtime may call that directly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import Call

from tvm_rammer.transform.add_guard import GUARD
from tvm_rammer.transform.relax_util import operator_name


@dataclass(frozen=True)
class DirectCall:
    """``main`` calls ``region`` and nothing else.

    ``inputs[k]`` is the parameter of ``main`` that the kernel takes as input ``k``; ``outputs[k]``
    is the kernel's output that ``main`` returns at place ``k``.
    """

    region: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def direct_call(func: relax.Function) -> DirectCall | None:
    """Recognise a function that passes its parameters to one kernel and returns its results."""
    bindings = [b for block in func.body.blocks for b in block.bindings]
    values: dict[Any, Any] = {b.var: b.value for b in bindings if isinstance(b, relax.VarBinding)}
    calls = [b for b in bindings if isinstance(b.value, Call | relax.If) and not _is_guard(b.value)]
    if len(calls) != 1 or len(values) != len(bindings):
        return None
    call = calls[0]
    if operator_name(call.value) != "relax.call_dps_packed":
        return None
    *arguments, _, _ = call.value.args[1].fields
    params = {param: number for number, param in enumerate(func.params)}
    if not all(argument in params for argument in arguments):
        return None
    result = _resolve(func.body.body, values)
    wanted = list(result.fields) if isinstance(result, relax.Tuple) else [result]
    outputs = [_output(item, call.var, values) for item in wanted]
    if any(output is None for output in outputs):
        return None
    return DirectCall(
        str(call.value.args[0].global_symbol),
        tuple(params[argument] for argument in arguments),
        tuple(output for output in outputs if output is not None),
    )


def _is_guard(value: Any) -> bool:
    """Whether a value is the guard's call, which a runtime makes by itself."""
    return (
        isinstance(value, Call)
        and isinstance(value.op, relax.ExternFunc)
        and value.op.global_symbol == GUARD
    )


def _output(item: Any, results: Any, values: dict[Any, Any]) -> int | None:
    item = _resolve(item, values)
    if isinstance(item, relax.TupleGetItem) and _resolve_variable(item.tuple_value, values).same_as(
        results
    ):
        return int(item.index)
    return None


def _resolve(item: Any, values: dict[Any, Any]) -> Any:
    """What a variable stands for, through plain copies."""
    while item in values:
        item = values[item]
    return item


def _resolve_variable(item: Any, values: dict[Any, Any]) -> Any:
    while isinstance(values.get(item), relax.Var):
        item = values[item]
    return item
