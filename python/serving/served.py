"""A model as a process serves it: how instances are made, what they are asked and must answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
#: From inputs by name to all outputs; for one thread.
Instance = Callable[[Arrays], Sequence[np.ndarray]]


@dataclass(frozen=True)
class Served:
    """A model that is loaded.

    Attributes
    ----------
    name : str
    instance : callable
        Makes what one thread runs.
    inputs : tuple of mapping
        Several sets of inputs.
    wanted : tuple of tuple of bytes, optional
        For each set the outputs, bit for bit.
    """

    name: str
    instance: Callable[[], Instance]
    inputs: tuple[Arrays, ...]
    wanted: tuple[tuple[bytes, ...], ...] | None

    def is_right(self, number: int, outputs: Sequence[np.ndarray]) -> bool:
        """Whether these are the outputs for a set of inputs."""
        if self.wanted is None:
            return True
        return [each.tobytes() for each in outputs] == list(self.wanted[number])


def served(name: str, engine: str, file: str, inputs: Sequence[str], wanted: Sequence[str]) -> Any:
    """Load a model.

    Parameters
    ----------
    name : str
    engine : str
        ``"rammer"``, or ``"onnxruntime"`` with its number of threads, 0 for its default.
    file : str
        A library, or an ONNX file.
    inputs, wanted : sequence of str
        Files of NumPy; ``wanted`` may be empty.
    """
    answers = tuple(tuple(each.tobytes() for each in read(path).values()) for path in wanted)
    make = _of_rammer(file) if engine == "rammer" else _of_onnxruntime(file, engine)
    return Served(name, make, tuple(map(read, inputs)), answers or None)


def read(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a file."""
    with np.load(path) as saved:
        return {name: saved[name] for name in saved.files}


def _of_rammer(file: str) -> Callable[[], Instance]:
    from tvm_rammer.runtime.loading import load

    library = load(file)

    def make() -> Instance:
        module = library.create()

        def run(inputs: Arrays) -> list[np.ndarray]:
            return [output.numpy() for output in module(**inputs)]

        return run

    return make


def _of_onnxruntime(file: str, engine: str) -> Callable[[], Instance]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(engine.removeprefix("onnxruntime"))
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    # Its sessions are for all threads.
    return lambda: lambda inputs: session.run(None, dict(inputs))
