"""Small questions about Relax expressions, and the one loop that all rewriting passes share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, Op
from tvm.tirx import IntImm, Var

#: TVM's numbers for operators that take elementwise ones behind them, and for those that FuseOps
#: leaves alone (kOutEWiseFusable, kOpaque).
ANCHOR, OPAQUE = 4, 8
#: Attribute of a function: so many of its parameters are inputs, and all others are weights.
NUM_INPUT = "num_input"


def relax_functions(mod: tvm.IRModule) -> dict[GlobalVar, relax.Function]:
    """The Relax functions of a module by their symbols, in the order of their names."""
    return {
        symbol: func for symbol, func in mod.functions_items() if isinstance(func, relax.Function)
    }


def entry_functions(mod: tvm.IRModule) -> dict[GlobalVar, relax.Function]:
    """Those that others may call by their names: regions and branches are private."""
    return {
        symbol: func
        for symbol, func in relax_functions(mod).items()
        if func.attrs and "global_symbol" in func.attrs
    }


def has_several_entries(mod: tvm.IRModule) -> bool:
    """Whether a module has a function for each of several shapes, which have weights in common."""
    return len(entry_functions(mod)) > 1


def with_functions(
    mod: tvm.IRModule, change: Callable[[relax.Function], relax.Function]
) -> tvm.IRModule:
    """A module with what every Relax function is changed into."""
    changed = {symbol: change(func) for symbol, func in relax_functions(mod).items()}
    return tvm.IRModule(dict(mod.functions_items()) | changed, attrs=mod.attrs)


def link(mod: tvm.IRModule, module: tvm.runtime.Module) -> tvm.IRModule:
    """Attach a compiled module, so that ``relax.build`` links it into the executable."""
    linked = list(mod.attrs.get("external_mods", [])) if mod.attrs else []
    return mod.with_attr("external_mods", [*linked, module])


def rewrite(
    mod: tvm.IRModule,
    mutator: relax.PyExprMutator,
    clean: Callable[[tvm.IRModule], tvm.IRModule] = lambda mod: mod,
) -> tvm.IRModule:
    """The module that a mutator makes of every Relax function of ``mod``, and ``clean`` of that.

    It is ``mod`` itself if the mutator found nothing to do.
    """
    changed = False
    for symbol, func in relax_functions(mod).items():
        rewritten = mutator.visit_expr(func)
        if not _same_bindings(func, rewritten):
            mutator.builder_.update_func(symbol, rewritten)
            changed = True
    return clean(mutator.builder_.get()) if changed else mod


def _same_bindings(func: relax.Function, other: relax.Function) -> bool:
    """Whether a mutator left all of a function alone: it makes its blocks anew in any case."""
    blocks, others = ([b.bindings[:] for b in f.body.blocks] for f in (func, other))
    return (
        list(map(len, blocks)) == list(map(len, others))
        and all(a.same_as(b) for a, b in zip(chain(*blocks), chain(*others), strict=True))
        and func.body.body.same_as(other.body.body)
    )


def weight_parameters(func: relax.Function) -> list[relax.Var]:
    """The parameters that are weights; none of a function that does not state its inputs."""
    if not func.attrs or NUM_INPUT not in func.attrs:
        return []
    return list(func.params[int(func.attrs[NUM_INPUT]) :])


def _bindings_of(expression: Any) -> Iterator[Any]:
    """All bindings of a function or a branch, those of branches and functions inside after it."""
    body = expression.body if isinstance(expression, relax.Function) else expression
    for block in body.blocks:
        for binding in block.bindings[:]:
            yield binding
            value = binding.value
            if isinstance(value, relax.If):
                yield from _bindings_of(value.true_branch)
                yield from _bindings_of(value.false_branch)
            elif isinstance(value, relax.Function):
                yield from _bindings_of(value)


def dataflow_blocks(mod: tvm.IRModule) -> Iterator[Any]:
    """The dataflow blocks of all Relax functions of a module."""
    for func in relax_functions(mod).values():
        yield from (block for block in func.body.blocks if isinstance(block, relax.DataflowBlock))


def calls_of(mod: tvm.IRModule) -> Iterator[Any]:
    """All calls in the Relax functions of a module in normal form, where each is bound."""
    for func in relax_functions(mod).values():
        values = (binding.value for binding in _bindings_of(func))
        yield from (value for value in values if isinstance(value, Call))


def calls_any(mod: tvm.IRModule, names: Container[str]) -> bool:
    """Whether any Relax function of a module, in normal form, calls one of these operators."""
    return any(operator_name(call) in names for call in calls_of(mod))


def used_once(mod: tvm.IRModule) -> set[Any]:
    """The dataflow variables of a module that are read once; they are read in their block only."""
    uses = Counter(
        variable
        for func in relax_functions(mod).values()
        for binding in _bindings_of(func)
        for variable in variables_read(binding.value)
    )
    return {var for var, count in uses.items() if count == 1 and isinstance(var, relax.DataflowVar)}


def with_blocks(func: relax.Function, blocks: Sequence[Any]) -> relax.Function:
    """A function with the same parameters and result, and other blocks."""
    body = relax.SeqExpr(blocks, func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


def variables_read(value: Any) -> list[Any]:
    """The variables of Relax that a bound value reads; one that stands there twice comes twice."""
    if isinstance(value, relax.Var):
        return [value]
    if isinstance(value, Call) and isinstance(value.op, Op | GlobalVar):
        parts = value.args[:]
    elif isinstance(value, relax.Tuple):
        parts = value.fields[:]
    elif isinstance(value, relax.TupleGetItem):
        parts = [value.tuple_value]
    elif isinstance(value, GenericConst | GlobalVar):
        return []
    else:
        return list(relax.analysis.free_vars(value))
    return [variable for part in parts for variable in variables_read(part)]


def operator_name(expression: Any) -> str:
    """The name of the operator that an expression calls, or an empty string."""
    if isinstance(expression, Call) and isinstance(expression.op, Op):
        return str(expression.op.name)
    return ""


def bound_value(mutator: relax.PyExprMutator, value: Any) -> Any:
    """What a variable is bound to, where that is known; any other expression itself."""
    return mutator.lookup_binding(value) if isinstance(value, relax.Var) else value


def bind_again(mutator: relax.PyExprMutator, binding: Any, value: Any) -> None:
    """Emit a binding of what a mutator made of its value: itself if nothing has changed."""
    kept = value.same_as(binding.value)
    value = mutator.builder_.normalize(value)
    var = mutator.with_type(mutator.visit_var_def(binding.var), value.ty)
    if kept and var.same_as(binding.var):
        mutator.builder_.emit_normalized(binding)
        return
    if not var.same_as(binding.var):
        mutator.set_var_remap(binding.var, var)
    mutator.builder_.emit_normalized(relax.VarBinding(var, value))


def permutation_of(call: Any) -> tuple[int, ...]:
    """The axes of a ``permute_dims`` in their new order, counted from the first."""
    rank = call.ty.ndim
    return tuple(int(axis) % rank for axis in call.attrs.axes or reversed(range(rank)))


def last_two_swapped(rank: int) -> tuple[int, ...]:
    """The order of axes that transposes every matrix of a batch."""
    return (*range(rank - 2), rank - 1, rank - 2)


def reshaped(builder: relax.BlockBuilder, value: Any, shape: Sequence[Any]) -> Any:
    """A tensor in another shape; itself if it has that shape."""
    if static_shape(value) == tuple(shape):
        return value
    return builder.emit(relax.op.reshape(value, tuple(shape)))


def has_axes(ty: Any) -> bool:
    """Of which each has a size, be it a symbol."""
    return isinstance(ty.shape, relax.ShapeExpr) and ty.ndim > 0


def first_of(builder: relax.BlockBuilder, x: Any, count: Any, axis: int, name: str) -> relax.Expr:
    """As many of one axis as a vector of one number says, which becomes a symbol."""
    kept = first_unnamed(builder, x, count, axis)
    sizes = list(x.ty.shape.values)
    sizes[axis] = Var(name, "int64")
    return builder.match_cast(kept, relax.TensorType(sizes, x.ty.dtype))


def first_unnamed(builder: relax.BlockBuilder, x: Any, count: Any, axis: int) -> relax.Expr:
    """As many of one axis as a vector of one number says; the sizes of the others are known."""
    sizes = list(x.ty.shape.values)
    ends = [
        count if k == axis else relax.const(np.array([int(size)], np.int64), "int64")
        for k, size in enumerate(sizes)
    ]
    begin, step = (relax.const(np.full(len(sizes), k, np.int64), "int64") for k in (0, 1))
    end = builder.emit(relax.op.concat(ends)) if len(ends) > 1 else count
    return builder.emit(relax.op.dynamic_strided_slice(x, begin, end, step))


def is_for_cpu() -> bool:
    """Whether what is compiled now is not for a GPU."""
    target = tvm.target.Target.current(allow_none=True)
    return target is None or "gpu" not in target.keys


def static_shape(expression: Any) -> tuple[int, ...] | None:
    """The shape of a tensor expression, ``None`` if it is no tensor or not known when compiling."""
    return type_shape(expression.ty)


def open_shape(expression: Any) -> tuple[Any, ...] | None:
    """Numbers, and formulas of sizes that each run decides; ``None`` if there is no shape."""
    ty = expression.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    sizes = ty.shape.values[:]
    return tuple(int(size) if isinstance(size, IntImm) else size for size in sizes)


def known_shapes(*tensors: Any) -> list[tuple[int, ...]]:
    """The shapes of tensors; none at all if one is not known when compiling, or has no elements."""
    shapes = [static_shape(tensor) for tensor in tensors]
    known = [shape for shape in shapes if shape is not None and 0 not in shape]
    return known if len(known) == len(shapes) else []


def type_shape(ty: Any) -> tuple[int, ...] | None:
    """The shape of a tensor type, ``None`` if it is no tensor type or not known at compile time."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    # TVM's arrays take three calls for each element that is iterated over, and one in a slice.
    extents = ty.shape.values[:]
    if not all(isinstance(extent, IntImm) for extent in extents):
        return None
    return tuple([int(extent.value) for extent in extents])
