"""What the corpus holds: a trained model of a package, or an architecture with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

#: Makes one input from a seeded generator.
InputMaker = Callable[[np.random.Generator], np.ndarray]
#: The package index that serves a trained model.
Index = Literal["pypi", "npm"]
#: How a model reaches the compiler: an ONNX file, or a program of ``torch.export``.
Form = Literal["onnx", "torch"]
#: A value that an input is bound to before compiling.
Constant = int | float | bool


@dataclass(frozen=True)
class TrainedModel:
    """A trained ONNX model inside a package.

    Attributes
    ----------
    name : str
        Unique in the corpus.
    package, version, file : str
        Where it is: a release of a package, and the path inside its archive.
    task : str
        What people use it for.
    inputs : mapping of str to InputMaker
        Inputs as the package's own pre-processing makes them; their shapes are the model's.
    licence : str
        As the package's metadata or licence file names it.
    origin : str
        Who trained it, where that is not the package's own project.
    constants : mapping of str to int, float or bool
        Inputs that a user would fix.
    index : {"pypi", "npm"}
    """

    name: str
    package: str
    version: str
    file: str
    task: str
    inputs: Mapping[str, InputMaker]
    licence: str
    origin: str = ""
    constants: Mapping[str, Constant] = field(default_factory=dict)
    index: Index = "pypi"

    @property
    def forms(self) -> tuple[Form, ...]:
        """How it can be given to the compiler."""
        return ("onnx",)

    @property
    def source(self) -> str:
        """Where it comes from, for a reader."""
        return f"{self.package} {self.version}"


@dataclass(frozen=True)
class Architecture:
    """An architecture of a library, or one of our own that such models have, with random weights.

    Attributes
    ----------
    name : str
        Unique in the corpus.
    library : str
        ``torchvision``, ``timm``, ``transformers``, or ``torch`` for a definition kept here.
    task : str
    make : str
        ``"module:function"``, a module beside this one, which imports PyTorch. The function is
        called with ``arguments`` where PyTorch is seeded, and returns the module; where ``inputs``
        are not given, also a tuple of its example inputs, tensors all of them.
    arguments : mapping of str to anything
    inputs : tuple of tuple
        Of each example input the function of PyTorch that makes it, and its arguments.
    forms : tuple of {"onnx", "torch"}
    """

    name: str
    library: str
    task: str
    make: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[tuple[Any, ...], ...] = ()
    forms: tuple[Form, ...] = ("onnx", "torch")

    @property
    def source(self) -> str:
        """Where it comes from, for a reader."""
        return self.library


Entry = TrainedModel | Architecture


def draw_inputs(model: TrainedModel, seed: int = 0) -> dict[str, np.ndarray]:
    """The inputs of a trained model, by name; the same at every call."""
    rng = np.random.default_rng(seed)
    return {name: make(rng) for name, make in model.inputs.items()}
