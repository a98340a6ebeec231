"""Files that a command writes: whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from tvm_rammer.errors import InputError


def require_writable(path: Path) -> None:
    """Raise an InputError if a file cannot be made there: before the work, not after it."""
    folder = path.parent
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file")
    if not folder.is_dir():
        raise InputError(f"{path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: the folder {folder} cannot be written; choose another path")


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, which appears complete or not at all."""
    data = content.encode() if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.exists() and not path.is_file():  # /dev/stdout
            path.write_bytes(data)
            return
        try:
            partial.write_bytes(data)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        cause = error.strerror or error
        raise InputError(f"{path}: cannot be written: {cause}; choose another path") from error
