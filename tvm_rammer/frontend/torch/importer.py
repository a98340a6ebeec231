"""TVM's importer of exported programs, with the converters of this package in place of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import tvm
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.loaded_model import end_blocks, one_line
from tvm_rammer.frontend.torch.complex_weights import has_complex_numbers, with_real_ends
from tvm_rammer.frontend.torch.converters import COMPLEX_CONVERTERS, CONVERTERS
from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall, refusal
from tvm_rammer.frontend.torch.widening import in_float32, widened


def imported(program: Any, where: str) -> tvm.IRModule:
    """The Relax module of a prepared program; its weights are constants.

    Raises
    ------
    ModelError
        A converter refuses an operator's arguments.
    """
    importer = _Importer(where)
    program = with_real_ends(program, where)
    try:
        return importer.from_exported_program(program, False, False, False, None)
    except Exception:
        if importer.block_builder is not None:
            end_blocks(importer.block_builder)
        raise


class _Importer(ExportedProgramImporter):
    """An importer that knows what ``CONVERTERS`` have, and no other operator."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def create_convert_map(self) -> dict[str, Callable[[Any], Any]]:
        own = {name: partial(self._convert, name) for name in CONVERTERS}
        return {**own, "getitem": self._item_of_results, "cond": self._cond}

    def _convert(self, name: str, node: Any) -> Any:
        converter = (COMPLEX_CONVERTERS if has_complex_numbers(node) else CONVERTERS).get(name)
        if converter is None:
            why = "complex numbers are not supported here"
            advice = "compute with their real and imaginary parts"
            raise ModelError(f"{self.where}: {refusal(node, why, advice)}")
        call = OperatorCall(node, self.block_builder)
        try:
            arguments = self._arguments(node, converter)
            if widened(name, call, arguments):
                return in_float32(converter, call, self.block_builder, arguments)
            return converter(call, *arguments)
        except ModelError as error:
            raise ModelError(f"{self.where}: {error}") from error
        except Exception as error:
            raise ModelError(f"{self.where}: {refusal(node, one_line(error))}") from error

    def _arguments(self, node: Any, converter: Converter) -> list[Any]:
        """Arguments in the order of the schema, with its defaults, as many as are taken."""
        given = self._retrieve_args(node.args)
        named = self._retrieve_args(dict(node.kwargs))
        schema = node.target._schema.arguments
        values = [
            given[place] if place < len(given) else named.get(arg.name, arg.default_value)
            for place, arg in enumerate(schema)
        ]
        values = [list(value) if isinstance(value, tuple) else value for value in values]
        taken = inspect.signature(converter).parameters.values()
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in taken):
            return values
        return values[: len(taken) - 1]

    def _item_of_results(self, node: Any) -> Any:
        results, place = node.args
        values = self.env[results]
        if isinstance(values, list):
            return values[place] if place < len(values) else None
        return self._getitem(node)
