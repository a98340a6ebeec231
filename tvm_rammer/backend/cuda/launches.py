"""From a scheduled PrimFunc to its launches, one PrimFunc for each, and the same on plain loops.

dlight leaves a sequence of loop nests whose loops are bound to blocks and threads; each nest is a
launch of its own. Buffers between the launches become parameters: so every launch can be lowered by
itself, and no pass sees two at once.

The same nests with the block loops as one loop over tiles and the thread loops as plain ones are
what footprints and operations are counted on. They are never run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from tvm_rammer.errors import ModelError
from tvm_rammer.kernel.loops import sequence
from tvm_rammer.kernel.nodes import collect
from tvm_rammer.kernel.split import Scratch, root_nests

_AXES = "xyz"


@dataclass(frozen=True)
class Launches:
    """The launches of a scheduled PrimFunc.

    Attributes
    ----------
    functions : tuple of PrimFunc
        One for each launch. All have the same parameters: those of the scheduled one, then the
        buffers between the launches.
    plain : PrimFunc
        All launches on plain loops, the loop over blocks of each of kind *parallel*, with the same
        parameters.
    scratch : tuple of Scratch
        The buffers between the launches.
    """

    functions: tuple[tirx.PrimFunc, ...]
    plain: tirx.PrimFunc
    scratch: tuple[Scratch, ...]


def launches_of(func: tirx.PrimFunc) -> Launches:
    """Cut a scheduled PrimFunc at its root nests.

    Raises
    ------
    ModelError
        When it has no root block, or a nest binds an axis to loops of different lengths.
    """
    func = s_tir.renew_defs(func)
    if not isinstance(func.body, s_tir.SBlockRealize):
        raise ModelError("a kernel for CUDA has no root block: leave the operator out of the plan")
    block = func.body.block
    between = [each for each in block.alloc_buffers if each.scope() == "global"]
    inside = [each for each in block.alloc_buffers if each.scope() != "global"]
    params = [*func.params, *between]
    nests = root_nests(func.body)
    functions = (
        s_tir.renew_defs(_with_root(params, nest, [b for b in inside if _uses(nest, b)]))
        for nest in nests
    )
    plain = [_on_plain_loops(nest) for nest in nests]
    scratch = (Scratch(tuple(map(int, b.shape)), str(b.dtype)) for b in between)
    return Launches(tuple(functions), _with_root(params, sequence(plain), inside), tuple(scratch))


def linear_index(extents: dict[str, int], kind: str, index: Any) -> dict[str, Any]:
    """The axes ``kind + ".x"``, ... of blocks or threads as parts of one index, x the fastest.

    Parameters
    ----------
    extents : dict of str to int
        Of the axes that there are, by their tag.
    kind : str
        ``"blockIdx"`` or ``"threadIdx"``.
    index : Expr
        Below the product of their extents.
    """
    own = [tag for tag in (f"{kind}.{axis}" for axis in _AXES) if tag in extents]
    tags = [tag for tag in own if extents[tag] > 1]
    found: dict[str, Any] = {tag: tirx.const(0, "int32") for tag in own}
    step = 1
    for tag in tags:
        value = index if step == 1 else tirx.floordiv(index, step)
        found[tag] = value if tag == tags[-1] else tirx.floormod(value, extents[tag])
        step *= extents[tag]
    return found


def count(extents: dict[str, int], kind: str) -> int:
    """How many blocks or threads there are."""
    of_kind = (extent for tag, extent in extents.items() if tag.startswith(kind))
    return reduce(lambda a, b: a * b, of_kind, 1)


def bound_extents(pairs: list[tuple[str, int]]) -> dict[str, int]:
    """The extent of every axis that loops are bound to.

    Raises
    ------
    ModelError
        When loops of different lengths are bound to one axis.
    """
    extents: dict[str, int] = {}
    for tag, extent in pairs:
        if extents.setdefault(tag, extent) != extent:
            raise ModelError(
                f"a kernel for CUDA binds loops of {extents[tag]} and of {extent} steps to {tag}: "
                "leave the operator out of the plan"
            )
    return extents


def _with_root(params: list[Any], nest: Any, inside: list[Any]) -> tirx.PrimFunc:
    root = s_tir.SBlock([], [], [], "root", nest, alloc_buffers=inside)
    body = s_tir.SBlockRealize([], True, root)
    return tirx.PrimFunc(params, body).with_attrs({"global_symbol": "main", "s_tir": True})


def _uses(nest: Any, buffer: Any) -> bool:
    """Whether a nest mentions a buffer anywhere."""
    found = tvm_ffi.structural_walk(
        nest,
        (
            tirx.Var,
            lambda v: tvm_ffi.structural.VisitInterrupt(1) if v.same_as(buffer) else None,
        ),
    )
    return found is not None


def _on_plain_loops(nest: Any) -> Any:
    """A nest with one loop over its blocks, of kind parallel, and plain loops over threads."""
    bound = [loop for loop in collect(nest, tirx.For) if _tag(loop)]
    extents = bound_extents([(_tag(loop), int(loop.extent)) for loop in bound])
    blocks = [loop for loop in bound if _tag(loop).startswith("blockIdx")]
    tile = tirx.Var("tile", blocks[0].loop_var.ty if blocks else "int32")
    indices = linear_index(extents, "blockIdx", tile)
    values = {loop.loop_var: indices[_tag(loop)].astype(str(tile.ty)) for loop in blocks}

    def plain(loop: Any) -> Any:
        tag = _tag(loop)
        if not tag:
            return loop
        if tag.startswith("blockIdx"):
            return loop.body
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    body = tvm_ffi.structural_map(nest, (tirx.For, plain))
    body = tvm_ffi.structural_map(body, (tirx.Var, lambda v: values.get(v, v)))
    tiles = tirx.const(count(extents, "blockIdx"), str(tile.ty))
    return tirx.For(tile, tirx.const(0, str(tile.ty)), tiles, tirx.ForKind.PARALLEL, body)


def _tag(loop: Any) -> str:
    """What a loop is bound to; empty if to nothing."""
    return str(loop.thread_binding.thread_tag) if loop.thread_binding is not None else ""
