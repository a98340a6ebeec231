"""Operators of programs that draw random numbers, by two of our own that the importer knows.

Those give numbers from 0 to 1, and of the standard normal distribution, in float32: by the number
of the run, which is a state of the program.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tvm_rammer.frontend.random_numbers import STATE
from tvm_rammer.transform.attach_description import State

#: Their names in a program, and the kind of numbers.
DRAWN = {"drawn_uniform.default": "uniform", "drawn_normal.default": "normal"}


@cache
def _library() -> Any:
    """Operators are known as long as their library lives."""
    import torch

    library = torch.library.Library("tvm_rammer", "FRAGMENT")
    tags = (torch.Tag.nondeterministic_seeded,)
    for name in ("drawn_uniform", "drawn_normal"):
        library.define(f"{name}(SymInt[] size) -> Tensor", tags=tags)
        # Nobody runs them in PyTorch.
        torch.library.register_fake(f"tvm_rammer::{name}", torch.empty, lib=library)
    return library


def random_definitions() -> dict[Any, Any]:
    """Definitions by operators."""
    import torch

    _library()
    aten = torch.ops.aten
    return {
        aten.rand.default: lambda size, dtype=None, **_: _cast(_uniform(size), dtype),
        aten.randn.default: lambda size, dtype=None, **_: _cast(_normal(size), dtype),
        aten.rand_like.default: lambda x, dtype=None, **_: _like(_uniform(x.shape), x, dtype),
        aten.randn_like.default: lambda x, dtype=None, **_: _like(_normal(x.shape), x, dtype),
        aten.randint.default: _integers,
        aten.randint.low: _integers_between,
        aten.randint_like.default: lambda x, high, **kwargs: _integers_like(x, 0, high, **kwargs),
        aten.randint_like.low_dtype: _integers_like,
        aten.randperm.default: _permutation,
        aten.bernoulli.default: lambda chance, **_: _like(_less(chance), chance),
        aten.bernoulli.p: lambda x, p=0.5, **_: _like(_uniform(x.shape) < p, x),
        aten.uniform.default: _uniform_between,
        aten.normal_functional.default: _normal_like,
        aten.normal.Tensor_Tensor: lambda mean, std, **_: _around(mean, std),
        aten.normal.Tensor_float: lambda mean, std=1.0, **_: _around(mean, std),
        aten.normal.float_Tensor: lambda mean, std, **_: _around(mean, std),
        aten.normal.float_float: _normal_of_size,
        aten.exponential.default: _exponential,
        aten.multinomial.default: _classes,
    }


def draw_by_state(program: Any) -> tuple[State, ...]:
    """Give a decomposed program that draws the number of the run, and let it return the next.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Is changed: that is its last input, and its last output.
    """
    import torch
    from torch.export.graph_signature import (
        InputKind,
        InputSpec,
        OutputKind,
        OutputSpec,
        TensorArgument,
    )

    graph, signature = program.graph, program.graph_signature
    if not any(str(getattr(n.target, "__name__", "")) in DRAWN for n in graph.nodes):
        return ()
    places = graph.find_nodes(op="placeholder")
    last = list(places)[-1] if places else None
    with graph.inserting_after(last) if last else graph.inserting_before():
        draw = graph.placeholder(STATE)
    end = next(iter(graph.find_nodes(op="output")))
    with graph.inserting_before(end):
        following = graph.call_function(torch.ops.aten.add.Tensor, (draw, 1))
    for node in (draw, following):
        node.meta["val"] = torch.empty((), dtype=torch.int64, device="meta")
    argument = TensorArgument(draw.name)
    signature.input_specs.append(InputSpec(InputKind.USER_INPUT, argument, None))
    argument = TensorArgument(following.name)
    signature.output_specs.append(OutputSpec(OutputKind.USER_OUTPUT, argument, None))
    end.args = ((*end.args[0], following),)
    return (State(STATE),)


def number_of_run(graph: Any) -> Any:
    """The node of a graph that :func:`draw_by_state` gave it; ``None`` in other graphs."""
    given = graph.find_nodes(op="placeholder")
    return next((node for node in given if node.target == STATE), None)


def _uniform(size: Any) -> Any:
    import torch

    return torch.ops.tvm_rammer.drawn_uniform(size)


def _normal(size: Any) -> Any:
    import torch

    return torch.ops.tvm_rammer.drawn_normal(size)


def _cast(x: Any, dtype: Any) -> Any:
    import torch

    return x.to(torch.get_default_dtype() if dtype is None else dtype)


def _like(x: Any, like: Any, dtype: Any = None) -> Any:
    return x.to(like.dtype if dtype is None else dtype)


def _integers(high: int, size: Any, dtype: Any = None, **_: Any) -> Any:
    return _integers_between(0, high, size, dtype)


def _integers_between(low: int, high: int, size: Any, dtype: Any = None, **_: Any) -> Any:
    import torch

    # Two numbers have the bits of a large range; the largest one stays below 1 in float64.
    part = _uniform(size).double() + _uniform(size).double() * 2.0**-24
    found = (part * (high - low)).floor() + low
    return found.to(torch.int64 if dtype is None else dtype)


def _integers_like(x: Any, low: int, high: int, dtype: Any = None, **_: Any) -> Any:
    return _integers_between(low, high, x.shape, x.dtype if dtype is None else dtype)


def _permutation(count: int, dtype: Any = None, **_: Any) -> Any:
    import torch

    return _uniform([count]).argsort(stable=True).to(torch.int64 if dtype is None else dtype)


def _less(chance: Any) -> Any:
    return _uniform(chance.shape) < chance


def _uniform_between(x: Any, low: float = 0.0, high: float = 1.0, **_: Any) -> Any:
    return _like(_uniform(x.shape) * (high - low) + low, x)


def _normal_like(x: Any, mean: float = 0.0, std: float = 1.0, **_: Any) -> Any:
    return _like(_normal(x.shape) * std + mean, x)


def _normal_of_size(mean: float, std: float, size: Any, dtype: Any = None, **_: Any) -> Any:
    return _cast(_normal(size) * std + mean, dtype)


def _around(mean: Any, std: Any) -> Any:
    import torch

    shapes = [each.shape for each in (mean, std) if isinstance(each, torch.Tensor)]
    typed = next(each for each in (mean, std) if isinstance(each, torch.Tensor))
    return _like(_normal(torch.broadcast_shapes(*shapes)) * std + mean, typed)


def _exponential(x: Any, rate: float = 1.0, **_: Any) -> Any:
    return _like((1 - _uniform(x.shape)).log() / -rate, x)


def _classes(chances: Any, count: int, replacement: bool = False, **_: Any) -> Any:
    """The largest of chances over numbers of the exponential distribution (Efraimidis, 2006)."""
    if not replacement:
        return (chances / _waits(chances.shape)).topk(count).indices
    *rows, classes = chances.shape
    return (chances.unsqueeze(-2) / _waits([*rows, count, classes])).argmax(-1)


def _waits(size: Any) -> Any:
    """Numbers of the exponential distribution, none of them zero."""
    return -(1 - _uniform(size)).log().clamp(max=-1e-12)
