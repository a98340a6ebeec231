"""What a schedule's blocks are: reduction or not, their loops, their one multiply-accumulate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.error import InternalError
from tvm.ir import Call, TensorLoad
from tvm.s_tir import ScheduleError

from tvm_rammer.kernel.nodes import collect

#: The operator of a choice, whatever a release of TVM calls it.
_CHOICE = tirx.if_then_else(tirx.Var("condition", "bool"), 1.0, 0.0).op


def schedule_of(func: tirx.PrimFunc) -> s_tir.Schedule:
    """A schedule of a copy of a PrimFunc: primitives change what they are given in place."""
    return s_tir.Schedule(s_tir.renew_defs(func).with_attr("global_symbol", "main"))


def attempt(primitive: Any, *arguments: Any) -> bool:
    """Apply a schedule primitive; a refused one leaves the schedule as it was.

    TVM 0.27 refuses to inline a strided slice by an internal error.
    """
    try:
        primitive(*arguments)
    except (ScheduleError, InternalError):
        return False
    return True


def block_with(block: s_tir.SBlock, **parts: Any) -> s_tir.SBlock:
    """A block with other parts: ``iter_vars``, ``body`` or ``init``."""
    own = ("iter_vars", "reads", "writes", "name_hint", "body", "init")
    names = (*own, "alloc_buffers", "match_buffers", "annotations")
    return s_tir.SBlock(*(parts.get(name, getattr(block, name)) for name in names))


def is_scheduled(func: tirx.PrimFunc) -> bool:
    """Whether somebody has scheduled a PrimFunc, which then stays as it is."""
    return bool(func.attrs) and "tirx.is_scheduled" in func.attrs


def root_blocks(sch: s_tir.Schedule) -> list[Any]:
    """The blocks of a PrimFunc in program order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def with_statements(
    func: tirx.PrimFunc, statements: Any, buffers: Sequence[Any] | None = None
) -> tirx.PrimFunc:
    """A PrimFunc with other statements in its root block, which loses its annotations.

    And with other buffers between its statements, if any are given.
    """
    realize, root = func.body, func.body.block
    block = s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        statements,
        root.init,
        root.alloc_buffers if buffers is None else buffers,
        root.match_buffers,
    )
    return func.with_body(s_tir.SBlockRealize(realize.iter_values, realize.predicate, block))


def is_reduced(axis: Any) -> bool:
    """Whether an axis of a block is one that it reduces along."""
    return int(axis.iter_type) == tirx.IterVar.CommReduce


def is_reduction(sch: s_tir.Schedule, block: Any) -> bool:
    """Whether a block has a reduction axis."""
    return any(map(is_reduced, sch.get(block).iter_vars))


def reduces(func: tirx.PrimFunc) -> bool:
    """Whether any block of a PrimFunc has a reduction axis, which is seen without a schedule."""
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, found.append))
    return any(is_reduced(axis) for block in found for axis in block.iter_vars)


def only_reduction(func: tirx.PrimFunc) -> tuple[s_tir.Schedule, list[Any], int] | None:
    """A schedule of a PrimFunc, its blocks in program order and the number of the only one that
    reduces.

    ``None`` if there are others, or if its results are not only for the blocks after it.
    """
    if not reduces(func):
        return None
    sch = schedule_of(func)
    blocks = root_blocks(sch)
    reductions = [number for number, block in enumerate(blocks) if is_reduction(sch, block)]
    if len(reductions) != 1:
        return None
    (number,) = reductions
    result = sch.get(blocks[number]).writes[0].source
    returned = number + 1 < len(blocks) and parameter_number(sch.mod["main"], result) is not None
    return None if returned else (sch, blocks, number)


def extent(sch: s_tir.Schedule, loop: Any) -> int:
    """Trip count of a loop (shapes are static in everything that is scheduled here)."""
    return int(sch.get(loop).extent)


