"""Write an rProgram as JSON and read it back, refusing what is not one or is not safe."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.program import RProgram
from tvm_rammer.rprogram.verify import verify

#: Grows whenever the data types of a plan change.
FORMAT_VERSION = 1

#: Integers of a plan end up in 64-bit arithmetic.
_LARGEST = 2**63 - 1

_TYPE_NAMES = MappingProxyType({int: "an integer", float: "a number", str: "a string"})


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
    program: RProgram = _decode(RProgram, data, "")
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


def _decode(kind: Any, value: Any, path: str) -> Any:
    """``value`` as the annotated type ``kind``; ``path`` says where it stands."""
    if isinstance(kind, type) and is_dataclass(kind):
        return _decode_record(kind, value, path)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise _mismatch(path, "a list", value)
        item_kind = get_args(kind)[0]
        return tuple(_decode(item_kind, item, f"{path}[{i}]") for i, item in enumerate(value))
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise _mismatch(path, "one of " + ", ".join(map(repr, get_args(kind))), value)
        return value
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise _mismatch(path, _TYPE_NAMES[kind], value)
    if kind is int and abs(value) > _LARGEST:
        raise _mismatch(path, "an integer of 64 bits", value)
    return value


def _decode_record(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise _mismatch(path, "an object", value)
    kinds = _field_kinds(kind)
    where = path or "the plan"
    for key in value:
        if key not in kinds:
            raise PlanError(f"{where} has the unknown key {key!r}; the keys are {', '.join(kinds)}")
    for key in kinds:
        if key not in value:
            raise PlanError(f"{where} lacks the key {key!r}; add it")
    prefix = f"{path}." if path else ""
    return kind(**{key: _decode(kinds[key], value[key], prefix + key) for key in kinds})


@cache
def _field_kinds(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _mismatch(path: str, expected: str, value: Any) -> PlanError:
    text = json.dumps(value)
    shown = text if len(text) <= 40 else text[:37] + "..."
    return PlanError(f"{path} is {shown}; it must be {expected}")
