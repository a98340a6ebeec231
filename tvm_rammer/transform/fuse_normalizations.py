"""A compiler pass that turns normalisations into one operator each, with an exact variance.

Importers write a normalisation as a chain: mean, difference, square, mean, root, quotient, scale,
shift. As one operator it goes over its tensor once. TVM's own instance and group normalisation
subtract the square of the mean from the mean of the squares, which loses all digits when the mean
is large: here the mean is subtracted first.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tvm_rammer.relax_util import calls_any, operator_name, rewrite, static_shape
from tvm_rammer.transform.normalization_chains import Chains, Normalization
from tvm_rammer.transform.normalize import normalize, normalize_groups
from tvm_rammer.transform.remove_dead_code import remove_dead_code

#: What every normalisation has, and those that importers keep.
_ROOTS = frozenset({"relax.sqrt", "relax.rsqrt"})
_OF_GROUPS = frozenset({"relax.nn.group_norm", "relax.nn.instance_norm"})


@tvm.transform.module_pass(opt_level=0, name="FuseNormalizations")
class FuseNormalizations:
    """Make one ``call_tir`` of every float32 normalisation."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of a module."""
        if not calls_any(mod, {*_ROOTS, *_OF_GROUPS}):
            return mod
        return rewrite(mod, _Fuser(mod), remove_dead_code)


@relax.expr_functor.mutator
class _Fuser(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.chains = Chains({})

    def visit_function_(self, func: Any) -> Any:
        self.chains = Chains(relax.analysis.get_var2val(func))
        return super().visit_function_(func)

    def visit_call_(self, call: Any) -> Any:
        shape = static_shape(call)
        if shape is None or str(call.ty.dtype) != "float32":
            return super().visit_call_(call)
        if operator_name(call) in _OF_GROUPS:
            return self._emit_groups(call, shape)
        found = self.chains.normalization(call)
        return super().visit_call_(call) if found is None else self._emit(found)

    def _emit(self, found: Normalization) -> Any:
        arguments = (found.data, found.scale, found.shift)
        return self.builder_.call_te(
            normalize,
            *(None if argument is None else self.visit_expr(argument) for argument in arguments),
            axes=found.axes,
            epsilon=found.epsilon,
            centred=found.centred,
        )

    def _emit_groups(self, call: Any, shape: tuple[int, ...]) -> Any:
        """Instance normalisation has as many groups as channels."""
        channel_axis = int(call.attrs.channel_axis)
        grouped = operator_name(call) == "relax.nn.group_norm"
        num_groups = int(call.attrs.num_groups) if grouped else shape[channel_axis]
        return self.builder_.call_te(
            normalize_groups,
            *(self.visit_expr(argument) for argument in call.args),
            num_groups=num_groups,
            channel_axis=channel_axis,
            axes=[int(axis) for axis in call.attrs.axes],
            epsilon=float(call.attrs.epsilon),
        )
