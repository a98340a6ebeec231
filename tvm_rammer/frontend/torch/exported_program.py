"""An exported program as the converters need it: sizes known, decomposed, inputs only tensors."""

from __future__ import annotations

import copy
import inspect
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.input_constants import Constants
from tvm_rammer.frontend.input_shapes import (
    Dims,
    Shapes,
    Size,
    require_memory,
    resolved_shapes,
)
from tvm_rammer.frontend.loaded_model import one_line
from tvm_rammer.frontend.torch.converters import CONVERTERS
from tvm_rammer.frontend.torch.known_values import with_known_sizes
from tvm_rammer.frontend.torch.mask_positions import index_by_positions
from tvm_rammer.frontend.torch.operator_call import refusal
from tvm_rammer.frontend.torch.quantized_definitions import quantized_definitions
from tvm_rammer.frontend.torch.random_definitions import DRAWN, random_definitions
from tvm_rammer.frontend.torch.size_guards import without_guards
from tvm_rammer.frontend.torch.size_symbols import (
    SIZE_OPERATORS,
    SIZE_RELATIONS,
    is_symbolic,
)
from tvm_rammer.frontend.torch.unpack_weights import unpack_weights, widen_small_floats

_ASSERTIONS = frozenset(
    {"_assert_async.msg", "_assert_async.default"}
    | {"_assert_tensor_metadata.default", "sym_constrain_range_for_size.default"}
    | {"sym_constrain_range.default"}
)

#: Where the sizes begin that are tried in place of open ones: PyTorch takes 0 and 1 as they are.
_EXAMPLE = 3

#: What computes otherwise in training, and how.
_TRAINED = {
    "batch_norm": "it normalises by the statistics of each batch",
    "dropout": "it drops elements at random",
}

#: What is part of the graph's language, or has a meaning in the whole program.
_LANGUAGE = frozenset(
    {
        "getitem",
        "cond",
        "while_loop",
        "scan",
        "_assert_scalar.default",
        *DRAWN,
        *SIZE_OPERATORS,
        *SIZE_RELATIONS,
    }
)


def prepared(
    program: Any, shapes: Shapes, constants: Constants, where: str
) -> tuple[Any, dict[str, str]]:
    """A program of the same meaning whose every node has a converter.

    The names of its sizes that each run decides are those that are given for them.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    shapes : mapping of str to sequence of int
        Sizes for the inputs whose sizes may change.
    constants : mapping of str to array_like
        Values of inputs, for sizes that depend on them.
    where : str
        The model, for messages.

    Raises
    ------
    ModelError
        An operator or a feature of the program is not supported.
    InputError
        ``shapes`` or ``constants`` do not fit the program.
    """
    program, guards = without_guards(program)
    program, sizes = _specialised(program, shapes, where)
    names = _open_names(program, sizes)
    program, more = without_guards(program)
    _check_training(program, where)
    program = with_known_sizes(program, constants, where)
    program = decomposed(program)
    _check_open(program, sizes, where)
    for graph in _graphs(program):
        index_by_positions(graph)
    # Some versions of PyTorch give it the tables of the user's program.
    program._state_dict, program._constants = dict(program.state_dict), dict(program.constants)
    _drop_unchanged_state(program)
    _check_inputs(program, where)
    _drop_what_is_no_tensor(program)
    unpack_weights(program, where)
    widen_small_floats(program, where)
    _share_equal_weights(program)
    _check_operators(program, where)
    program._guards_code = [*guards, *more]
    return program, names


def decomposed(program: Any) -> Any:
    """A program in which every operator without a converter is replaced by PyTorch's definition."""
    import torch
    from torch._decomp import global_decomposition_table
    from torch._export.verifier import SpecViolationError

    definitions = {
        op: definition
        for op, definition in global_decomposition_table["post_autograd"].items()
        if isinstance(op, torch._ops.OpOverload)
    }
    definitions.update(torch.export.default_decompositions().items())
    definitions = {op: how for op, how in definitions.items() if op.__name__ not in CONVERTERS}
    definitions[torch.ops.aten.view.default] = _view
    definitions.update(_without_checks() | quantized_definitions() | random_definitions())
    definitions[torch.ops.aten.masked_select.default] = _masked_select
    program, _ = without_guards(_with_buffers_once(program))
    try:
        return program.run_decompositions(definitions)
    except SpecViolationError:
        apart, _ = without_guards(_with_values_apart(program))
        return apart.run_decompositions(definitions)


