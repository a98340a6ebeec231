"""What every front end makes: a Relax module and the names that the model uses."""

from __future__ import annotations

import contextlib
import textwrap
from dataclasses import dataclass

import tvm
from tvm import relax

#: Letters of another library's message that say what the matter is.
_LONGEST_MESSAGE = 300


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


def end_blocks(builder: relax.BlockBuilder) -> None:
    """End what a builder has begun; else TVM logs that it was destroyed "with remaining blocks"."""
    with contextlib.suppress(tvm.error.InternalError):
        while True:
            builder._end_block()


def one_line(message: object) -> str:
    """A message of another library, for the middle of a line: some are pages long."""
    return textwrap.shorten(str(message), _LONGEST_MESSAGE, placeholder=" ...")
