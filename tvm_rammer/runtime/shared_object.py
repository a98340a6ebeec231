"""What a shared object is made of: what is wrong with it, and where a symbol's bytes are.

A file that is cut short kills the process that loads it (SIGBUS), and one for another architecture
is reported as missing.
"""

from __future__ import annotations

import os
import platform
from struct import Struct
from typing import BinaryIO

# The header of a 64-bit little-endian ELF file, and its entries for a segment, a section, a symbol.
_HEADER = Struct("<4sBB10xHHIQQQIHHHHHH")
_SEGMENT = Struct("<IIQQQQQQ")
_SECTION = Struct("<IIQQQQIIQQ")
_SYMBOL = Struct("<IBBHQQ")
_MAGIC = (b"\x7fELF", 2, 1)
_DYNAMIC_SYMBOLS = 11
_MACHINES = {62: "x86_64", 183: "aarch64"}


def defect(file: BinaryIO) -> str | None:
    """Why a file cannot be loaded on this machine; None if nothing speaks against it."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or _HEADER.unpack(head)[:3] != _MAGIC:
        return "no shared object"
    fields = _HEADER.unpack(head)
    machine, segments_at, sections_at, length, count = (fields[k] for k in (4, 7, 8, 11, 12))
    # The sections' table is the end of the file.
    if length != _SEGMENT.size or max(segments_at + length * count, sections_at) > size:
        return "cut short"
    file.seek(segments_at)
    table = file.read(length * count)
    segments = (_SEGMENT.unpack_from(table, k * length) for k in range(count))
    if any(offset + stored > size for _, _, offset, _, _, stored, _, _ in segments):
        return "cut short"
    built_for, here = _MACHINES.get(machine, "another processor"), platform.machine()
    return None if built_for == here else f"compiled for {built_for}, this machine is {here}"


def symbol_range(file: BinaryIO, name: str) -> tuple[int, int]:
    """Where in a shared object that can be loaded a symbol's bytes are: (offset, size).

    (0, 0) if there is no such symbol, or the file has no table of its sections.
    """

    def rows(entry: Struct, offset: int, size: int) -> list[tuple[int, ...]]:
        file.seek(offset)
        content = file.read(size)
        return list(entry.iter_unpack(content[: len(content) // entry.size * entry.size]))

    file.seek(0)
    header = _HEADER.unpack(file.read(_HEADER.size))
    sections = rows(_SECTION, header[8], header[14] * _SECTION.size)
    for _, kind, _, _, offset, size, names, *_ in sections:
        if kind != _DYNAMIC_SYMBOLS:
            continue
        file.seek(sections[names][4])
        texts = file.read(sections[names][5])
        for at, _, _, section, address, length in rows(_SYMBOL, offset, size):
            if texts[at : texts.index(0, at)] == name.encode():
                _, _, _, start, place, *_ = sections[section]
                return address - start + place, length
    return 0, 0