def _without_checks() -> dict[Any, Any]:
    """Linear algebra that raises no errors of the data, which PyTorch has as side effects."""
    import torch

    aten, linalg = torch.ops.aten, torch.linalg
    return {
        aten.linalg_inv.default: lambda x: linalg.inv_ex(x)[0],
        aten.inverse.default: lambda x: linalg.inv_ex(x)[0],
        aten.linalg_solve.default: lambda x, y, *, left=True: linalg.solve_ex(x, y, left=left)[0],
        aten.linalg_cholesky.default: (
            lambda x, *, upper=False: linalg.cholesky_ex(x, upper=upper)[0]
        ),
    }


def _with_buffers_once(program: Any) -> Any:
    """A program whose buffers are no constants besides; PyTorch cannot decompose one that is.

    Caches that no module owns are constants of the program, also where the user registered them.
    """
    from torch.export.graph_signature import InputKind

    signature = copy.deepcopy(program.graph_signature)
    specs = signature.input_specs
    weights = {**program.state_dict, **program.constants}
    owners = {
        key: spec.arg.name
        for spec in reversed(specs)
        if spec.kind is InputKind.BUFFER and (key := _memory(weights.get(spec.target)))
    }
    same = {
        spec.arg.name: owners[key]
        for spec in specs
        if spec.kind is InputKind.CONSTANT_TENSOR
        and (key := _memory(weights.get(spec.target))) in owners
    }
    if not same:
        return program
    module = copy.deepcopy(program.graph_module)
    nodes = {node.name: node for node in module.graph.find_nodes(op="placeholder")}
    for name, owner in same.items():
        nodes[name].replace_all_uses_with(nodes[owner])
        module.graph.erase_node(nodes[name])
    unused = {spec.target for spec in specs if spec.arg.name in same}
    specs[:] = [spec for spec in specs if spec.arg.name not in same]
    constants = {name: value for name, value in program.constants.items() if name not in unused}
    return program._update(module, signature, constants=constants)


def _memory(tensor: Any) -> Any:
    """What is the same for names of one tensor; ``None`` if nothing says so."""
    import torch

    if tensor is None or tensor.layout is not torch.strided or tensor.data_ptr() == 0:
        return None
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _with_values_apart(program: Any) -> Any:
    """A program that gives no value to two buffers: PyTorch's own check refuses one that does."""
    import torch

    module = copy.deepcopy(program.graph_module)
    assign = torch.ops.aten.copy_.default
    for node in module.graph.find_nodes(op="call_function", target=assign):
        buffer, value, *rest = node.args
        with module.graph.inserting_before(node):
            clone = module.graph.call_function(torch.ops.aten.clone.default, (value,))
        clone.meta = dict(value.meta)
        node.args = (buffer, clone, *rest)
    return program._update(module, program.graph_signature)


