"""Leaves parts out of protobuf messages in files, without reading these parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader

#: Wire types: how a field's value is written, and how long it is if that is fixed.
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}


@dataclass(frozen=True)
class Part:
    """Bytes of a file: the value of a field."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """Where the value ends."""
        return self.start + self.size


#: What is kept of a field's value; ``None`` drops the field.
Keep = Callable[[BufferedReader, Part], bytes | None]


def whole(file: BufferedReader) -> Part:
    """All of a file."""
    return Part(0, file.seek(0, os.SEEK_END))


def message_without(file: BufferedReader, part: Part, keep: Mapping[int, Keep]) -> bytes:
    """A message with some of its fields changed.

    Parameters
    ----------
    file : binary file
        Can be sought in.
    part : Part
        Where the message is.
    keep : mapping of int to callable
        By field number, for strings, bytes and messages: gives what is kept. All other fields are.

    Raises
    ------
    ValueError
        The bytes are no message.
    """
    file.seek(part.start)
    kept = []
    for number, tag, value in _fields(file, part.end):
        if isinstance(value, bytes):
            kept.append(tag + value)
            continue
        content = keep.get(number, read)(file, value)
        if content is not None:
            kept += [tag, _encoded(len(content)), content]
        file.seek(value.end)
    return b"".join(kept)


def read(file: BufferedReader, part: Part) -> bytes:
    """The bytes themselves."""
    file.seek(part.start)
    return file.read(part.size)


def _fields(file: BufferedReader, end: int) -> Iterator[tuple[int, bytes, bytes | Part]]:
    """Number, tag and value of every field up to ``end``; a value with a length is left unread."""
    while (place := file.tell()) < end:
        tag = _varint(file)
        number, kind = divmod(_decoded(tag), 8)
        value: bytes | Part
        if kind == _VARINT:
            value = _varint(file)
            stop = file.tell()
        elif kind == _BYTES:
            size = _decoded(_varint(file))
            value = Part(file.tell(), size)
            stop = value.end
        elif kind in _FIXED:
            stop = file.tell() + _FIXED[kind]
            value = file.read(_FIXED[kind])
        else:
            raise ValueError(f"byte {place}: the wire type {kind} is unknown")
        if stop > end:
            raise ValueError(f"byte {place}: a field is longer than its message")
        yield number, tag, value


def _varint(file: BufferedReader) -> bytes:
    """The bytes of a number: all but the last have the highest bit set."""
    start, found = file.tell(), b""
    while not found or found[-1] >= 128:
        following = file.read(1)
        if not following or len(found) == 10:
            raise ValueError(f"byte {start}: a number does not end")
        found += following
    return found


def _decoded(varint: bytes) -> int:
    return sum((byte & 127) << 7 * place for place, byte in enumerate(varint))


def _encoded(number: int) -> bytes:
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
