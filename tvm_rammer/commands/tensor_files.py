"""Input tensors from files or from a seed, output tensors as statistics or to files."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_rammer.commands.files import write_file
from tvm_rammer.errors import InputError
from tvm_rammer.tensors import random_values
from tvm_rammer.units import listed

if TYPE_CHECKING:
    from tvm_rammer.region.library_content import TensorInfo

#: Characters of a file's name that an output's name may give; file systems end a name at 255.
_LONGEST_STEM = 200
#: What ``numpy.dtype.isbuiltin`` is of types that another library adds to numpy's.
_REGISTERED = 2


@dataclass(frozen=True)
class InputTensor:
    """An input's value and where it comes from."""

    name: str
    value: np.ndarray
    source: str


def read_inputs(arguments: Sequence[str], infos: Sequence[TensorInfo]) -> list[InputTensor]:
    """Read the files that are given for inputs.

    Parameters
    ----------
    arguments : sequence of str
        ``x.npy`` for the first input that has no file of its own yet, ``name=x.npy`` for the input
        of that name, ``all.npz`` for the inputs that its arrays are named after.
    infos : sequence of TensorInfo
        The model's inputs.

    Raises
    ------
    InputError
        For a file that cannot be read, an unknown or repeated input, or too many files.
    """
    names = [info.name for info in infos]
    found: dict[str, InputTensor] = {}
    unnamed: list[tuple[str, np.ndarray]] = []
    for argument in arguments:
        name, path = _split(argument, names)
        for inner, value in _read(Path(path)):
            label = inner or name
            if label is None:
                unnamed.append((path, value))
                continue
            if label not in names:
                raise InputError(
                    f"{path}: there is no input {label!r}; the model's inputs are {_listed(names)}"
                )
            if label in found:
                raise InputError(
                    f"{path}: input {label!r} has a value already, from {found[label].source}; "
                    "give each input once"
                )
            found[label] = InputTensor(label, value, path)
    free = [name for name in names if name not in found]
    if len(unnamed) > len(free):
        raise InputError(
            f"{unnamed[len(free)][0]}: there is no input left for it; "
            f"the model's inputs are {_listed(names)}"
        )
    found |= {
        name: InputTensor(name, value, path)
        for name, (path, value) in zip(free, unnamed, strict=False)
    }
    return [_typed(found[info.name], info) for info in infos if info.name in found]


def _typed(tensor: InputTensor, info: TensorInfo) -> InputTensor:
    """A tensor in the input's dtype where a file of numpy cannot name that: bfloat16, float8."""
    given = tensor.value.dtype
    if given.kind != "V" or given.names is not None:
        return tensor
    with suppress(TypeError):  # what is no tensor has no dtype
        wanted = np.dtype(info.dtype)
        if wanted.isbuiltin == _REGISTERED and wanted.itemsize == given.itemsize:
            return replace(tensor, value=tensor.value.view(wanted))
    return tensor


def random_input(info: TensorInfo, rng: np.random.Generator) -> InputTensor:
    """Standard normal floats, small integers or fair coins, as the input's dtype wants."""
    return InputTensor(info.name, random_values(rng, info.static_shape(), info.dtype), "random")


def statistics(value: np.ndarray) -> dict[str, Any]:
    """Minimum, mean, maximum and standard deviation of the finite values, and how many are not."""
    numbers = value.astype(np.float64).ravel()
    finite = numbers[np.isfinite(numbers)]
    measures: dict[str, Callable[..., Any]] = {
        "min": np.min,
        "mean": np.mean,
        "max": np.max,
        "std": np.std,
    }
    return {
        **{name: float(of(finite)) if finite.size else None for name, of in measures.items()},
        "not_finite": int(numbers.size - finite.size),
    }


def save_outputs(folder: Path, outputs: Mapping[str, np.ndarray]) -> list[Path]:
    """Write each output to ``<name>.npy``; what a file's name should not hold becomes ``_``."""
    paths = [folder / name for name in _file_names(outputs)]
    for path, value in zip(paths, outputs.values(), strict=True):
        content = io.BytesIO()
        np.save(content, value)
        write_file(path, content.getvalue())
    return paths


def _file_names(outputs: Iterable[str]) -> list[str]:
    """A file's name for each output; what would be there already gets a number."""
    stems: list[str] = []
    for number, name in enumerate(outputs):
        plain = re.sub(r"[^A-Za-z0-9.-]+", "_", name).lstrip(".")[:_LONGEST_STEM] or str(number)
        numbered = (f"{plain}_{other}" for other in count(number))
        stems.append(next(stem for stem in chain([plain], numbered) if stem not in stems))
    return [f"{stem}.npy" for stem in stems]


def _split(argument: str, names: Sequence[str]) -> tuple[str | None, str]:
    """Name and path; a file whose own name holds ``=`` is still a file."""
    for name in names:
        if argument.startswith(f"{name}="):
            return name, argument[len(name) + 1 :]
    name, equals, path = argument.partition("=")
    return (name, path) if equals and not os.path.exists(argument) else (None, argument)


def _read(path: Path) -> list[tuple[str | None, np.ndarray]]:
    """The arrays of a file; only those of an ``.npz`` have names."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return [(None, loaded)]
        with loaded:
            return [(name, loaded[name]) for name in loaded.files]
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; write it with numpy.save") from error
    except Exception as error:
        # The first sentence: the next may advise to load what nobody should load.
        reason = " ".join(str(error).split()).split(". ")[0] or type(error).__name__
        raise InputError(
            f"{path}: not an array of numpy, or damaged ({reason}); write it with numpy.save"
        ) from error


def _listed(names: Sequence[str]) -> str:
    return listed(map(repr, names))
