"""A compiler pass that legalizes equal operators once.

LegalizeOps builds and schedules a tensor expression for every call, 11 seconds for an LSTM of
25,000 operators of which 20 are distinct. This pass remembers what an operator with given
attributes and argument types became, and leaves whatever is not a plain ``call_tir`` to
LegalizeOps. What has no elements is nothing to compute, whereas TVM's rules divide by such sizes.
Running sums, which TVM makes loops of only when nothing can be planned with them any more, become
loops here, and for GPUs sums of their own. Reshapes of open sizes stay: whether they are other
shapes of the same memory could not be told from loops. What compares floats with themselves asks
for NaN, and a NaN is not equal to anything.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi
from tvm.ir import Call, GenericConst, Op

from tvm_rammer.region.concatenations import CONCATENATION, has_long_rows
from tvm_rammer.relax_util import (
    OPAQUE,
    is_for_cpu,
    operator_name,
    static_shape,
    type_shape,
    with_blocks,
)
from tvm_rammer.transform.running_sums import running_products, running_sums
from tvm_rammer.transform.scatter_elements import scatter_elements

_CALL_TIR = Op.get("relax.call_tir")
#: Operators without a rule of TVM's, what they are for CPUs, and for GPUs.
_SCANS = {
    "relax.cumsum": (topi.cumsum, running_sums),
    "relax.cumprod": (topi.cumprod, running_products),
}
#: Comparisons of a number with itself, and whether they are true of NaN.
_OF_ITSELF = {
    "relax.equal": False,
    "relax.less_equal": False,
    "relax.greater_equal": False,
    "relax.not_equal": True,
}


@tvm.transform.module_pass(opt_level=0, name="LegalizeOperators")
class LegalizeOperators:
    """Legalize every operator with static shapes, equal ones once."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Legalize every Relax function of a module."""
        builder = relax.BlockBuilder(mod)
        legalizer = _Legalizer(builder)
        # Rules may emit operators: what they do with them is for LegalizeOps.
        with builder.testing_scope(def_vars=[]):
            functions = {
                symbol: legalizer.function(func)
                for symbol, func in mod.functions_items()
                if isinstance(func, relax.Function)
            }
        legalized = builder.get()
        legalized.update(functions)
        # LegalizeOps walks through an LSTM for seconds, also where nothing is left for it.
        rest = legalize_ops if legalizer.left_out else relax.transform.Normalize
        found = rest()(legalized)
        return _without_scopes(found) if is_for_cpu() else found


def legalize_ops() -> tvm.transform.Pass:
    """TVM's LegalizeOps with our rules: of any operators, their sizes known or not."""
    return relax.transform.LegalizeOps(_OWN_RULES)


def _without_scopes(mod: tvm.IRModule) -> tvm.IRModule:
    """Without marks that TVM's operators set, and its code generator for CPUs warns of."""

    def body(mark: tirx.AttrStmt) -> Any:
        return mark.body if mark.attr_key == "pragma_scope" else mark

    marked = {
        symbol: without
        for symbol, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc)
        and not (without := tvm_ffi.structural_map(func, (tirx.AttrStmt, body))).same_as(func)
    }
    mod.update(marked)
    return mod


@dataclass(frozen=True)
class _Legalized:
    """A ``call_tir`` and which of the operator's arguments it takes."""

    symbol: Any
    arguments: tuple[int, ...]
    ty_args: Any


