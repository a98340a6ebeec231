"""From the file of a library to a library: checked, from a copy of its own, each content once."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from weakref import WeakValueDictionary

import tvm
from tvm import relax

from tvm_rammer.errors import LibraryError, last_line
from tvm_rammer.region.library_content import other_format, stated_format
from tvm_rammer.runtime.checksum import NoChecksumError, copy_checked
from tvm_rammer.runtime.description import read_description
from tvm_rammer.runtime.library import Library
from tvm_rammer.runtime.private_copy import PrivateCopy

#: The loaded libraries that are in use, by the digest of their content.
_in_use: WeakValueDictionary[bytes, Library] = WeakValueDictionary()
_lock = threading.Lock()
# A child of fork gets the lock as it is, without the thread that would release it.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


def load(path: str | os.PathLike[str], checksum: bool = True) -> Library:
    """Load a library that :meth:`Library.export_library` wrote.

    What counts is the content: a path whose file has changed gives the new model, and files of the
    same content give the same library while it is in use. A library runs from a copy in memory, so
    its file may be replaced, overwritten or deleted meanwhile. When nothing made of it is in use
    any more, neither an instance nor a function, it is unloaded, its code and constants are freed,
    and nothing is left. Loading takes four times the size of the file for a moment, what is loaded
    takes it once.

    ``tvm.runtime.load_module`` does none of this: it takes damaged files, gives an old model for a
    path that it knows, and keeps every library for the rest of the process.

    Parameters
    ----------
    path : path
    checksum : bool
        False takes the file as it is, also one without a checksum, such as TVM's own
        ``export_library`` writes, and shares it with no other load. Checking reads 1.5 GB/s on a
        CPU with instructions for SHA-256, 0.5 GB/s on others; TVM itself loads 0.4 GB/s.

    Raises
    ------
    LibraryError
        When the file is missing, damaged, no library, of another version, or needs another CPU.
    """
    where = Path(path)
    copy, digest = _copied(where, checksum)
    if digest is None:
        return _loaded(where, copy)
    with _lock:
        known = _in_use.get(digest)
    if known is None:
        known = _loaded(where, copy)
        with _lock:
            # Another thread may have loaded it meanwhile.
            known = _in_use.setdefault(digest, known)
    return known


def _copied(where: Path, checksum: bool) -> tuple[PrivateCopy, bytes | None]:
    """What is in a file, as it was when it was read, and the digest of it if it was checked."""
    digest, problem, stated = None, None, None
    try:
        if where.is_dir():
            raise LibraryError(f"{where}: is a folder; give the file of a library")
        if not where.is_file():
            raise LibraryError(f"{where}: no such file; export a library there first")
        copy = PrivateCopy(where.name)
        try:
            digest = copy_checked(where, copy.write, checksum)
        except NoChecksumError as error:
            problem, stated = str(error), stated_format(where.read_bytes())
        except ValueError as error:
            problem = str(error)
    except OSError as error:
        raise LibraryError(
            f"{where}: cannot be read: {error.strerror or error}; make it readable, or copy it "
            "anew from where it was made"
        ) from error
    except MemoryError as error:
        raise LibraryError(
            f"{where}: cannot be copied into memory: {error}; free some, or ask who runs the "
            "machine"
        ) from error
    # What is no library, or half of one, is told so rather than that its checksum is wrong.
    if problem := copy.defect() or other_format(stated) or problem:
        raise LibraryError(f"{where}: {problem}; compile the model again")
    return copy, digest


def _loaded(where: Path, copy: PrivateCopy) -> Library:
    try:
        module = copy.load()
    except Exception as error:
        raise LibraryError(
            f"{where}: TVM cannot load it ({last_line(error)}); compile the model again"
        ) from error
    try:
        machine = relax.VirtualMachine(module, tvm.cpu())
    except (AttributeError, ValueError, RuntimeError) as error:
        raise LibraryError(f"{where}: not a library of tvm_rammer; compile the model") from error
    description = read_description(machine, str(where))
    # Nothing has run yet, so that nothing is kept in the library's own variables.
    description.backend.adopt(module)
    return Library(module, description, copy=copy)
