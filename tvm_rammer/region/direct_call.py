"""Whether a function is one call of a region's kernel, so that a runtime may call that directly."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import Call

from tvm_rammer.backend.protocol import GUARD
from tvm_rammer.relax_util import operator_name


@dataclass(frozen=True)
class DirectCall:
    """A function calls ``region`` and nothing else.

    ``inputs[k]`` is its parameter that the kernel takes as input ``k``; ``outputs[k]`` is the
    kernel's output that it returns at place ``k``.
    """

    region: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def direct_call(func: relax.Function, regions: Collection[str]) -> DirectCall | None:
    """Recognise a function that passes its parameters to one kernel and returns its results.

    Parameters
    ----------
    func : relax.Function
    regions : collection of str
        The kernels of regions; other packed functions are no kernels.
    """
    bindings = [b for block in func.body.blocks for b in block.bindings]
    values: dict[Any, Any] = {b.var: b.value for b in bindings if isinstance(b, relax.VarBinding)}
    calls = [b for b in bindings if isinstance(b.value, Call | relax.If) and not _is_guard(b.value)]
    if len(calls) != 1 or len(values) != len(bindings):
        return None
    call = calls[0]
    if operator_name(call.value) != "relax.call_dps_packed":
        return None
    region = str(call.value.args[0].global_symbol)
    if region not in regions:
        return None
    *arguments, _, _ = call.value.args[1].fields
    params = {param: number for number, param in enumerate(func.params)}
    if not all(argument in params for argument in arguments):
        return None
    result = _follow(func.body.body, values, call.var)
    wanted = list(result.fields) if isinstance(result, relax.Tuple) else [result]
    outputs = [_output(_follow(item, values, call.var), call.var) for item in wanted]
    # The last result is the arena; a kernel that computes more than is returned is left to the VM.
    if set(outputs) != set(range(len(call.value.ty_args[0].fields) - 1)):
        return None
    return DirectCall(
        region,
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


def _output(item: Any, results: Any) -> int | None:
    """Which of the kernel's results an item is."""
    if isinstance(item, relax.TupleGetItem) and item.tuple_value.same_as(results):
        return int(item.index)
    return None


def _follow(item: Any, values: dict[Any, Any], results: Any) -> Any:
    """What an expression stands for, through copies and tuples, down to ``results``."""
    while True:
        if item in values and not item.same_as(results):
            item = values[item]
        elif isinstance(item, relax.TupleGetItem):
            source = _follow(item.tuple_value, values, results)
            if not isinstance(source, relax.Tuple):
                return relax.TupleGetItem(source, item.index)
            item = source.fields[item.index]
        else:
            return item
