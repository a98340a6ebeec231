"""What every front end makes: a Relax module and the names that the model uses."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax

from tvm_rammer.region.library_content import TensorInfo
from tvm_rammer.transform.attach_description import State, tensor_info

#: Letters of another library's message that say what the matter is.
_LONGEST_MESSAGE = 300


@dataclass(frozen=True)
class LoadedModel:
    """A Relax module and what the model itself calls its inputs and outputs.

    Attributes
    ----------
    module : tvm.IRModule
        Its ``main`` takes the inputs, then the states; the weights are constants. It returns the
        outputs, then the states as they are afterwards.
    input_names : tuple of str
        One per input of ``main``, as the model spells them (TVM renames some).
    output_names : tuple of str
        One per output of ``main``.
    states : tuple of State
    """

    module: tvm.IRModule
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    states: tuple[State, ...] = ()

    @property
    def input_params(self) -> list[Any]:
        """The parameters of ``main`` that are inputs."""
        return list(self.module["main"].params)[: len(self.input_names)]

    @property
    def input_infos(self) -> list[TensorInfo]:
        """The inputs as a library describes them."""
        named = zip(self.input_names, self.input_params, strict=True)
        return [tensor_info(name, param.ty) for name, param in named]

    def with_constants(self, values: Mapping[str, tvm.runtime.Tensor]) -> LoadedModel:
        """The same model, some inputs of which are constants."""
        params = dict(zip(self.input_names, self.input_params, strict=True))
        bound = {params[name]: value for name, value in values.items()}
        module = relax.transform.BindParams("main", bound)(self.module)
        inputs = tuple(name for name in self.input_names if name not in values)
        return replace(self, module=module, input_names=inputs)


def end_blocks(builder: relax.BlockBuilder) -> None:
    """End what a builder has begun; else TVM logs that it was destroyed "with remaining blocks"."""
    with contextlib.suppress(tvm.error.InternalError):
        while True:
            builder._end_block()


def one_line(message: object) -> str:
    """A message of another library, for the middle of a line: some are pages long."""
    return textwrap.shorten(str(message), _LONGEST_MESSAGE, placeholder=" ...")
