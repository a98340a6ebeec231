"""The weights of a program: which one an input of its graph is, and new ones."""

from __future__ import annotations

from typing import Any


def weight_of(program: Any, node: Any) -> tuple[dict[str, Any], str] | None:
    """The table that holds the weight which an input of the graph is, and its name there.

    ``None`` for what a user gives.
    """
    specs = program.graph_signature.input_specs
    name = next(spec.target for spec in specs if spec.arg.name == node.name)
    tables = (program.state_dict, program.constants)
    return next(((table, name) for table in tables if name in table), None)


def new_constant(graph: Any, signature: Any, name: str) -> Any:
    """A constant among the inputs of a graph, before those that a user gives."""
    from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

    kinds = [spec.kind for spec in signature.input_specs]
    at = kinds.index(InputKind.USER_INPUT) if InputKind.USER_INPUT in kinds else len(kinds)
    with graph.inserting_before(list(graph.nodes)[at]):
        constant = graph.placeholder(name)
    spec = InputSpec(
        InputKind.CONSTANT_TENSOR, TensorArgument(constant.name), constant.name, persistent=False
    )
    signature.input_specs.insert(at, spec)
    return constant
