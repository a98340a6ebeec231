"""Inputs whose sizes a program has as formulas, such as ``2*s0`` or ``s0 - 1``.

The function takes tensors of any sizes, by the names that users gave them; what a formula's symbol
is, is computed of them, and a cast of the tensor to its formulas ends runs that do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tvm import relax

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.sizes import as_size, end_unless_zero
from tvm_rammer.frontend.torch.size_symbols import SizeSymbols, is_symbolic

#: The sizes of tensors by their names, as PyTorch has them.
Shapes = Mapping[str, Sequence[Any]]


def open_shapes(program: Any) -> dict[str, Sequence[Any]]:
    """The sizes of the inputs of a ``torch.export.ExportedProgram`` that have open ones."""
    nodes = program.graph.find_nodes(op="placeholder")
    shapes = {node.name: getattr(node.meta.get("val"), "shape", ()) for node in nodes}
    return {name: shape for name, shape in shapes.items() if any(map(is_symbolic, shape))}


def symbols_of(shapes: Shapes) -> set[Any]:
    """The symbols that sizes of inputs are made of."""
    return {symbol for size in _open(shapes) for symbol in size.node.expr.free_symbols}


def cast_to_formulas(
    builder: relax.BlockBuilder, sizes: SizeSymbols, inputs: Mapping[str, Any], shapes: Shapes
) -> dict[str, Any]:
    """The inputs, those that have formulas for sizes cast to them.

    Parameters
    ----------
    builder : relax.BlockBuilder
    sizes : SizeSymbols
        The names of the sizes.
    inputs : mapping of str to relax.Var
        Of sizes that each run decides.
    shapes : mapping of str to sequence of int or torch.SymInt
        What the program says of them.

    Raises
    ------
    ModelError
        No size tells what a symbol is.
    """
    _define_symbols(builder, sizes, shapes)
    return {
        name: _cast(builder, var, sizes, shapes[name]) if name in shapes else var
        for name, var in inputs.items()
    }


def _cast(builder: relax.BlockBuilder, var: Any, sizes: SizeSymbols, shape: Sequence[Any]) -> Any:
    formulas = sizes.shape(shape)
    if sizes.are_equal(list(map(sizes.of_input, shape)), formulas):
        return var
    return builder.match_cast(var, relax.TensorType(formulas, var.ty.dtype))


def _define_symbols(builder: relax.BlockBuilder, sizes: SizeSymbols, shapes: Shapes) -> None:
    """Compute each symbol that is no size itself of one that is linear in it."""
    formulas = [size for size in _open(shapes) if _is_formula(size)]
    known = {size.node.expr for size in _open(shapes)} & symbols_of(shapes)
    while unknown := symbols_of(shapes) - known:
        found = next(_solvable(formulas, known), None)
        if found is None:
            names = ", ".join(sorted(map(str, unknown)))
            given = ", ".join(sorted({str(size) for size in formulas}))
            raise ModelError(
                f"the sizes {given} of its inputs do not tell what {names} is; give numbers "
                "for them, or export the program with other dimensions as dynamic"
            )
        size, symbol = found
        expression = size.node.expr.expand()
        factor = expression.coeff(symbol)
        rest = sizes.formula(expression - factor * symbol)
        multiple = sizes.simplified(as_size(sizes.of_input(size) - rest))
        sizes.define(symbol, multiple, int(factor))
        end_unless_zero(builder, sizes.simplified(as_size(multiple % int(factor))))
        known.add(symbol)


def _solvable(formulas: Sequence[Any], known: set[Any]) -> Iterator[tuple[Any, Any]]:
    """Sizes that are a multiple of one unknown symbol and something known, with the symbol."""
    for size in formulas:
        expression = size.node.expr.expand()
        unknown = expression.free_symbols - known
        if len(unknown) != 1:
            continue
        (symbol,) = unknown
        factor = expression.coeff(symbol)
        rest = expression - factor * symbol
        if factor.is_Integer and factor > 0 and symbol not in rest.free_symbols:
            yield size, symbol


def _open(shapes: Shapes) -> Iterator[Any]:
    for shape in shapes.values():
        yield from filter(is_symbolic, shape)


def _is_formula(size: Any) -> bool:
    return is_symbolic(size) and not size.node.expr.is_Symbol
