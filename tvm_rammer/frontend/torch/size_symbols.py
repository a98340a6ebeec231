"""Sizes that only the run tells: for each of PyTorch's symbols one of TVM's.

Where an operator has as many results as its data say, PyTorch names their number (``u0``), and
computes with the name what other sizes follow. Its formulas become TVM's here; the name is bound
where the operator's result is cast to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import mul
from typing import Any

import tvm
from tvm import relax, sym, tirx

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend import ratios
from tvm_rammer.frontend.ratios import SizeRatio
from tvm_rammer.frontend.sizes import FAR, as_number, as_size, distance, quotient, remainder

#: What programs compute with sizes; the results' formulas say how.
SIZE_OPERATORS = (
    *("sym_size.int", "sym_numel.default", "sym_max", "sym_min", "sym_sum", "add", "sub", "mul"),
    *("floordiv", "mod", "neg", "pow"),
    *("truediv", "sym_float", "ceil", "floor", "trunc"),
)

#: How they compare sizes; the formula of what is compared is in what is asserted.
SIZE_RELATIONS = ("ge", "gt", "le", "lt", "eq", "ne", "and_", "or_", "not_", "sym_not")
#: What PyTorch takes a number of results for, at least, whose operator says nothing about it.
FEWEST = 2

#: A size: a number, or what the run computes.
Size = Any


class SizeSymbols:
    """TVM's names of the sizes of one program.

    Parameters
    ----------
    names : mapping of str to str, optional
        What users call the sizes of inputs, by PyTorch's symbols or formulas: equal names are equal
        sizes.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        given = names or {}
        called = {name: tirx.Var(name, "int64") for name in given.values()}
        self._names = {symbol: called[name] for symbol, name in given.items()}
        self._analyzer = sym.Analyzer()
        for size in called.values():
            self._analyzer.bind(size, tvm.ir.Range(as_size(1), as_size(FAR)))
        self._numbers: dict[Any, Any] = {}
        self._pretended: set[str] = set()
        self._defined: dict[str, tuple[Any, int]] = {}

    def size(self, size: Any) -> Size:
        """A size as TVM has it; of a float of sizes, the quotient that it is.

        Parameters
        ----------
        size : int, torch.SymInt or torch.SymFloat

        Raises
        ------
        ModelError
            A formula has no form in TVM.
        """
        import torch

        if isinstance(size, int):
            return size
        formula = self._with_numbers(size)
        return self.formula(formula) if isinstance(size, torch.SymInt) else self._ratio(formula)

    def shape(self, sizes: Sequence[Any]) -> tuple[Size, ...]:
        """The sizes of a tensor."""
        return tuple(map(self.size, sizes))

    def are_equal(self, shape: Sequence[Size], other: Sequence[Size | None]) -> bool:
        """Whether two shapes of one rank are the same for all values of the names."""
        pairs = zip(shape, other, strict=True)
        return all(
            size is not None and (one == size or self._analyzer.can_prove_equal(one, size))
            for one, size in pairs
        )

    def of_input(self, size: Any) -> Size:
        """A size of an input, by the name that users gave it."""
        return size if isinstance(size, int) else self.of_symbol(size)

    def learn(self, size: Any, number: int) -> Size:
        """Let a size be a number that the program says it is; gives by how much it misses that."""
        import sympy

        formula = self._with_numbers(size)
        if formula.is_Integer:
            return 0
        missed = distance(self.formula(formula), number)
        self._numbers[formula] = sympy.Integer(number)
        return missed

    def _with_numbers(self, size: Any) -> Any:
        return size.node.expr.xreplace(self._numbers)

    def define(self, symbol: Any, multiple: Any, factor: int) -> None:
        """Let a symbol of inputs be what something known, a multiple of it, says."""
        self._defined[str(symbol)] = multiple, factor

    def of_symbol(self, symbol: Any) -> Size:
        """TVM's name for one of PyTorch's, or what it was defined as."""
        if str(symbol) in self._defined:
            multiple, factor = self._defined[str(symbol)]
            return self.simplified(as_size(multiple) // factor)
        name = str(symbol)
        return self._names.setdefault(name, tirx.Var(name, "int64"))

    def bound(self, symbol: Any, most: int | None) -> None:
        """Note that a name is a number of elements, perhaps of ``most`` ones."""
        beyond = FAR if most is None else most + 1
        self._analyzer.bind(self.of_symbol(symbol), tvm.ir.Range(as_size(0), as_size(beyond)))

    def pretend(self, symbol: Any) -> None:
        """Note that PyTorch takes a name for 2 or more, where an operator may give less."""
        self._pretended.add(str(symbol))

    def excess(self, relation: Any) -> Size:
        """By how much sizes miss a relation of PyTorch's: 0 where it holds.

        Raises
        ------
        ModelError
            It has no form in TVM.
        """
        kind = type(relation).__name__
        if kind in ("BooleanTrue", "BooleanFalse"):
            return int(kind == "BooleanFalse")
        parts = relation.args
        if kind == "GreaterThan" and str(parts[0]) in self._pretended and parts[1] == FEWEST:
            return 0
        if kind in ("And", "Or"):
            return _FORMULAS["Add" if kind == "And" else "Mul"](*map(self.excess, parts))
        if kind not in _EXCESS:
            raise ModelError(f"a check of sizes that asks for {relation} is not supported")
        return self.simplified(excess_of(kind, *map(self.formula, parts)))

    def simplified(self, size: Any) -> Size:
        """A formula in its simplest form; a number where it is known."""
        return as_number(self._analyzer.simplify(size))

    def formula(self, formula: Any) -> Size:
        """A formula of PyTorch's symbols as TVM has it."""
        if formula.is_Integer:
            return int(formula)
        if formula.is_Symbol:
            return self.of_symbol(formula)
        kind = type(formula).__name__
        if kind == "Mul" and (whole := self._multiple(*formula.as_coeff_Mul())) is not None:
            return whole
        if kind in _ROUNDED:
            rounded = _ROUNDED[kind](self._ratio(formula.args[0]))
            return self.simplified(as_size(rounded.numerator))
        if kind not in _FORMULAS or (kind == "Pow" and not formula.exp.is_Integer):
            raise ModelError(f"a size that is computed as {formula} is not supported")
        return _FORMULAS[kind](*map(self.formula, formula.args))

    def _multiple(self, times: Any, symbol: Any) -> Size | None:
        """So many times a symbol that was defined, where that takes no division."""
        multiple, factor = self._defined.get(str(symbol), (None, 1))
        if multiple is None or not times.is_Integer or int(times) % factor:
            return None
        return self.simplified(as_size(multiple) * (int(times) // factor))

    def _ratio(self, formula: Any) -> SizeRatio:
        """A float that is computed of sizes, which are not negative."""
        kind = type(formula).__name__
        if formula.is_Float:
            found = ratios.ratio_of(float(formula))
        elif kind == "ToFloat":
            found = SizeRatio(self.formula(formula.args[0]))
        elif kind in _OF_RATIOS:
            found = reduce(_OF_RATIOS[kind], map(self._ratio, formula.args))
        else:
            found = SizeRatio(self.formula(formula))
        if found is None:
            raise ModelError(f"a size that is computed as {formula} is not supported")
        return found


def is_symbolic(value: Any) -> bool:
    """Whether a value that PyTorch computes with is a number, but not a known one."""
    import torch

    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def has_open_sizes(node: Any) -> bool:
    """Whether a result of a node of a graph has a size, or is a number, that only the run tells."""
    value = node.meta.get("val") if node.op == "call_function" else None
    for each in value if isinstance(value, tuple | list) else [value]:
        if any(map(is_symbolic, getattr(each, "shape", (each,)))):
            return True
    return False


def size_as_tensor(builder: relax.BlockBuilder, size: Size) -> Any:
    """A size as a tensor of int64 without axes."""
    vector = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([size])))
    return builder.emit(relax.op.reshape(vector, ()))


def bind_size(builder: relax.BlockBuilder, tensor: Any, size: tirx.Var) -> None:
    """Let a tensor of one integer say what a size is."""
    vector = builder.emit(relax.op.reshape(relax.op.astype(tensor, "int64"), (1,)))
    shape = builder.emit(relax.op.tensor_to_shape(vector))
    builder.match_cast(shape, relax.ShapeType([size]))


def _joined(join: Callable[[Any, Any], Any]) -> Callable[..., Size]:
    return lambda *parts: reduce(join, parts)


#: Floats of sizes become sizes again.
_ROUNDED = {"TruncToInt": ratios.floor, "FloorToInt": ratios.floor, "CeilToInt": ratios.ceil}
_OF_RATIOS: dict[str, Callable[[SizeRatio, SizeRatio], Any]] = {
    "Add": ratios.add,
    "Mul": ratios.multiply,
    **dict.fromkeys(("FloatTrueDiv", "IntTrueDiv"), ratios.divide),
}
_FORMULAS: dict[str, Callable[..., Size]] = {
    "Add": lambda *parts: sum(parts),
    "Mul": _joined(mul),
    "Pow": lambda base, times: reduce(mul, [base] * times, 1),
    "Max": _joined(tirx.max),
    "Min": _joined(tirx.min),
    **dict.fromkeys(("FloorDiv", "CleanDiv", "IntTrueDiv"), quotient),
    **dict.fromkeys(("Mod", "PythonMod"), remainder),
}


def missing(least: Any, size: Any) -> Any:
    """By how much a size is below another one."""
    return tirx.max(least - size, as_size(0))


def excess_of(relation: str, left: Any, right: Any) -> Any:
    """By how much two sizes miss a relation, by the name that sympy has for it."""
    return _EXCESS[relation](as_size(left), as_size(right))


#: By how much a relation is missed.
_EXCESS: dict[str, Callable[[Any, Any], Any]] = {
    "Equality": distance,
    "Unequality": lambda left, right: missing(as_size(1), distance(left, right)),
    "GreaterThan": lambda left, right: missing(right, left),
    "LessThan": lambda left, right: missing(left, right),
    "StrictGreaterThan": lambda left, right: missing(right + 1, left),
    "StrictLessThan": lambda left, right: missing(left + 1, right),
}
