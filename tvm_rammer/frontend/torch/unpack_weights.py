"""Weights of 4 bits that PyTorch keeps packed, and those that are floats of 8, become plain floats.

What is worth to be kept short is found later, by the numbers.
"""

from __future__ import annotations

from typing import Any

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.torch.operator_call import refusal, tvm_dtype
from tvm_rammer.frontend.torch.weights import new_constant, weight_of


def unpack_weights(program: Any, where: str) -> None:
    """Give a decomposed program matrices in place of the packed weights of its products.

    Raises
    ------
    ModelError
        Such weights are known only at run time.
    """
    import torch

    made: dict[Any, Any] = {}
    operator = torch.ops.aten._weight_int4pack_mm_for_cpu.default
    for node in program.graph.find_nodes(op="call_function", target=operator):
        x, *packed = node.args
        key = tuple(packed)
        if key not in made:
            values = [_value(program, each, node, where) for each in packed]
            made[key] = _constant(program, f"weights_of_{node.name}", _unpacked(*values))
        _multiply(node, x, made[key])


def widen_small_floats(program: Any, where: str) -> None:
    """Give a decomposed program weights of float32 in place of floats of 8 bits.

    Raises
    ------
    ModelError
        An input is of such a type.
    """
    for node in program.graph.find_nodes(op="placeholder"):
        dtype = getattr(node.meta.get("val"), "dtype", None)
        if not str(dtype).startswith("torch.float8"):
            continue
        weight = weight_of(program, node)
        if weight is None:
            raise ModelError(
                f"{where}: input {node.name!r} is a tensor of {tvm_dtype(dtype)}, which is "
                "supported for weights only; export the program with one of float16 or float32"
            )
        table, name = weight
        table[name] = table[name].detach().float()
        node.meta["val"] = node.meta["val"].float()


def _unpacked(words: Any, size: int, scales: Any) -> Any:
    """The weights ``[K, N]``.

    Only PyTorch knows the order of their bits, which hangs on the processor: its product with a
    unit matrix has them all.
    """
    import torch

    unit = torch.eye(len(scales) * size)
    return torch.ops.aten._weight_int4pack_mm_for_cpu(unit, words, size, scales.float())


def _value(program: Any, argument: Any, user: Any, where: str) -> Any:
    """A weight, or what an operator makes of weights."""
    import torch

    if not isinstance(argument, torch.fx.Node):
        return argument
    if argument.op == "placeholder":
        weight = weight_of(program, argument)
        if weight is not None:
            return weight[0][weight[1]].detach()
        why = "its packed weights are known only at run time"
        advice = "make them parameters or buffers of the model"
        raise ModelError(f"{where}: {refusal(user, why, advice)}")
    args = [_value(program, each, user, where) for each in argument.args]
    return argument.target(*args, **argument.kwargs)


def _constant(program: Any, name: str, value: Any) -> Any:
    """The node of a new constant of a program."""
    node = new_constant(program.graph, program.graph_signature, name)
    node.meta["val"] = value.to("meta")
    program.constants[node.name] = value
    return node


def _multiply(node: Any, x: Any, weights: Any) -> None:
    """Put a product with a matrix in place of a node; it is computed in the weights' type."""
    import torch

    given, short = node.meta["val"], node.meta["val"].dtype
    with node.graph.inserting_before(node):
        found = node.graph.call_function(
            torch.ops.aten._to_copy.default, (x,), {"dtype": torch.float32}
        )
        found.meta = {**node.meta, "val": x.meta["val"].to(torch.float32)}
        found = node.graph.call_function(torch.ops.aten.mm.default, (found, weights))
        found.meta = {**node.meta, "val": given.to(torch.float32)}
        found = node.graph.call_function(
            torch.ops.aten._to_copy.default, (found,), {"dtype": short}
        )
        found.meta = dict(node.meta)
    node.replace_all_uses_with(found)
    node.graph.erase_node(node)
