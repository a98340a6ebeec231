"""What is wrong with a shared object, told before the system's loader dies of it.

A file that is cut short kills the process that loads it (SIGBUS), and one for another architecture
is reported as missing.
"""

from __future__ import annotations

import platform
from pathlib import Path
from struct import Struct

# The header of a 64-bit little-endian ELF file, and its entry for a segment.
_HEADER = Struct("<4sBB10xHHIQQQIHHHHHH")
_SEGMENT = Struct("<IIQQQQQQ")
_MAGIC = (b"\x7fELF", 2, 1)
_MACHINES = {62: "x86_64", 183: "aarch64"}


def defect(path: Path) -> str | None:
    """Why a file cannot be loaded on this machine; None if nothing speaks against it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or _HEADER.unpack(head)[:3] != _MAGIC:
            return "no shared object"
        fields = _HEADER.unpack(head)
        machine, segments_at, sections_at, length, count = (fields[k] for k in (4, 7, 8, 11, 12))
        file.seek(segments_at)
        table = file.read(length * count)
    # The sections' table is the end of the file.
    if length != _SEGMENT.size or len(table) < length * count or sections_at > size:
        return "cut short"
    segments = (_SEGMENT.unpack_from(table, k * length) for k in range(count))
    if any(offset + stored > size for _, _, offset, _, _, stored, _, _ in segments):
        return "cut short"
    built_for, here = _MACHINES.get(machine, "another processor"), platform.machine()
    return None if built_for == here else f"compiled for {built_for}, this machine is {here}"
