"""Sizes that are known only at run time: which binding finds them out, and who has to wait for it.

What computes something of such a size need not read a variable that the size comes from, and so no
pass that follows variables sees that it comes after.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx
from tvm_ffi import structural_walk

from tvm_rammer.relax_util import relax_functions, variables_read, with_blocks


def bound_sizes(block: Any) -> dict[Any, Any]:
    """Symbolic sizes of a block, and the variable of the binding that finds out what each is.

    A size that the operand of a cast mentions too is known before.
    """
    bound: dict[Any, Any] = {}
    for binding in block.bindings:
        if isinstance(binding, relax.MatchCast):
            known = set(_symbols(binding.value.ty))
            for size in _symbols(binding.ty):
                if size not in known:
                    bound.setdefault(size, binding.var)
    return bound


def read_for(binding: Any, sizes: dict[Any, Any]) -> list[Any]:
    """The variables that a binding reads, itself or for a size of its operands and results."""
    read = dict.fromkeys(variables_read(binding.value))
    if not sizes:
        return list(read)
    for size in (*_symbols(binding.value), *_symbols(binding.var.ty)):
        if size in sizes and not sizes[size].same_as(binding.var):
            read[sizes[size]] = None
    return list(read)


def _symbols(expression: Any) -> list[Any]:
    """The symbolic sizes that an expression or a type mentions."""
    found: list[Any] = []
    structural_walk(expression, (tirx.Var, found.append))
    return found


def in_order(mod: tvm.IRModule) -> tvm.IRModule:
    """A module whose bindings come after those that they read, and that find out their sizes."""
    changed = {}
    for symbol, func in relax_functions(mod).items():
        blocks = [_ordered(block) for block in func.body.blocks]
        if not all(new.same_as(old) for new, old in zip(blocks, func.body.blocks, strict=True)):
            changed[symbol] = with_blocks(func, blocks)
    if not changed:
        return mod
    return tvm.IRModule(dict(mod.functions_items()) | changed, attrs=mod.attrs)


def _ordered(block: Any) -> Any:
    sizes = bound_sizes(block)
    if not sizes:
        return block
    bindings = {binding.var: binding for binding in block.bindings}
    read = {var: [v for v in read_for(b, sizes) if v in bindings] for var, b in bindings.items()}
    placed: dict[Any, Any] = {}
    begun: set[Any] = set()
    stack = list(reversed(bindings))
    while stack:
        missing = [var for var in read[stack[-1]] if var not in placed and var not in begun]
        if missing and stack[-1] not in placed:
            begun.add(stack[-1])
            stack += missing
        else:
            placed.setdefault(stack[-1], bindings[stack.pop()])
    return block if list(placed) == list(bindings) else type(block)(list(placed.values()))
