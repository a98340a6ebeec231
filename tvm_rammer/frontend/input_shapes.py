"""The shapes of a model's inputs: what the model says, matched with what the user gives."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, SupportsIndex

from tvm_rammer.errors import InputError, ModelError
from tvm_rammer.units import listed
from tvm_rammer.units import size as bytes_text

#: A size of an input that every run has, or the name of one that each run decides.
Size = int | str

#: What a user gives: shapes by the name of the input.
Shapes = Mapping[str, Sequence[Size]]

#: What a model says, one entry per dimension: its size, its symbol, or None for neither. None in
#: place of the tuple is an unknown rank.
Dims = tuple[int | str | None, ...] | None


def resolved_shapes(
    inputs: Mapping[str, Dims], shapes: Shapes, where: str
) -> dict[str, tuple[Size, ...]]:
    """Shape of every input. A symbol that several inputs share needs to be given only once.

    Parameters
    ----------
    inputs : mapping of str to Dims
        What the model says.
    shapes : mapping of str to sequence of int
        What the user gives; inputs without symbols may be missing.
    where : str
        The model, for messages.
    """
    values = symbol_values(inputs, shapes, where)
    return {
        name: tuple(map(_plain, shapes[name]))
        if name in shapes
        else _resolve(name, dims, values, where)
        for name, dims in inputs.items()
    }


def require_mapping(shapes: object) -> None:
    """Raise an InputError for shapes without the names of the inputs."""
    if not isinstance(shapes, Mapping):
        raise InputError(f"shapes is {shapes!r}; give a mapping of names to sizes")


def require_memory(
    inputs: Mapping[str, Sequence[int | str | None]], itemsizes: Mapping[str, int], where: str
) -> None:
    """Raise an InputError for an input that this machine cannot hold, before anybody tries.

    Parameters
    ----------
    inputs : mapping of str to sequence of int, str or None
        Dimensions with the sizes that were given; where one is not known, it counts as 1.
    itemsizes : mapping of str to int
        Bytes of an element of each input.
    where : str
        The model, for messages.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name, dims in inputs.items():
        # Beside a dimension of 0, too, there must be none beyond what TVM can count.
        sizes = [max(dim, 1) for dim in dims if isinstance(dim, int)]
        nbytes = prod(sizes) * itemsizes[name]
        if nbytes > memory:
            raise InputError(
                f"{where}: input {name!r} of shape {show(dims)} has {bytes_text(nbytes)}, but this "
                f"machine's memory has {bytes_text(memory)}; give it a smaller shape"
            )


def symbol_values(inputs: Mapping[str, Dims], shapes: Shapes, where: str) -> dict[str, Size]:
    """Size of every symbol that the given shapes speak of (parameters as in resolved_shapes)."""
    values: dict[str, Size] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            known = listed(f"{other!r} {show(dims)}" for other, dims in inputs.items())
            raise InputError(f"{where}: there is no input {name!r}; its inputs: {known}")
        sizes = isinstance(shape, Sequence) and not isinstance(shape, str | bytes)
        if not sizes or not all(map(_is_size, shape)):
            shown = show(shape) if sizes else repr(shape)
            raise InputError(
                f"{where}: the shape {shown} of input {name!r} must have positive integers, or "
                "names of sizes that each run decides"
            )
        for symbol, size in _matched(name, inputs[name], shape, where):
            if values.setdefault(symbol, _plain(size)) != size:
                raise InputError(
                    f"{where}: the shapes make the dimension {symbol!r} both {values[symbol]} and "
                    f"{size}; give it one size"
                )
    return values


def _is_size(size: object) -> bool:
    """Whether a size is a name, or a positive integer, of Python or of numpy."""
    if isinstance(size, str):
        return size.isidentifier()
    return isinstance(size, SupportsIndex) and not isinstance(size, bool) and size.__index__() > 0


def _plain(size: Any) -> Size:
    return size if isinstance(size, str) else int(size)


def show(dims: Iterable[int | str | None] | None) -> str:
    """Dimensions as people write them."""
    if dims is None:
        return "(unknown rank)"
    return "(" + ", ".join("?" if dim is None else str(dim) for dim in dims) + ")"


def _resolve(name: str, dims: Dims, values: Mapping[str, Size], where: str) -> tuple[Size, ...]:
    if dims is None:
        raise ModelError(
            f"{where}: input {name!r} has no shape in the model; give it one: "
            f"--shape {name}=1,... (in Python shapes={{{name!r}: (1, ...)}})"
        )
    sizes = [values.get(dim) if isinstance(dim, str) else dim for dim in dims]
    if None in sizes:
        example = tuple(1 if size is None else size for size in sizes)
        raise ModelError(
            f"{where}: input {name!r} has the symbolic shape {show(dims)}; give it sizes, such as "
            f"--shape {name}={','.join(map(str, example))} "
            f"(in Python shapes={{{name!r}: {example}}})"
        )
    return tuple(size for size in sizes if size is not None)


def _matched(
    name: str, dims: Dims, shape: Sequence[Size], where: str
) -> Iterator[tuple[str, Size]]:
    """The symbols of an input, each with the size that a shape gives it."""
    if dims is None:
        return
    if len(dims) != len(shape) or any(
        isinstance(dim, int) and dim != size for dim, size in zip(dims, shape, strict=True)
    ):
        raise InputError(
            f"{where}: input {name!r} is {show(dims)} in the model; "
            f"the shape {show(shape)} does not fit"
        )
    for dim, size in zip(dims, shape, strict=True):
        if isinstance(dim, str):
            yield dim, size
