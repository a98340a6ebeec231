"""A compiler pass that evaluates equal operators on equal operands once, and keeps weights once.

EliminateCommonSubexpr compares constants by their elements: it reads all weights of a network, a
second for half a gigabyte. To it, large constants are parameters here, of which equal ones are one.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm_ffi import structural_map

from tvm_rammer.relax_util import relax_functions
from tvm_rammer.transform.share_constants import KnownConstants, is_large


@tvm.transform.module_pass(opt_level=0, name="MergeEqualOperators")
class MergeEqualOperators:
    """Keep the first of equal bindings, and the first of equal constants."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Merge within every Relax function of a module."""
        known = KnownConstants()
        hidden = {
            symbol: _without_large_constants(func, known)
            for symbol, func in relax_functions(mod).items()
        }
        result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for symbol, (func, _constants) in hidden.items():
            result[symbol] = func
        result = relax.transform.EliminateCommonSubexpr()(result)
        for symbol, (_, constants) in hidden.items():
            if constants:
                result[symbol] = _with_constants(result[symbol], constants)
        return result


def _without_large_constants(
    func: relax.Function, known: KnownConstants
) -> tuple[relax.Function, dict[Any, Any]]:
    """A function that has its large constants as parameters, and which is which."""
    parameters: dict[Any, Any] = {}

    def hide(constant: Any) -> Any:
        if not is_large(constant):
            return constant
        value = known.first(constant)
        if value not in parameters:
            parameters[value] = relax.Var(f"constant{len(parameters)}", constant.ty)
        return parameters[value]

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
