"""What every front end makes: a Relax module and the names that the model uses."""

from __future__ import annotations

from dataclasses import dataclass

import tvm


@dataclass(frozen=True)
class LoadedModel:
    """A Relax module and what the model itself calls its inputs and outputs.

    Attributes
    ----------
    module : tvm.IRModule
        Its ``main`` takes the inputs; the weights are constants.
    input_names : tuple of str
        One per parameter of ``main``, as the model spells them (TVM renames some).
    output_names : tuple of str
        One per output of ``main``.
    """

    module: tvm.IRModule
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]


def one_line(message: object) -> str:
    """A message of another library, for the middle of a line."""
    return " ".join(str(message).split())
