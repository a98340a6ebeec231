"""A compiler pass that legalizes equal operators once.

LegalizeOps builds and schedules a tensor expression for every call, 11 seconds for an LSTM of
25,000 operators of which 20 are distinct. This pass remembers what an operator with given
attributes and argument types became, and leaves whatever is not a plain ``call_tir`` to
LegalizeOps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, Op

from tvm_rammer.region.concatenations import CONCATENATION, has_long_rows
from tvm_rammer.relax_util import OPAQUE, operator_name, rewrite, static_shape, type_shape

_CALL_TIR = Op.get("relax.call_tir")


@tvm.transform.module_pass(opt_level=0, name="LegalizeOperators")
class LegalizeOperators:
    """Legalize every operator with static shapes, equal ones once."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Legalize every Relax function of a module."""
        legalizer = _Legalizer(mod)
        legalized = rewrite(mod, legalizer)
        # LegalizeOps walks through an LSTM for seconds, also where nothing is left for it.
        return relax.transform.LegalizeOps()(legalized) if legalizer.left_out else legalized


@dataclass(frozen=True)
class _Legalized:
    """A ``call_tir`` and which of the operator's arguments it takes."""

    symbol: Any
    arguments: tuple[int, ...]
    ty_args: Any


@relax.expr_functor.mutator
class _Legalizer(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.known: dict[Any, _Legalized] = {}
        self.left_out = False

    def visit_call_(self, call: Any) -> Any:
        legalized = self._legalized(super().visit_call_(call))
        self.left_out |= operator_name(legalized) not in ("", "relax.call_tir")
        return legalized

    def _legalized(self, call: Any) -> Any:
        if operator_name(call) == "relax.concat" and static_shape(call):
            return self._concatenation(call)
        key = _key(call)
        if key is None:
            return call
        known = self.known.get(key)
        if known is None:
            legalized = call.op.get_attr("FLegalize")(self.builder_, call)
            known = _as_call_tir(call, legalized)
            if known is None:
                # It may consist of other operators.
                self.left_out = True
                return legalized
            self.known[key] = known
        given = call.args[:]
        arguments = relax.Tuple([given[k] for k in known.arguments])
        return Call(_CALL_TIR, [known.symbol, arguments], None, known.ty_args)

    def _concatenation(self, call: Any) -> Any:
        """A concatenation stays by itself if who makes its operands may do its work."""
        legalized = call.op.get_attr("FLegalize")(self.builder_, call)
        if operator_name(legalized) == "relax.call_tir" and len(legalized.args) == 2:
            symbol = legalized.args[0]
            func = self.builder_.get()[symbol]
            # Without an axis, vectors are concatenated.
            axis = int(call.attrs.axis or 0) % len(static_shape(call) or ())
            if has_long_rows(func, axis):
                marks = {CONCATENATION: axis, "op_pattern": OPAQUE}
                self.builder_.update_func(symbol, func.with_attrs(marks))
        return legalized


def _as_call_tir(call: Any, legalized: Any) -> _Legalized | None:
    if operator_name(legalized) != "relax.call_tir" or len(legalized.args) != 2:
        return None
    positions = [_position(call.args, argument) for argument in legalized.args[1].fields]
    if any(position is None for position in positions):
        return None
    found = tuple(position for position in positions if position is not None)
    return _Legalized(legalized.args[0], found, legalized.ty_args)


def _key(call: Any) -> Any:
    """What decides the legalized form; ``None`` for what is left to LegalizeOps."""
    name = operator_name(call)
    if not name or not _is_legalized(call.op) or not _has_static_shapes(call.ty):
        return None
    arguments = call.args[:]
    keys = tuple([_argument_key(argument) for argument in arguments])
    if None in keys:
        return None
    attributes = str(call.attrs) if call.attrs is not None else ""
    # x - x is no pattern for y - x: the PrimFunc's arguments are found by what they are.
    equal = tuple([_position(arguments, argument) for argument in arguments])
    return name, attributes, keys, equal


@cache
def _is_legalized(operator: Any) -> bool:
    """Whether there is something to call; every operator has the attribute."""
    return operator.get_attr("FLegalize") is not None


def _has_static_shapes(ty: Any) -> bool:
    if isinstance(ty, relax.TupleType):
        return all(map(_has_static_shapes, ty.fields))
    return type_shape(ty) is not None


def _position(arguments: Any, wanted: Any) -> int | None:
    """Where an argument stands first."""
    return next((k for k, argument in enumerate(arguments) if argument.same_as(wanted)), None)


def _argument_key(argument: Any) -> Any:
    if isinstance(argument, relax.ShapeExpr):
        return str(argument)
    shape = static_shape(argument)
    if shape is None:
        return None
    # Legalization inlines the value of a scalar constant.
    scalar = isinstance(argument, GenericConst) and not shape
    return shape, str(argument.ty.dtype), str(argument.value.numpy()) if scalar else None