def _view(x: Any, sizes: list[int]) -> Any:
    """A view, or a copy where a definition has laid out its result otherwise than the operator."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    try:
        return NotImplemented if x.is_contiguous() else x.contiguous().view(sizes)
    except GuardOnDataDependentSymNode:
        return NotImplemented


def _masked_select(x: Any, mask: Any) -> Any:
    import torch

    x, mask = torch.broadcast_tensors(x, mask)
    return x[mask]


def _check_training(program: Any, where: str) -> None:
    """Nobody means to deploy statistics of batches, or dropout, that change with every run."""
    for graph in _graphs(program):
        for node in graph.nodes:
            schema = getattr(node.target, "_schema", None)
            if schema is None or not any(each in schema.name for each in _TRAINED):
                continue
            given = dict(zip((each.name for each in schema.arguments), node.args, strict=False))
            given |= node.kwargs
            training = given.get("training") is True or given.get("train") is True
            # Weights may be normalised without any statistics of batches; and what is dropped with
            # a chance of 0 or 1 is nothing or all.
            rate = given.get("p") or 0
            if training and (given.get("running_mean") is not None or 0 < rate < 1):
                why = next(why for each, why in _TRAINED.items() if each in schema.name)
                advice = "call model.eval() before the export"
                raise ModelError(f"{where}: {refusal(node, f'{why}, as in training', advice)}")


def _check_inputs(program: Any, where: str) -> None:
    for name in program.graph_signature.user_inputs_to_mutate.values():
        warnings.warn(
            f"{where}: the program changes its input {name!r} in place; the compiled model "
            "leaves it as it is",
            stacklevel=2,
        )


def _specialised(
    program: Any, shapes: Shapes, where: str
) -> tuple[Any, Mapping[str, Sequence[Size]]]:
    """The program for given sizes, exported again if some are fixed that may change.

    And the sizes of its inputs.
    """
    dims = dict(_inputs(program, where))
    sizes = resolved_shapes(dims, shapes, where)
    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    require_memory(sizes, {name: values[name].element_size() for name in sizes}, where)
    changing = [
        size
        for name, shape in dims.items()
        for size, dim in zip(sizes[name], shape or (), strict=False)
        if isinstance(dim, str)
    ]
    if any(isinstance(size, int) for size in changing):
        program = _exported_again(program, sizes, values, where)
    return program, sizes


def _exported_again(
    program: Any, sizes: Mapping[str, Sequence[Size]], values: Mapping[str, Any], where: str
) -> Any:
    """A program for some sizes; those that have names stay open."""
    import torch

    names = _user_inputs(program)
    numbers = _examples({size for shape in sizes.values() for size in shape})
    flat = [
        torch.zeros([numbers.get(size, size) for size in sizes[name]], dtype=values[name].dtype)
        if name in sizes
        else values[name]
        for name in names
    ]
    auto = torch.export.Dim.AUTO
    dynamic = [
        {axis: auto for axis, size in enumerate(sizes.get(name, ())) if isinstance(size, str)}
        for name in names
    ]
    spec = program.call_spec.in_spec
    args, kwargs = torch.utils._pytree.tree_unflatten(flat, spec)
    open_args, open_kwargs = torch.utils._pytree.tree_unflatten(dynamic, spec)
    module = program.module()
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    several = dict(zip(given, open_args, strict=False)) | open_kwargs
    try:
        return torch.export.export(
            module, args, kwargs, dynamic_shapes=several if any(dynamic) else None
        )
    except Exception as error:
        raise ModelError(
            f"{where}: PyTorch cannot export the program for these shapes: {one_line(error)}"
        ) from error


def _examples(sizes: Set[Size]) -> dict[Size, int]:
    """A number for each size that is open, of which no two are equal, or equal to a known one."""
    free = (number for number in itertools.count(_EXAMPLE) if number not in sizes)
    return {name: next(free) for name in sorted(each for each in sizes if isinstance(each, str))}


def _open_names(program: Any, sizes: Mapping[str, Sequence[Size]]) -> dict[str, str]:
    """What users call the sizes that are open, by the program's symbols or formulas."""
    named = _named_sizes(program, sizes)
    return {str(dim): name for _, _, dim, name in named if not isinstance(dim, int)}


def _check_open(program: Any, sizes: Mapping[str, Sequence[Size]], where: str) -> None:
    """Refuse names for what follows from known sizes, or is a number in PyTorch's definitions."""
    for node, axis, dim, name in _named_sizes(program, sizes):
        if str(dim).isdigit():
            raise ModelError(
                f"{where}: size {name!r} (axis {axis} of input {node.name!r}) cannot stay open: "
                f"in this program PyTorch takes it for {dim}; give that number in shapes="
            )


def _named_sizes(
    program: Any, sizes: Mapping[str, Sequence[Size]]
) -> Iterator[tuple[Any, int, Any, str]]:
    """Inputs, axes, what the program says of their sizes, and names that are given for them."""
    for node in program.graph.find_nodes(op="placeholder"):
        dims = getattr(node.meta.get("val"), "shape", ())
        for axis, (dim, size) in enumerate(zip(dims, sizes.get(node.name, ()), strict=False)):
            if isinstance(size, str):
                yield node, axis, dim, size


def _user_inputs(program: Any) -> list[str]:
    from torch.export.graph_signature import InputKind

    specs = program.graph_signature.input_specs
    return [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]


def _inputs(program: Any, where: str) -> Iterator[tuple[str, Dims]]:
    """The tensors that a program takes, with sizes or symbols for the sizes that may change."""
    import torch

    given = set(map(str, program.graph_signature.user_inputs))
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise ModelError(
                f"{where}: input {node.name!r} is a number that may change; export the program "
                "with a fixed one, or with a tensor"
            )
        if node.name in given and isinstance(value, torch.Tensor):
            yield node.name, tuple(s if isinstance(s, int) else str(s) for s in value.shape)


