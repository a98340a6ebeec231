"""Complex numbers where a program begins and ends: weights become real, others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.torch.operator_call import place
from tvm_rammer.frontend.torch.weights import weight_of


def has_complex_numbers(node: Any) -> bool:
    """Whether any operand or result of a node is complex."""
    return any(map(_is_complex, (node, *node.all_input_nodes)))


def with_real_ends(program: Any, where: str) -> Any:
    """A program whose complex weights are given by their parts.

    Raises
    ------
    ModelError
        An input or an output is complex.
    """
    outputs = next(iter(program.graph.find_nodes(op="output")))
    for node in outputs.all_input_nodes:
        if _is_complex(node):
            raise ModelError(
                f"{where}: the program returns complex numbers ({place(node)}); return "
                "torch.view_as_real of them"
            )
    for node in program.graph.find_nodes(op="placeholder"):
        if _is_complex(node):
            _make_real(program, node, where)
    return program


def _make_real(program: Any, node: Any, where: str) -> None:
    """Store a weight as a real tensor, which the program takes for complex numbers."""
    import torch

    weight = weight_of(program, node)
    if weight is None:
        raise ModelError(
            f"{where}: input {node.name!r} is complex; take torch.view_as_real of it, and begin "
            "with torch.view_as_complex"
        )
    table, name = weight
    parts = torch.view_as_real(table[name].detach().resolve_conj()).contiguous()
    table[name] = parts
    with program.graph.inserting_after(node):
        joined = program.graph.call_function(torch.ops.aten.view_as_complex.default, (node,))
    node.replace_all_uses_with(joined, delete_user_cb=lambda user: user is not joined)
    joined.meta["val"] = node.meta["val"]
    node.meta["val"] = torch.empty_like(parts, device="meta")


def _is_complex(node: Any) -> bool:
    return any(value.is_complex() for value in _tensors(node.meta.get("val")))


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
