"""Files that appear whole or not at all, and nothing left of those whose writers were killed.

What is being written has a name that nobody can guess, in the folder where it goes in the end, and
is locked by the writer for as long as that lives. Whoever writes into the same folder next removes
what no living process has locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tvm_rammer.errors import InputError

_ADVICE = {
    errno.ENOSPC: "make room on the disk, or choose another path",
    errno.EDQUOT: "your quota is used up: make room, or choose another path",
    errno.EFBIG: "the limit for the size of a file is reached (ulimit -f): raise it",
    errno.EMFILE: "too many files are open (ulimit -n): raise the limit",
}
#: Names of what is being written.
_UNFINISHED = re.compile(r"\.rammer-[0-9a-f]{16}")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file with the permissions that the umask leaves; it appears complete or not at all.

    Raises
    ------
    OSError
        When it cannot be written; what was there before stays.
    """
    with _unfinished(path.parent, _make_file) as (partial, handle):
        with open(handle, "wb", closefd=False) as file:
            file.write(data)
        os.replace(partial, path)


@contextmanager
def working_folder(parent: Path) -> Iterator[Path]:
    """A folder to make files in that are then moved to ``parent``; it goes with the block."""
    with _unfinished(parent, _make_folder) as (folder, _):
        yield folder


def advice_for(error: OSError) -> str:
    """What to do about a file that cannot be written."""
    return _ADVICE.get(error.errno or 0, "choose another path")


@contextmanager
def refusals_told(what: str, advice: str = "") -> Iterator[None]:
    """Make an InputError of what the system refuses: what failed, why, and what to do about it."""
    try:
        yield
    except OSError as error:
        cause = error.strerror or error
        raise InputError(f"{what}: {cause}; {advice or advice_for(error)}") from error


def remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed have left behind in a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _UNFINISHED.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_if_left(Path(entry.path))


@contextmanager
def _unfinished(folder: Path, make: Callable[[Path], int | None]) -> Iterator[tuple[Path, int]]:
    """Something new with a name of its own, and a descriptor of it that holds the lock."""
    remove_unfinished(folder)
    while True:
        path = folder / f".rammer-{secrets.token_hex(8)}"
        handle = make(path)
        if handle is not None and _is_ours(path, handle):
            break
        if handle is not None:  # somebody took it for a leftover before it was locked
            os.close(handle)
    try:
        yield path, handle
    finally:
        with suppress(FileNotFoundError):
            _remove(path)
        close_unlocked(handle)


def _make_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _make_folder(path: Path) -> int | None:
    """None if somebody removed it before it was opened."""
    path.mkdir(mode=0o700)
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _remove_if_left(path: Path) -> None:
    """Remove a file or a folder of this user that nobody has locked."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        ours = found.st_uid == os.geteuid() and stat.S_IFMT(found.st_mode) in _KINDS
        if ours and try_lock(handle):
            _remove(path)
    finally:
        close_unlocked(handle)


_KINDS = (stat.S_IFREG, stat.S_IFDIR)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def try_lock(handle: int) -> bool:
    """Whether the lock is ours now; the system gives it up when the process ends, however it ends.

    Raises
    ------
    OSError
        Where files cannot be locked.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def close_unlocked(handle: int) -> None:
    """Close, and give the lock up: a child of fork that has the descriptor too would keep it."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def _is_ours(path: Path, handle: int) -> bool:
    """Whether what was made is locked and still there; where there are no locks, nobody removes."""
    try:
        return try_lock(handle) and os.path.samestat(os.lstat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
    except OSError:
        return True