def _drop_what_is_no_tensor(program: Any) -> None:
    """Without assertions, inputs that are None or numbers, and what nothing depends on."""
    from torch.export.graph_signature import TensorArgument

    for graph in _graphs(program):
        for node in reversed(graph.nodes):
            if node.op == "call_function" and not node.users and _says_nothing(node, program):
                graph.erase_node(node)
        graph.eliminate_dead_code()
    specs = program.graph_signature.input_specs
    nodes = program.graph.find_nodes(op="placeholder")
    for node, spec in zip(list(nodes), list(specs), strict=True):
        if not isinstance(spec.arg, TensorArgument) and not node.users:
            program.graph.erase_node(node)
            specs.remove(spec)
    _drop_constant_outputs(program)


def _says_nothing(node: Any, program: Any) -> bool:
    """Whether a node is an assertion, but not one of sizes that only the run tells."""
    if _name(node) != "_assert_scalar.default":
        return _name(node) in _ASSERTIONS
    asserted = node.args[0]
    is_open = not isinstance(asserted, bool | int) and is_symbolic(asserted.meta.get("val"))
    return not is_open or node.graph is not program.graph or _is_of_no_size(asserted)


def _is_of_no_size(asserted: Any) -> bool:
    """Whether it is asserted where in memory a tensor begins, or of data that they are right."""
    import torch

    numbers = [each for each in asserted.all_input_nodes if is_symbolic(each.meta.get("val"))]
    for node in (asserted, *numbers):
        is_data = _name(node) == "_local_scalar_dense.default"
        if is_data and not isinstance(node.meta["val"], torch.SymInt):
            return True
        if _name(node) == "sym_storage_offset.default":
            return True
    return any(map(_is_of_no_size, numbers))


def _drop_constant_outputs(program: Any) -> None:
    import torch

    end = next(iter(program.graph.find_nodes(op="output")))
    _keep_outputs(program, [isinstance(value, torch.fx.Node) for value in end.args[0]])


def _drop_unchanged_state(program: Any) -> None:
    """A buffer may be given the value that it has: ``self.table = self.table.to(x.device)``."""
    signature = program.graph_signature
    names = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target}
    changes = [names.get(spec.target) != spec.arg.name for spec in signature.output_specs]
    if not all(changes):
        _keep_outputs(program, changes)


def _keep_outputs(program: Any, kept: list[bool]) -> None:
    end = next(iter(program.graph.find_nodes(op="output")))
    end.args = (tuple(itertools.compress(end.args[0], kept)),)
    specs = program.graph_signature.output_specs
    specs[:] = list(itertools.compress(specs, kept))


def _share_equal_weights(program: Any) -> None:
    """Names of one tensor are one weight."""
    from torch.export.graph_signature import InputKind

    weights = {**program.state_dict, **program.constants}
    first: dict[Any, Any] = {}
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    for spec in program.graph_signature.input_specs:
        key = _memory(weights.get(spec.target))
        if spec.kind is InputKind.USER_INPUT or key is None:
            continue
        node = nodes[spec.arg.name]
        node.replace_all_uses_with(first.setdefault(key, node))


def _check_operators(program: Any, where: str) -> None:
    if not output_names(program):
        raise ModelError(f"{where}: the program returns no tensors; there is nothing to compile")
    for graph in _graphs(program):
        for node in graph.nodes:
            if node.op == "call_function":
                _check(node, where)


def _graphs(program: Any) -> Iterator[Any]:
    """The program's graph and those of the branches in it."""
    import torch

    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield module.graph


def _check(node: Any, where: str) -> None:
    import torch

    name = _name(node)
    if name not in CONVERTERS and name not in _LANGUAGE:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            why = "these random numbers are not supported"
            raise ModelError(f"{where}: {refusal(node, why, 'make them an input')}")
        raise ModelError(f"{where}: " + refusal(node, "it is not supported"))


def _name(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target))


def output_names(program: Any) -> tuple[str, ...]:
    """Names of the outputs that are tensors."""
    return tuple(name for name in program.graph_signature.user_outputs if isinstance(name, str))
