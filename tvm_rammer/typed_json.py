"""Reads plain data of JSON as what annotations say it is: records, numbers, lists, or an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tvm_rammer.errors import RammerError

Reader = Callable[[Any], Any]

#: Numbers end up in 64-bit arithmetic.
_LARGEST = 2**63 - 1
#: Text that is longer is shown by its beginning.
_MOST_SHOWN = 40


#: A bit mask, in JSON as text of hexadecimal digits: JSON's own numbers have 64 bits at most.
Bits = Annotated[int, "bits"]


class FieldError(ValueError):
    """What is wrong with a field; the containers that it passes on its way add their path."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def inside(self, part: str) -> FieldError:
        """The same, seen from the container."""
        self.path = part + self.path
        return self

    def within(self, whole: str) -> str:
        """Place and problem; ``whole`` stands for the outermost value."""
        return f"{self.path.removeprefix('.') or whole} {self.problem}"


def problem_of(error: ValueError) -> str:
    """What is wrong with an entry, and where in it if that is known."""
    return error.within("it") if isinstance(error, FieldError) else str(error)


def parse_json(text: str) -> Any:
    """The value of a JSON text in which every key is there once and every number is one.

    Raises
    ------
    ValueError
        If it is something else, nested deeper than can be read, or has numbers too long to be read.
    """
    try:
        return json.loads(text, object_pairs_hook=_distinct_keys, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_as(kind: Any, value: Any) -> Any:
    """A value of JSON as the type that an annotation says.

    Parameters
    ----------
    kind : type
        A frozen dataclass, ``tuple``, ``dict`` with keys of text, ``Literal``, a union, a number,
        text or ``Any``.
    value : object
        Dictionaries, lists, text, numbers, None: a dataclass has all of its keys and no other, but
        for those that are None unless given.

    Raises
    ------
    FieldError
        With the path to what is of another type, or no finite number of 64 bits.
    """
    return _reader(kind)(value)


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


@cache
def _reader(kind: Any) -> Reader:
    """The function from a JSON value to an annotated type, made once: plans have many values."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return _record_reader(kind)
    if origin is tuple and arguments[-1] is Ellipsis:
        return _tuple_reader(_reader(arguments[0]))
    if origin is tuple:
        return _fixed_reader([_reader(each) for each in arguments])
    if origin in (dict, Mapping):
        return _dict_reader(_reader(arguments[1]))
    if origin is Literal:
        return _choice_reader(arguments)
    if origin in (Union, UnionType):
        others = [each for each in arguments if each not in (NoneType, str)] or [str]
        return _union_reader(_reader(others[0]), NoneType in arguments, str in arguments)
    return _PLAIN[kind]


def _record_reader(kind: type) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    readers = {field.name: _reader(hints[field.name]) for field in fields(kind)}
    unneeded = {field.name: None for field in fields(kind) if field.default is None}

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch("an object", value)
        if value.keys() != readers.keys():
            if (unneeded | value).keys() != readers.keys():
                raise _key_error(unneeded | value, list(readers))
            value = unneeded | value
        found = {}
        for key, read_field in readers.items():
            try:
                found[key] = read_field(value[key])
            except FieldError as error:
                raise error.inside(f".{key}") from None
        try:
            return kind(**found)
        except (ValueError, RammerError) as error:
            raise FieldError(f"is none: {error}") from None

    return read


def _items(values: list[Any], readers: list[Reader]) -> tuple[Any, ...]:
    found: list[Any] = []
    for item, read_item in zip(values, readers, strict=True):
        try:
            found.append(read_item(item))
        except FieldError as error:
            raise error.inside(f"[{len(found)}]") from None
    return tuple(found)


def _tuple_reader(read_item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _mismatch("a list", value)
        return _items(value, [read_item] * len(value))

    return read


def _fixed_reader(readers: list[Reader]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(readers):
            raise _mismatch(f"a list of {len(readers)}", value)
        return _items(value, readers)

    return read


def _dict_reader(read_item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch("an object", value)
        found = {}
        for key, item in value.items():
            try:
                found[_read_string(key)] = read_item(item)
            except FieldError as error:
                raise error.inside(f"[{_shown(key)}]") from None
        return found

    return read


def _choice_reader(choices: tuple[str, ...]) -> Reader:
    def read(value: Any) -> Any:
        if value not in choices:
            raise _mismatch("one of " + ", ".join(map(repr, choices)), value)
        return value

    return read


def _union_reader(read_other: Reader, none: bool, text: bool) -> Reader:
    """Reads what may be nothing or text instead of something else."""

    def read(value: Any) -> Any:
        if none and value is None:
            return None
        return _read_string(value) if text and type(value) is str else read_other(value)

    return read


def _read_integer(value: Any) -> int:
    if type(value) is not int:
        raise _mismatch("an integer", value)
    if abs(value) > _LARGEST:
        raise _mismatch("an integer of 64 bits", value)
    return value


def _read_bits(value: Any) -> int:
    if type(value) is not str or not re.fullmatch("[0-9a-f]{1,999}", value):
        raise _mismatch("hexadecimal digits", value)
    return int(value, 16)


def _read_number(value: Any) -> float:
    if type(value) not in (int, float) or abs(value) > _LARGEST or not isfinite(value):
        raise _mismatch("a number", value)
    return float(value)


def _read_string(value: Any) -> str:
    # Half of a surrogate pair is no character: it could not be printed or written to a file.
    if type(value) is not str or any("\ud800" <= character <= "\udfff" for character in value):
        raise _mismatch("a string", value)
    return value


def _read_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _mismatch("true or false", value)
    return value


_PLAIN: dict[Any, Reader] = {
    int: _read_integer,
    Bits: _read_bits,
    float: _read_number,
    str: _read_string,
    bool: _read_boolean,
    Any: lambda value: value,
}


def _mismatch(expected: str, value: Any) -> FieldError:
    return FieldError(f"is {_shown(value)}; it must be {expected}")


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:  # it could be read, but writing takes more of the stack
        return "nested too deeply"
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


def _key_error(value: dict[str, Any], expected: list[str]) -> FieldError:
    unknown = [key for key in value if key not in expected]
    if unknown:
        return FieldError(f"has the unknown key {unknown[0]!r}; the keys are {', '.join(expected)}")
    missing = next(key for key in expected if key not in value)
    return FieldError(f"lacks the key {missing!r}; add it")
