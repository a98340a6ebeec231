"""Files that a command writes: whole, or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tvm_rammer.errors import InputError
from tvm_rammer.whole_files import refusals_told, write_whole

_DESCRIPTORS = ("/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/proc")


def require_writable(path: Path) -> None:
    """Raise an InputError if a file cannot be made there: before the work, not after it."""
    with (
        refusals_told(f"{path}: cannot be written"),
        suppress(FileNotFoundError, NotADirectoryError),
    ):
        path.stat()  # fails where a name is too long, or a folder may not be entered
    if _is_stream(path) and path.exists():
        return
    folder = path.parent
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file")
    if not folder.is_dir():
        raise InputError(f"{path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: the folder {folder} cannot be written; choose another path")


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, which appears complete or not at all.

    Where a device or a pipe is, e.g. ``/dev/stdout``, the content goes there instead.
    """
    data = content.encode() if isinstance(content, str) else content
    with refusals_told(f"{path}: cannot be written"):
        if _is_stream(path):
            with path.open("ab") as stream:
                stream.write(data)
        else:
            write_whole(path, data)


def _is_stream(path: Path) -> bool:
    """Whether a name stands for a device, a pipe or what this process has open already."""
    if any(path.absolute().is_relative_to(place) for place in _DESCRIPTORS):
        return True
    return path.exists() and not path.is_file() and not path.is_dir()