@dataclass
class _Legalizer:
    """Goes over bindings itself, which takes a quarter of the time of TVM's mutators.

    Attributes
    ----------
    builder : BlockBuilder
        Has the PrimFuncs.
    known : dict
        What operators became.
    left_out : bool
        Whether something is for LegalizeOps.
    """

    builder: Any
    known: dict[Any, _Legalized] = field(default_factory=dict)
    left_out: bool = False

    def function(self, func: relax.Function) -> relax.Function:
        """The function with legalized operators."""
        blocks = [self._block(block) for block in func.body.blocks]
        if all(new.same_as(old) for new, old in zip(blocks, func.body.blocks, strict=True)):
            return func
        return with_blocks(func, blocks)

    def _block(self, block: Any) -> Any:
        made, inner = relax.BindingBlock, relax.Var
        if isinstance(block, relax.DataflowBlock):
            made, inner = relax.DataflowBlock, relax.DataflowVar
        bindings = block.bindings[:]
        legalized = [new for binding in bindings for new in self._bindings(binding, inner)]
        return block if all(map(operator.is_, bindings, legalized)) else made(legalized)

    def _bindings(self, binding: Any, inner: type) -> list[Any]:
        """What a binding becomes: itself with another value, perhaps behind items of a tuple.

        Variables of such items are of the type ``inner``.
        """
        call = binding.value
        if not isinstance(binding, relax.VarBinding) or not isinstance(call, Call):
            self.left_out |= isinstance(call, relax.If | relax.Function | Call)
            return [binding]
        if operator_name(call) == "relax.concat" and static_shape(call):
            return self._concatenation(binding, inner)
        if _is_open_reshape(call):
            # Inside of a block it is the same tensor; what leaves it is a copy.
            if isinstance(binding.var, relax.DataflowVar):
                return [binding]
            self.left_out = True
            same = inner("reshaped", call.ty)
            copy = self.builder.normalize(relax.op.astype(same, str(call.ty.dtype)))
            return [relax.VarBinding(same, call), relax.VarBinding(binding.var, copy)]
        legalized = self._legalized(call)
        if legalized is None:
            self.left_out |= operator_name(call) not in ("", "relax.call_tir")
            return [binding]
        return [relax.VarBinding(binding.var, legalized)]

    def _legalized(self, call: Any) -> Any:
        """The ``call_tir`` that an operator becomes, ``None`` for what is left to LegalizeOps."""
        key = _key(call)
        if key is None:
            return None
        known = self.known.get(key)
        if known is None:
            known = _as_call_tir(call, _rule_for(call)(self.builder, call))
            if known is None:
                # It may consist of other operators.
                return None
            self.known[key] = known
        given = call.args[:]
        arguments = relax.Tuple([given[k] for k in known.arguments])
        return Call(_CALL_TIR, [known.symbol, arguments], None, known.ty_args, ret_ty=call.ty)

    def _concatenation(self, binding: Any, inner: type) -> list[Any]:
        """A concatenation stays by itself if who makes its operands may do its work."""
        call, items = binding.value, self._items(binding.value.args[0], inner)
        if items:
            operands = relax.Tuple([item.var for item in items])
            call = self.builder.normalize(Call(call.op, [operands], call.attrs))
        legalized = call.op.get_attr("FLegalize")(self.builder, call)
        if operator_name(legalized) != "relax.call_tir" or len(legalized.args) != 2:
            self.left_out = True
            return [binding]
        symbol, operands = legalized.args
        func = self.builder.get()[symbol]
        # Without an axis, vectors are concatenated.
        axis = int(call.attrs.axis or 0) % len(static_shape(call) or ())
        if has_long_rows(func, axis):
            marks = {CONCATENATION: axis, "op_pattern": OPAQUE}
            self.builder.update_func(symbol, func.with_attrs(marks))
        value = Call(_CALL_TIR, [symbol, operands], None, legalized.ty_args, ret_ty=call.ty)
        return [*items, relax.VarBinding(binding.var, value)]

    def _items(self, operands: Any, inner: type) -> list[Any]:
        """Bindings of the items of a tuple that is a variable; none of any other."""
        if isinstance(operands, relax.Tuple):
            return []
        places = range(len(operands.ty.fields))
        items = [self.builder.normalize(relax.TupleGetItem(operands, place)) for place in places]
        return [relax.VarBinding(inner("item", item.ty), item) for item in items]


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
    if not name or _rule(call.op) is None or not _has_static_shapes(call.ty):
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
def _rule(operator: Any) -> Any:
    """What makes a ``call_tir`` of a call, ``None`` if there is none."""
    if operator.name in _SCANS:
        return _scan
    return _OWN_RULES.get(operator.name) or operator.get_attr("FLegalize")


