"""What a program keeps from one run to the next, such as a decoder's keys and values.

In the program it is a buffer that changes. A compiled model takes it as an input and returns its
new value; who runs it passes that on to the next run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tvm_ffi import from_dlpack

from tvm_rammer.tensors import as_tensor
from tvm_rammer.transform.attach_description import State


def pass_state_on(program: Any) -> tuple[State, ...]:
    """Make what a decomposed program changes its last inputs, and the new values its last outputs.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Is changed, and its tensors are not.
    """
    from torch.export.graph_signature import OutputKind

    signature = program.graph_signature
    end = next(iter(program.graph.find_nodes(op="output")))
    results = list(zip(signature.output_specs, end.args[0], strict=True))
    # Older versions of PyTorch know no parameters that change.
    kinds = {OutputKind.BUFFER_MUTATION, getattr(OutputKind, "PARAMETER_MUTATION", None)}
    changed = [(spec, value) for spec, value in results if spec.kind in kinds]
    left = [(spec, value) for spec, value in results if spec.kind not in kinds]
    changed = [(spec, _fitting(program, spec.target, value, end)) for spec, value in changed]
    states = tuple(_made_inputs(program, [spec.target for spec, _ in changed]))
    given = [replace(spec, kind=OutputKind.USER_OUTPUT, target=None) for spec, _ in changed]
    signature.output_specs[:] = [*(spec for spec, _ in left), *given]
    end.args = (tuple(value for _, value in [*left, *changed]),)
    return states


def _fitting(program: Any, target: str, value: Any, end: Any) -> Any:
    """A value as a buffer takes it: PyTorch casts and broadcasts what is assigned to one."""
    import torch

    buffer, graph = _home(program, target)[target], program.graph
    operators: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    if value.meta["val"].dtype != buffer.dtype:
        operators.append((torch.ops.aten._to_copy.default, (), {"dtype": buffer.dtype}))
    if value.meta["val"].shape != buffer.shape:
        operators.append((torch.ops.aten.expand.default, (list(buffer.shape),), {}))
    for operator, arguments, keywords in operators:
        with graph.inserting_before(end):
            node = graph.call_function(operator, (value, *arguments), keywords)
        node.meta["val"] = operator(value.meta["val"], *arguments, **keywords)
        value = node
    return value


def _home(program: Any, target: str) -> Any:
    """The table of a program that a buffer or a parameter is in."""
    return program.state_dict if target in program.state_dict else program.constants


def _made_inputs(program: Any, targets: list[str]) -> Iterator[State]:
    from torch.export.graph_signature import InputKind

    specs = program.graph_signature.input_specs
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    for target in targets:
        spec = next(each for each in specs if each.target == target)
        node, last = nodes[spec.arg.name], nodes[specs[-1].arg.name]
        if node is not last:
            last.append(node)
        specs.remove(spec)
        specs.append(replace(spec, kind=InputKind.USER_INPUT, target=None, persistent=None))
        yield State(target, _initial(_home(program, target).pop(target)))


def _initial(tensor: Any) -> Any:
    """A copy of a tensor of PyTorch's: the program's own changes when it is run."""
    if not tensor.any():
        return None
    copy = tensor.detach().cpu().clone().contiguous()
    try:
        return as_tensor(copy.numpy())
    except TypeError:
        # NumPy has no bfloat16.
        return from_dlpack(copy)