def split_loops(sch: s_tir.Schedule, block: Any) -> tuple[list[Any], list[Any]]:
    """The spatial and the reduction loops of an untransformed block, outermost first."""
    loops = list(sch.get_loops(block))
    axes = list(sch.get(block).iter_vars)
    if len(loops) != len(axes):
        return loops, []
    spatial = [loop for loop, axis in zip(loops, axes, strict=True) if not is_reduced(axis)]
    reduced = [loop for loop, axis in zip(loops, axes, strict=True) if is_reduced(axis)]
    return spatial, reduced


def spatial_axes(sch: s_tir.Schedule, block: Any) -> list[Any]:
    """The variables of a block's spatial axes, outermost first."""
    return [axis.var for axis in sch.get(block).iter_vars if not is_reduced(axis)]


def multiply_accumulate(sch: s_tir.Schedule, block: Any) -> tuple[TensorLoad, TensorLoad] | None:
    """The loads ``a`` and ``b`` of a block that does ``c[...] += a[...] * b[...]``, else None."""
    store = sch.get(block).body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        return None
    product = store.value.b
    if not isinstance(product, tirx.Mul):
        return None
    if isinstance(product.a, TensorLoad) and isinstance(product.b, TensorLoad):
        return product.a, product.b
    return None


def sole_block(nest: Any) -> s_tir.SBlock | None:
    """The block of a nest as legalization writes them, ``None`` of any other nest.

    One serial loop from 0 for each variable of the block, which is run for all of them.
    """
    extents: dict[Any, int] = {}
    while isinstance(nest, tirx.For) and nest.kind == tirx.ForKind.SERIAL:
        if not isinstance(nest.extent, tirx.IntImm) or not is_number(nest.min, 0):
            return None
        extents[nest.loop_var] = int(nest.extent)
        nest = nest.body
    if not isinstance(nest, s_tir.SBlockRealize) or not is_number(nest.predicate, 1):
        return None
    block = nest.block
    if len(block.alloc_buffers) or len(block.match_buffers):
        return None
    # A loop of one iteration may be missing, and its variable a zero.
    bound = [value for value in nest.iter_values if extents.get(value, 1) > 1]
    wide = [loop for loop, extent in extents.items() if extent > 1]
    plain = len(bound) == len(wide) == len(set(bound)) and all(
        is_number(axis.dom.min, 0)
        and int(axis.dom.extent) == extents.get(value, 1)
        and (value in extents or is_number(value, 0))
        for value, axis in zip(nest.iter_values, block.iter_vars, strict=True)
    )
    return block if plain else None


def parameter_number(func: tirx.PrimFunc, buffer: Any) -> int | None:
    """Which parameter a buffer is, before any is transformed (names need not be unique)."""
    return next((k for k, param in enumerate(func.params) if param.same_as(buffer)), None)


def variables(expression: Any) -> set[Any]:
    """The variables that an index expression mentions."""
    return distinct(collect(expression, tirx.Var))


def loads(expression: Any) -> list[Any]:
    """Every load of an expression, those in indices too."""
    return collect(expression, TensorLoad)


def distinct(objects: Iterable[Any]) -> set[Any]:
    """A set of TVM's objects: their hashes are their addresses, and to compare two takes long."""
    return set({hash(each): each for each in objects}.values())


def all_are_int64(some: Iterable[Any]) -> bool:
    """Whether variables have the type of the places that kernels substitute for them.

    Conditions of padding compare them with numbers of their own type.
    """
    return all(str(variable.ty) == "int64" for variable in some)


def is_zero(value: Any) -> bool:
    """Whether an expression is the number 0."""
    return isinstance(value, tirx.FloatImm | tirx.IntImm) and value.value == 0


def is_number(expression: Any, number: int) -> bool:
    """Whether an expression is an integer, and which."""
    return isinstance(expression, tirx.IntImm) and int(expression) == number


def is_choice(expression: Any) -> bool:
    """Whether an expression is ``if_then_else(condition, value, otherwise)``."""
    return isinstance(expression, Call) and bool(_CHOICE.same_as(expression.op))
