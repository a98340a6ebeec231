"""A compiler pass that turns normalisations into one operator each, with an exact variance.

Importers write a normalisation as a chain: mean, difference, square, mean, root, quotient, scale,
shift. As one operator it goes over its tensor once. TVM's own instance and group normalisation
subtract the square of the mean from the mean of the squares, which loses all digits when the mean
is large: here the mean is subtracted first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst

from tvm_rammer.relax_util import calls_any, operator_name, rewrite, static_shape
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


@dataclass(frozen=True)
class Normalization:
    """``(data - mean) / sqrt(variance + epsilon) * scale + shift``.

    Attributes
    ----------
    data : Expr
    axes : tuple of int
        Axes that the mean and the variance are taken over.
    epsilon : float
    centred : bool
        Without it no mean is subtracted, neither from the data nor for its squares.
    scale, shift : Expr or None
        Broadcast to the shape of the data.
    """

    data: Any
    axes: tuple[int, ...]
    epsilon: float
    centred: bool
    scale: Any = None
    shift: Any = None


@dataclass(frozen=True)
class Chains:
    """Finds normalisations in a function, given what its variables are bound to."""

    values: Mapping[Any, Any]

    def normalization(self, call: Any) -> Normalization | None:
        """The normalisation whose last operator is ``call``."""
        if operator_name(call) == "relax.add":
            return self._with_parameter(call, "shift", self._scaled)
        return self._scaled(call)

    def _scaled(self, call: Any) -> Normalization | None:
        """Without a shift."""
        found = None
        if operator_name(call) == "relax.multiply":
            found = self._with_parameter(call, "scale", self._plain)
        return found or self._plain(call)

    def _plain(self, call: Any) -> Normalization | None:
        """Without a scale and a shift."""
        name = operator_name(call)
        if name == "relax.multiply":
            return self._product(*call.args) or self._product(*reversed(call.args))
        if name == "relax.divide":
            root = self._bound(call.args[1])
            if operator_name(root) == "relax.sqrt":
                return self._normalized(call.args[0], root.args[0])
        return None

    def _bound(self, value: Any) -> Any:
        return self.values.get(value, value) if isinstance(value, relax.Var) else value

    def _with_parameter(
        self, call: Any, role: str, inside: Callable[[Any], Normalization | None]
    ) -> Normalization | None:
        """A normalisation and a tensor that is broadcast to it."""
        for one, other in (call.args, reversed(call.args)):
            found = inside(self._bound(one))
            if found is None:
                continue
            shape, parameter = static_shape(found.data), static_shape(other)
            if shape is None or parameter is None or static_shape(call) != shape:
                continue
            if str(other.ty.dtype) == "float32" and prod(parameter) < prod(shape):
                return replace(found, **{role: other})
        return None

    def _product(self, data: Any, factor: Any) -> Normalization | None:
        """``data * rsqrt(..)`` or ``data * (1 / sqrt(..))``."""
        inverse = self._bound(factor)
        if operator_name(inverse) == "relax.rsqrt":
            return self._normalized(data, inverse.args[0])
        if operator_name(inverse) == "relax.divide" and _number(inverse.args[0]) == 1:
            root = self._bound(inverse.args[1])
            if operator_name(root) == "relax.sqrt":
                return self._normalized(data, root.args[0])
        return None

    def _normalized(self, numerator: Any, radicand: Any) -> Normalization | None:
        """A numerator over the root of its own mean square, or variance, and an epsilon."""
        total = self._bound(radicand)
        if operator_name(total) != "relax.add":
            return None
        for one, other in (total.args, reversed(total.args)):
            epsilon, spread = _number(other), self._bound(one)
            axes = _axes(spread)
            if epsilon is None or axes is None:
                continue
            data = self._centred(numerator, axes)
            if data is not None and self._is_variance(spread, data, numerator, axes):
                return Normalization(data, axes, epsilon, centred=True)
            if self._is_mean_square(spread, numerator):
                return Normalization(numerator, axes, epsilon, centred=False)
        return None

    def _centred(self, value: Any, axes: tuple[int, ...]) -> Any | None:
        """``data`` where a value is ``data - mean(data)``."""
        difference = self._bound(value)
        if operator_name(difference) != "relax.subtract":
            return None
        data, mean = difference.args[0], self._bound(difference.args[1])
        matches = operator_name(mean) == "relax.mean" and mean.args[0].same_as(data)
        return data if matches and _axes(mean) == axes else None

    def _is_variance(self, spread: Any, data: Any, numerator: Any, axes: tuple[int, ...]) -> bool:
        if operator_name(spread) == "relax.variance":
            return bool(spread.args[0].same_as(data))
        base = self._square_root(spread)
        if base is None:
            return False
        again = self._centred(base, axes)
        return bool(base.same_as(numerator) or (again is not None and again.same_as(data)))

    def _is_mean_square(self, spread: Any, data: Any) -> bool:
        base = self._square_root(spread)
        return base is not None and bool(base.same_as(data))

    def _square_root(self, spread: Any) -> Any | None:
        """``base`` where ``spread`` is ``mean(base * base)`` or ``mean(base ** 2)``."""
        if operator_name(spread) != "relax.mean":
            return None
        square = self._bound(spread.args[0])
        name = operator_name(square)
        if name == "relax.square":
            return square.args[0]
        if name == "relax.power" and _number(square.args[1]) == 2:
            return square.args[0]
        if name == "relax.multiply" and square.args[0].same_as(square.args[1]):
            return square.args[0]
        return None


def _number(value: Any) -> float | None:
    """The value of a constant of one element."""
    if not isinstance(value, GenericConst):
        return None
    array = value.value.numpy()
    return float(array.reshape(-1)[0]) if array.size == 1 else None


def _axes(statistic: Any) -> tuple[int, ...] | None:
    """The axes of a mean or variance that keeps its dimensions."""
    if operator_name(statistic) not in ("relax.mean", "relax.variance"):
        return None
    shape = static_shape(statistic.args[0])
    if shape is None or not statistic.attrs.keepdims:
        return None
    given = statistic.attrs.axis
    axes = range(len(shape)) if given is None else (int(axis) % len(shape) for axis in given)
    return tuple(sorted(axes))
