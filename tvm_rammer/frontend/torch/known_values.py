"""Sizes that depend on the data, where the data are known: given constants, buffers and weights.

The edges of a graph that stays the same are an input of the model; where they are given as a
constant, how many of them lead from a node to itself is a number. What such a size needs is
computed here, by PyTorch, and the rest of the program is told the sizes that follow.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tvm_rammer.frontend.input_constants import Constants, as_constant
from tvm_rammer.frontend.torch.mask_positions import index_by_positions
from tvm_rammer.frontend.torch.operator_call import tvm_dtype
from tvm_rammer.frontend.torch.size_guards import without_guards
from tvm_rammer.frontend.torch.size_symbols import has_open_sizes
from tvm_rammer.frontend.torch.weights import new_constant, weight_of


def with_known_sizes(program: Any, constants: Constants, where: str) -> Any:
    """A program in whose graph what decides sizes is a constant, as far as it is known.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The sizes of its inputs are known.
    constants : mapping of str to array_like
        Values of inputs; they stay inputs.
    where : str
        The model, for messages.

    Raises
    ------
    InputError
        A value does not fit its input.
    """
    if not any(map(has_open_sizes, program.graph.nodes)):
        return program
    functional = without_guards(program)[0].run_decompositions(_fourier_definitions())
    index_by_positions(functional.graph)
    computed = _computed(functional, constants, where)
    return _replaced(functional, computed) if computed else program


def _fourier_definitions() -> dict[Any, Any]:
    """PyTorch takes the roots of these operators' sizes, as numbers, where they stay operators."""
    import torch

    definitions = torch.export.default_decompositions().items()
    return {op: how for op, how in definitions if op.__name__.startswith("fft_")}


def _computed(program: Any, constants: Constants, where: str) -> dict[Any, Any]:
    """Values of the nodes that decide sizes, and of those whose sizes they decide."""
    import torch

    wanted: set[Any] = set()
    for node in reversed(program.graph.nodes):
        if has_open_sizes(node) or node in wanted:
            wanted |= {node, *node.all_input_nodes}
    known = dict(_given(program, constants, where))
    computed: dict[Any, Any] = {}
    with torch.no_grad():
        for node in program.graph.nodes:
            inputs = node.all_input_nodes
            if node in wanted and _is_plain(node) and all(each in known for each in inputs):
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
                value = node.target(*args, **kwargs)
                dense = value.contiguous() if isinstance(value, torch.Tensor) else value
                known[node] = computed[node] = dense
    return computed


def _is_plain(node: Any) -> bool:
    """Whether a node computes its result, the same each time, and nothing else."""
    import torch

    if node.op != "call_function" or isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return not random and node.meta.get("val") is not None


def _given(program: Any, constants: Constants, where: str) -> Iterator[tuple[Any, Any]]:
    """The inputs of the graph whose values are known; what a program writes to is not."""
    import torch

    signature = program.graph_signature
    written = {*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()}
    for node in program.graph.find_nodes(op="placeholder"):
        value, weight = node.meta["val"], weight_of(program, node)
        if node.name in constants and isinstance(value, torch.Tensor):
            yield node, _tensor(node.name, constants[node.name], value, where)
        elif weight is not None and weight[1] not in written:
            yield node, weight[0][weight[1]]


def _tensor(name: str, value: Any, like: Any, where: str) -> Any:
    """A constant as a tensor of its input's type."""
    import torch

    dtype = tvm_dtype(like.dtype)
    plain = np.dtype("float32" if dtype == "bfloat16" else dtype)
    return torch.from_numpy(as_constant(name, value, plain, tuple(like.shape), where)).to(
        like.dtype
    )


def _replaced(program: Any, computed: Mapping[Any, Any]) -> Any:
    """The program with constants in place of nodes, and with the sizes that follow from them."""
    import torch
    from torch._dispatch.python import enable_python_dispatcher
    from torch._guards import detect_fake_mode
    from torch.fx.experimental.symbolic_shapes import rebind_unbacked

    module, signature = copy.deepcopy((program.graph_module, program.graph_signature))
    fake = detect_fake_mode([node.meta.get("val") for node in module.graph.nodes])
    values = {node.name: value for node, value in computed.items()}
    constants = dict(program.constants)
    #: What reads something whose sizes have become known.
    told: set[Any] = set()
    symbols = fake.shape_env.ignore_fresh_unbacked_symbols()
    with fake, symbols, torch.no_grad(), enable_python_dispatcher():
        for node in list(module.graph.nodes):
            is_known = node.name in values
            if node.op != "call_function" or not (is_known or node in told):
                continue
            told |= set(node.users)
            value = values[node.name] if is_known else _result(node)
            if isinstance(value, bool | int | float):
                _replace_by_number(node, value)
            elif is_known and isinstance(value, torch.Tensor):
                constant = new_constant(module.graph, signature, f"known_{node.name}")
                constants[constant.name] = value
                constant.meta["val"] = fake.from_tensor(value, static_shapes=True)
                node.replace_all_uses_with(constant)
            else:
                rebind_unbacked(fake.shape_env, node, value)
                node.meta["val"] = value
    _erase_what_is_left(module.graph)
    return program._update(module, signature, constants=constants)


def _result(node: Any) -> Any:
    """What a node gives for inputs of the sizes that they have by now."""
    import torch

    def value(each: Any) -> Any:
        owner = each.graph.owning_module
        return getattr(owner, each.target) if each.op == "get_attr" else each.meta["val"]

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
    return node.target(*args, **kwargs)


def _replace_by_number(node: Any, number: float) -> None:
    import torch

    for user in list(node.users):
        args = (user.args, user.kwargs)
        user.args, user.kwargs = torch.fx.node.map_arg(
            args, lambda each: number if each is node else each
        )


def _erase_what_is_left(graph: Any) -> None:
    """Without what nobody reads any more, and without assertions of what is known."""
    for node in reversed(graph.nodes):
        unread = node.op == "call_function" and not node.users
        if unread and (node.meta.get("val") is not None or not node.all_input_nodes):
            graph.erase_node(node)
