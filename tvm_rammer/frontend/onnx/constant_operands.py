"""Refuses nodes whose operands are data where TVM's importer needs constants."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.describe import describe
from tvm_rammer.frontend.onnx.names import subgraphs
from tvm_rammer.frontend.onnx.operators.table import REDUCTIONS

#: What the operands are that must be constants, by their number.
_CONSTANTS: Mapping[str, Mapping[int, str]] = {
    **{name: {1: "axes"} for name in REDUCTIONS},
    "CumProd": {1: "axis"},
    "CumSum": {1: "axis"},
    "Pad": {1: "pads", 2: "value", 3: "axes"},
    "Split": {1: "sizes of its parts"},
    "TopK": {1: "k"},
}


def refuse_run_time_operands(
    graph: onnx.GraphProto, where: str, outside: Collection[str] = ()
) -> None:
    """Raise a ModelError for a node of which such an operand is data.

    Parameters
    ----------
    graph : onnx.GraphProto
        All constants are initialisers.
    where : str
        The model, for messages.
    outside : collection of str
        Constants of the graphs around this one.
    """
    constants = {*outside, *(tensor.name for tensor in graph.initializer)}
    for node in graph.node:
        for inner in subgraphs(node):
            refuse_run_time_operands(inner, where, constants)
        for number, what in _CONSTANTS.get(node.op_type, {}).items():
            name = node.input[number] if number < len(node.input) else ""
            if name and name not in constants:
                raise ModelError(
                    f"{where}: {describe(node)} cannot be compiled: of its {what}, {name!r}, the "
                    "value is known only at run time; fix the inputs that decide it with constants="
                )
