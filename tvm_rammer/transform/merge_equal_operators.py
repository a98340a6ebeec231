"""A compiler pass that evaluates equal operators on equal operands once.

EliminateCommonSubexpr compares constants by their elements: it reads all weights of a network, a
second for half a gigabyte. To it, large constants are parameters here: each equals itself alone.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm_ffi import structural_map

from tvm_rammer.transform.relax_util import static_shape

#: Constants of more elements are compared by identity.
_LARGE = 1 << 10


@tvm.transform.module_pass(opt_level=0, name="MergeEqualOperators")
class MergeEqualOperators:
    """Keep the first of equal bindings."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Merge within every Relax function of a module."""
        hidden = {
            symbol: _without_large_constants(func)
            for symbol, func in mod.functions_items()
            if isinstance(func, relax.Function)
        }
        result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for symbol, (func, _constants) in hidden.items():
            result[symbol] = func
        result = relax.transform.EliminateCommonSubexpr()(result)
        for symbol, (_, constants) in hidden.items():
            if constants:
                result[symbol] = _with_constants(result[symbol], constants)
        return result


def _without_large_constants(func: relax.Function) -> tuple[relax.Function, dict[Any, Any]]:
    """A function that has its large constants as parameters, and which is which."""
    parameters: dict[Any, Any] = {}

    def hide(constant: Any) -> Any:
        shape = static_shape(constant)
        if shape is None or prod(shape) <= _LARGE:
            return constant
        if constant.value not in parameters:
            parameters[constant.value] = relax.Var(f"constant{len(parameters)}", constant.ty)
        return parameters[constant.value]

    body = structural_map(func.body, (GenericConst, hide))
    if not parameters:
        return func, {}
    params = [*func.params, *parameters.values()]
    hidden = relax.Function(params, body, func.ret_ty, func.is_pure, func.attrs)
    return hidden, {parameter: value for value, parameter in parameters.items()}


def _with_constants(func: relax.Function, constants: dict[Any, Any]) -> relax.Function:
    """``bind_params``, which would find out the type of every operator of a constant anew."""

    def restore(var: Any) -> Any:
        value = constants.get(var)
        return var if value is None else relax.const(value)

    params = [param for param in func.params if param not in constants]
    body = structural_map(func.body, (relax.Var, restore))
    return relax.Function(params, body, func.ret_ty, func.is_pure, func.attrs)