def _rule_for(call: Any) -> Any:
    """What makes a ``call_tir`` of a call that has a rule."""
    empty = 0 in (static_shape(call) or ())
    if empty and _tensors(call):
        return _nothing
    if _compares_with_itself(call):
        return _compared_with_itself
    is_float = any("float" in str(operand.ty.dtype) for operand in _tensors(call))
    return _unlike if operator_name(call) == "relax.not_equal" and is_float else _rule(call.op)


def _compares_with_itself(call: Any) -> bool:
    return (
        operator_name(call) in _OF_ITSELF
        and call.args[0].same_as(call.args[1])
        and "float" in str(call.args[0].ty.dtype)
    )


def _compared_with_itself(builder: relax.BlockBuilder, call: Any) -> Any:
    """A test for NaN: TVM's simplifier takes ``x == x`` for true."""
    of_nan = _OF_ITSELF[operator_name(call)]

    def test(x: te.Tensor) -> te.Tensor:
        wide = x if x.dtype == "float64" else topi.cast(x, "float32")
        return topi.isnan(wide) if of_nan else topi.logical_not(topi.isnan(wide))

    return builder.call_te(test, call.args[0])


def _unlike(builder: relax.BlockBuilder, call: Any) -> Any:
    """What is not equal: TVM's own comparison, and what it makes of a negation, leave NaN out."""

    def unlike(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return topi.equal(topi.cast(topi.equal(a, b), "int8"), tirx.const(0, "int8"))

    return builder.call_te(unlike, *call.args)


def _tensors(call: Any) -> list[Any]:
    return [argument for argument in call.args[:] if isinstance(argument.ty, relax.TensorType)]


def _nothing(builder: relax.BlockBuilder, call: Any) -> Any:
    """No element: the operands stay, so that there is nothing to evaluate before the run."""
    shape, dtype = static_shape(call), str(call.ty.dtype)

    def empty(*_: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *at: tirx.const(0, dtype), "empty")

    return builder.call_te(empty, *_tensors(call))


def _scan(builder: relax.BlockBuilder, call: Any) -> Any:
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    dtype, exclusive = str(call.ty.dtype), bool(call.attrs.exclusive)
    in_loops, in_sums = _SCANS[operator_name(call)]
    if is_for_cpu():
        return builder.call_te(in_loops, call.args[0], axis, dtype, exclusive)

    def scan(x: te.Tensor) -> te.Tensor:
        line = topi.reshape(x, static_shape(call)) if axis is None else x
        return in_sums(topi.cast(line, dtype), (axis or 0) % len(line.shape), exclusive)

    return builder.call_te(scan, call.args[0])


def _scatter_elements(builder: relax.BlockBuilder, call: Any) -> Any:
    axis, reduction = int(call.attrs.axis), str(call.attrs.reduction)
    return builder.call_te(scatter_elements, *call.args, axis, reduction)


def _is_open_reshape(call: Any) -> bool:
    """Whether a tensor gets a shape of sizes that each run decides."""
    if operator_name(call) != "relax.reshape" or not isinstance(call.args[1], relax.ShapeExpr):
        return False
    return not all(isinstance(size, tirx.IntImm) for size in call.args[1].values)


def _reshape(builder: relax.BlockBuilder, call: Any) -> Any:
    """As TVM has it, but for one that the VM does without a copy."""
    return call if _is_open_reshape(call) else _RESHAPE(builder, call)


_RESHAPE = Op.get("relax.reshape").get_attr("FLegalize")
#: In the place of TVM's.
_OWN_RULES = {"relax.reshape": _reshape, "relax.scatter_elements": _scatter_elements}


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
