"""The checksum at the end of a library's file: of every byte before it.

What loads shared objects does not look behind their last section, so that TVM's runtime takes a
file with a checksum as it takes any other; it does not check it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

#: What stands before the digest.
_MARK = b"\ntvm_rammer sha256\n"
_TRAILER_BYTES = len(_MARK) + hashlib.sha256().digest_size
_CHUNK_BYTES = 1 << 20


class NoChecksumError(ValueError):
    """A file ends without one."""


def seal(path: Path) -> None:
    """Append the checksum of a file that has none."""
    with path.open("r+b") as file:
        digest = _read(file, os.fstat(file.fileno()).st_size, hashlib.sha256()).digest()
        file.write(_MARK + digest)


def copy_checked(path: Path, write: Callable[[bytes], Any], check: bool) -> bytes | None:
    """Copy the bytes before the checksum, and see whether they are those that were written.

    Parameters
    ----------
    path : Path
    write : callable
        Takes the bytes in order.
    check : bool
        False copies the whole file as it is.

    Returns
    -------
    bytes or None
        The digest of the content; None if it was not checked.

    Raises
    ------
    ValueError
        With what is wrong with the file; it is copied then too. A :class:`NoChecksumError` where no
        checksum is there to be wrong.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not check:
            _read(file, size, None, write)
            return None
        content = max(0, size - _TRAILER_BYTES)
        digest = _read(file, content, hashlib.sha256(), write).digest()
        trailer = file.read(_TRAILER_BYTES)
    if not trailer.startswith(_MARK):
        write(trailer)  # it is none
        raise NoChecksumError("it ends without a checksum, as a library of an earlier version")
    if trailer != _MARK + digest:
        raise ValueError("it is damaged: its checksum is wrong")
    return digest


def _read(
    file: BinaryIO, count: int, digest: Any, write: Callable[[bytes], Any] | None = None
) -> Any:
    """Read so many bytes, or what there is, into a digest and a writer."""
    while count > 0 and (chunk := file.read(min(count, _CHUNK_BYTES))):
        count -= len(chunk)
        if digest is not None:
            digest.update(chunk)
        if write is not None:
            write(chunk)
    return digest
