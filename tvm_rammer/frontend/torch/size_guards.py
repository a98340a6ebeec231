"""What a program assumes of its open sizes besides their ranges: the guards of its export.

PyTorch follows one way through the user's code, and keeps as text what it found true of the sizes
on that way, such as ``L['x'].size()[0] % 2 == 0``. Another way would compute something else, so
runs whose sizes are not so end with an error.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add, mul, sub
from typing import Any

from tvm import tirx

from tvm_rammer.errors import InputError
from tvm_rammer.frontend.sizes import as_size, quotient, remainder
from tvm_rammer.frontend.torch.size_symbols import SizeSymbols, excess_of

#: A size in a guard: where the tensor is among the arguments, and its axis.
_SIZE = re.compile(r"\bL((?:\[[^\]]+\])+)\.size\(\)\[(\d+)\]")
_KEY = re.compile(r"\[([^\]]+)\]")
#: What programs of strict exports call all arguments.
_FLAT = "flat_args"


def without_guards(program: Any) -> tuple[Any, list[str]]:
    """A program that checks nothing of its sizes, and what it would check.

    Where PyTorch decomposes or runs a program, it makes code of its guards, and fails to for those
    of variable keyword arguments. Programs that it makes of others have guards again.
    """
    free = copy.copy(program)
    free._guards_code = []
    return free, list(getattr(program, "_guards_code", None) or ())


def unmet(program: Any, sizes: SizeSymbols, where: str) -> Any:
    """By how much sizes miss the guards of a program: 0 where all hold.

    Guards of what is no size, such as strides, do not count: tensors are dense here.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    sizes : SizeSymbols
    where : str
        The model, for messages.

    Raises
    ------
    InputError
        Sizes that are known miss one.
    """
    names = list(map(str, program.graph_signature.user_inputs))
    nodes = program.graph.find_nodes(op="placeholder")
    shapes = {node.name: getattr(node.meta.get("val"), "shape", ()) for node in nodes}
    missed = as_size(0)
    for guard in program._guards_code:
        try:
            tree, formulas = _parsed(guard, names, shapes)
            excess = sizes.simplified(_excess(tree, list(map(sizes.size, formulas))))
        except (_OtherGuardError, SyntaxError, RecursionError):
            continue
        if isinstance(excess, int) and excess:
            raise InputError(
                f"{where}: the program was exported for sizes of which {guard} holds, and for the "
                "given ones it does not; give others, or export it for them"
            )
        missed = missed + excess
    return sizes.simplified(missed)


class _OtherGuardError(Exception):
    """A guard is of something else than open sizes."""


def _parsed(
    guard: str, names: Sequence[str], shapes: Mapping[str, Sequence[Any]]
) -> tuple[ast.AST, list[Any]]:
    """A relation of ``_0``, ``_1``, ..., and what these are."""
    formulas: list[Any] = []

    def place(found: re.Match[str]) -> str:
        keys = [key.strip("'\"") for key in _KEY.findall(found[1])]
        name, axis = next(_named(keys, names), None), int(found[2])
        if name is None or axis >= len(shapes[name]):
            raise _OtherGuardError
        formulas.append(shapes[name][axis])
        return f"_{len(formulas) - 1}"

    text = _SIZE.sub(place, guard).replace("\n", " ")
    return ast.parse(text.strip(), mode="eval").body, formulas


def _named(keys: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """The inputs that PyTorch may have made of keys into the arguments."""
    if keys[0] == _FLAT and len(keys) > 1 and keys[1].isdecimal():
        yield from names[int(keys[1]) :][:1]
    # The name of variable keyword arguments is no part of what they are called.
    yield from (name for name in ("_".join(keys), "_".join(keys[1:])) if name in names)


def _excess(tree: ast.AST, formulas: Sequence[Any]) -> Any:
    """By how much a relation is missed."""
    if isinstance(tree, ast.BoolOp):
        join = add if isinstance(tree.op, ast.And) else mul
        return reduce(join, (_excess(value, formulas) for value in tree.values))
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
        kind = _RELATIONS.get(type(tree.ops[0]))
        left, right = (_value(part, formulas) for part in (tree.left, tree.comparators[0]))
        if kind is not None:
            return excess_of(kind, left, right)
    raise _OtherGuardError


def _value(tree: ast.AST, formulas: Sequence[Any]) -> Any:
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    if isinstance(tree, ast.Name) and tree.id.removeprefix("_").isdecimal():
        return formulas[int(tree.id[1:])]
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_value(tree.operand, formulas)
    if isinstance(tree, ast.BinOp) and (compute := _OPERATORS.get(type(tree.op))):
        return compute(_value(tree.left, formulas), _value(tree.right, formulas))
    if isinstance(tree, ast.Call) and (limit := _LIMITS.get(ast.unparse(tree.func))):
        return reduce(limit, (as_size(_value(part, formulas)) for part in tree.args))
    raise _OtherGuardError


_LIMITS: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("max", "torch.sym_max"), tirx.max),
    **dict.fromkeys(("min", "torch.sym_min"), tirx.min),
}
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.FloorDiv: quotient,
    ast.Mod: remainder,
}
_RELATIONS: Mapping[type, str] = {
    ast.Eq: "Equality",
    ast.NotEq: "Unequality",
    ast.GtE: "GreaterThan",
    ast.LtE: "LessThan",
    ast.Gt: "StrictGreaterThan",
    ast.Lt: "StrictLessThan",
}
