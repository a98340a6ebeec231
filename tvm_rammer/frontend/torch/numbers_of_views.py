"""Sizes that are numbers in the user's code, for which PyTorch has formulas.

In ``x.view(b, h // 3, 3, w // 3, 3)`` it computes the third size: ``h // (h // 3)``. That this is 3
says the program; what follows, such as an attention's scores beside 9 biases, needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from tvm_rammer.frontend.sizes import as_size
from tvm_rammer.frontend.torch.size_symbols import SizeSymbols, is_symbolic

_VIEWS = frozenset({"view.default", "_unsafe_view.default", "reshape.default"})


def missed_numbers(program: Any, sizes: SizeSymbols, symbols: Set[Any]) -> Any:
    """Let sizes be what views say; gives by how much they miss it.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    sizes : SizeSymbols
    symbols : set of sympy.Symbol
        Those of the inputs; what others are is known too late.
    """
    missed = as_size(0)
    for size, number in _numbers(program.graph):
        if size.node.expr.free_symbols <= symbols:
            missed = missed + sizes.learn(size, number)
    return missed


def _numbers(graph: Any) -> Iterator[tuple[Any, int]]:
    for node in graph.nodes:
        if getattr(node.target, "__name__", "") in _VIEWS:
            for size, given in zip(node.meta["val"].shape, node.args[1], strict=True):
                if is_symbolic(size) and isinstance(given, int) and given >= 0:
                    yield size, given
