"""Write an rProgram as JSON and read it back, refusing what is not one or is not safe."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.rprogram.verify import verify

#: Grows whenever the data types of a plan change.
FORMAT_VERSION = 3

#: Numbers of a plan end up in 64-bit arithmetic.
_LARGEST = 2**63 - 1


def to_json(program: RProgram) -> str:
    """A program as JSON that a person can read and edit, with one entry a line.

    Raises
    ------
    PlanError
        If a number is not finite: JSON cannot say it.
    """
    entries = {"format_version": FORMAT_VERSION, **_plain(program)}
    try:
        lines = [f"{json.dumps(key)}: {_layout(value, key)}" for key, value in entries.items()]
    except ValueError:
        raise PlanError(
            f"rProgram {program.name!r} has a number that is not finite; correct its kernels"
        ) from None
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str) -> RProgram:
    """The program that :func:`to_json` wrote, verified, since the text may have been edited.

    Raises
    ------
    PlanError
        If the text is not a plan of this format version, naming the field, or the plan is not safe.
    """
    try:
        data = json.loads(text, object_pairs_hook=_distinct_keys, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"the plan is not JSON: {error}; write it with to_json") from None
    if not isinstance(data, dict):
        raise PlanError("the plan is not a JSON object; write it with to_json")
    version = data.pop("format_version", None)
    if type(version) is not int or version != FORMAT_VERSION:
        raise PlanError(
            f"the plan has format_version {version!r}, this is {FORMAT_VERSION}; make the plan anew"
        )
    try:
        program: RProgram = _decoder(RProgram)(data)
    except _FieldError as error:
        raise PlanError(f"{error.path.removeprefix('.') or 'the plan'} {error.problem}") from None
    verify(program)
    return program


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples as lists."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _layout(value: Any, key: str) -> str:
    """A list has a line for each entry; the lists of the vEUs are nested."""
    if not isinstance(value, list) or not value:
        return json.dumps(value, allow_nan=False)
    nested = key == "veus"
    inner = [_layout(item, "") if nested else json.dumps(item, allow_nan=False) for item in value]
    return "[\n" + ",\n".join(inner) + "\n]"


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


class _FieldError(Exception):
    """What is wrong with a field; the containers that it passes on its way add their path."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def inside(self, part: str) -> _FieldError:
        self.path = part + self.path
        return self


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    """The function from a JSON value to the annotated type ``kind``, cached for speed."""
    if isinstance(kind, type) and is_dataclass(kind):
        return _record_decoder(kind)
    if get_origin(kind) is tuple:
        return _tuple_decoder(_decoder(get_args(kind)[0]))
    if get_origin(kind) is Literal:
        return _choice_decoder(get_args(kind))
    return {int: _decode_integer, float: _decode_number, str: _decode_string}[kind]


def _record_decoder(kind: type) -> Callable[[Any], Any]:
    decoders = {key: _decoder(hint) for key, hint in get_type_hints(kind).items()}

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch("an object", value)
        if value.keys() != decoders.keys():
            raise _key_error(value, list(decoders))
        decoded = {}
        for key, decode_field in decoders.items():
            try:
                decoded[key] = decode_field(value[key])
            except _FieldError as error:
                raise error.inside(f".{key}") from None
        return kind(**decoded)

    return decode


def _tuple_decoder(decode_item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        if not isinstance(value, list):
            raise _mismatch("a list", value)
        decoded = []
        for item in value:
            try:
                decoded.append(decode_item(item))
            except _FieldError as error:
                raise error.inside(f"[{len(decoded)}]") from None
        return tuple(decoded)

    return decode


def _choice_decoder(choices: tuple[str, ...]) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        if value not in choices:
            raise _mismatch("one of " + ", ".join(map(repr, choices)), value)
        return value

    return decode


def _decode_integer(value: Any) -> int:
    if type(value) is not int:
        raise _mismatch("an integer", value)
    if abs(value) > _LARGEST:
        raise _mismatch("an integer of 64 bits", value)
    return value


def _decode_number(value: Any) -> float:
    if type(value) not in (int, float) or abs(value) > _LARGEST:
        raise _mismatch("a number", value)
    return float(value)


def _decode_string(value: Any) -> str:
    if type(value) is not str:
        raise _mismatch("a string", value)
    return value


def _mismatch(expected: str, value: Any) -> _FieldError:
    text = json.dumps(value)
    shown = text if len(text) <= 40 else text[:37] + "..."
    return _FieldError(f"is {shown}; it must be {expected}")


def _key_error(value: dict[str, Any], expected: list[str]) -> _FieldError:
    unknown = [key for key in value if key not in expected]
    if unknown:
        return _FieldError(
            f"has the unknown key {unknown[0]!r}; the keys are {', '.join(expected)}"
        )
    missing = next(key for key in expected if key not in value)
    return _FieldError(f"lacks the key {missing!r}; add it")
