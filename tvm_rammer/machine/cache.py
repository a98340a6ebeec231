"""Keeps measurements between processes: small JSON files in the user's cache folder.

Nothing that is in such a file stops a build: what cannot be read is ignored and named. Writers of
one file take turns, so that no entry is lost; entries with a file each need no turns.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs

from tvm_rammer.printable import printable
from tvm_rammer.typed_json import parse_json, problem_of, read_as
from tvm_rammer.units import counted
from tvm_rammer.whole_files import close_unlocked, remove_unfinished, try_lock, write_whole

#: A file that is larger holds something else.
_MOST_BYTES = 64 << 20
#: Seconds until a writer gives up: others hold the lock for milliseconds, unless they are stopped.
_LOCK_SECONDS = 10.0
#: Says that a file system has no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
#: What this package has ever put into the folder.
_OURS = (
    "calibration*.json",
    "ceilings*.json",
    "decisions.json",
    "decisions/*.json",
    "kernel_costs.json",
    "model_statistics.json",
)
_OUR_FOLDERS = ("decisions",)


def cache_directory() -> Path:
    """Where measurements are kept: ``TVM_RAMMER_CACHE_DIR`` or the user's cache folder."""
    return Path(os.environ.get("TVM_RAMMER_CACHE_DIR") or platformdirs.user_cache_dir("tvm-rammer"))


def clear_cache() -> list[Path]:
    """Remove what was measured and decided, and nothing else; the files that were there.

    Raises
    ------
    OSError
        When one cannot be removed.
    """
    folder = cache_directory()
    found = sorted({path for pattern in _OURS for path in folder.glob(pattern)})
    for path in found:
        path.unlink()
    remove_unfinished(folder)
    for name in _OUR_FOLDERS:
        remove_unfinished(folder / name)
        with suppress(OSError):  # it is not there, or holds something else
            (folder / name).rmdir()
    return found


@dataclass(frozen=True)
class CacheFile:
    """A file of the cache folder, with entries of one type under keys of text.

    Attributes
    ----------
    name : str
        Of the file.
    kind : type
        What every entry is; see :func:`~tvm_rammer.typed_json.read_as`.
    check : callable, optional
        Raises a ValueError for an entry of the type that no measurement gives.
    most : int
        Older entries are dropped beyond this many.
    """

    name: str
    kind: Any
    check: Callable[[Any], None] | None = None
    most: int = 1_000

    def load(self, folder: Path | None = None) -> dict[str, Any]:
        """The entries, here or in another folder; what cannot be used is left out with a warning.

        Returns
        -------
        dict
            Older ones first.
        """
        path = (folder or cache_directory()) / self.name
        return {key: entry for key, (_, entry) in self._read(path).items()}

    def add(self, fresh: Mapping[str, Any]) -> None:
        """Add entries of plain data to those on disk, in place of those with the same keys.

        What :meth:`load` would not give back is not kept. A folder that cannot be written costs a
        measurement the next time, and one warning now.
        """
        folder = cache_directory()
        path = folder / self.name
        usable = {key: value for key, value in fresh.items() if _is_usable(self, value)}
        with _kept_or_named(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with _lock(folder):
                kept = {k: raw for k, (raw, _) in self._read(path).items() if k not in usable}
                entries = dict(list({**kept, **usable}.items())[-self.most :])
                write_whole(path, json.dumps(entries, indent=1).encode())

    def _read(self, path: Path) -> dict[str, tuple[Any, Any]]:
        """Every entry that can be used, as it is written and as what it is."""
        stored = _parsed(path, {})
        if not isinstance(stored, dict):
            _warn(f"{path} holds no measurements and is ignored; remove it")
            return {}
        found, problems = {}, []
        for key, value in stored.items():
            try:
                found[key] = value, _entry(self, value)
            except ValueError as error:
                problems.append(f"of {_short(key)} {problem_of(error)}")
        if problems:
            _warn(
                f"{path}: {counted(len(problems), 'measurement')} cannot be used and "
                f"{'is' if len(problems) == 1 else 'are'} ignored ({problems[0]})"
            )
        return found


@dataclass(frozen=True)
class CacheFolder:
    """A folder of the cache folder, with a file for each entry: they are asked for one by one.

    A file appears whole or not at all, and no two entries share one: there is nothing that writers
    would have to take turns for, and damage costs one entry.

    Attributes
    ----------
    name : str
        Of the folder.
    kind, check
        As of a :class:`CacheFile`.
    most : int
        Beyond this many the tenth that was written first is dropped: to look for it takes longer
        than to write an entry.
    """

    name: str
    kind: Any
    check: Callable[[Any], None] | None = None
    most: int = 1_000

    def get(self, key: str) -> Any:
        """The entry under a key; None, with a warning where something is there of no use."""
        path = self._path(key)
        stored = _parsed(path, None)
        if stored is None:
            return None
        try:
            keyed = read_as(_Keyed, stored)
            if keyed.key != key:
                raise ValueError(f"it is that of {_short(keyed.key)}")
            return _entry(self, keyed.entry)
        except ValueError as error:
            _warn(f"{path} cannot be used and is ignored ({problem_of(error)}); remove it")
            return None

    def put(self, key: str, value: Any) -> None:
        """Keep an entry of plain data; what :meth:`get` would not give back is not kept.

        A folder that cannot be written costs a measurement the next time, and one warning now.
        """
        if not _is_usable(self, value):
            return
        path = self._path(key)
        with _kept_or_named(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(asdict(_Keyed(key, value)), indent=1).encode())
            self._drop_oldest(path.parent)

    def _path(self, key: str) -> Path:
        digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
        return cache_directory() / self.name / f"{digest}.json"

    def _drop_oldest(self, folder: Path) -> None:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name.endswith(".json")]
        if len(found) <= self.most:
            return
        with suppress(FileNotFoundError):  # others drop them too
            found.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
            for entry in found[: len(found) - self.most + self.most // 10]:
                os.unlink(entry.path)


@dataclass(frozen=True)
class _Keyed:
    """What is in a file of one entry."""

    key: str
    entry: Any


def _entry(cache: CacheFile | CacheFolder, value: Any) -> Any:
    """A value of JSON as an entry of a cache; a ValueError if it is none."""
    entry = read_as(cache.kind, value)
    if cache.check is not None:
        cache.check(entry)
    return entry


def _is_usable(cache: CacheFile | CacheFolder, value: Any) -> bool:
    try:
        _entry(cache, json.loads(json.dumps(value)))
    except ValueError:
        return False
    return True


@contextmanager
def _kept_or_named(folder: Path) -> Iterator[None]:
    """What cannot be written is not kept, with a warning."""
    try:
        yield
    except OSError as error:
        _warn(
            f"measurements are not kept, as {folder} cannot be written ({error.strerror}): "
            "set TVM_RAMMER_CACHE_DIR to a folder that can"
        )


def _parsed(path: Path, nothing: Any) -> Any:
    """The value of a file; ``nothing`` if there is none, and with a warning if it is no JSON."""
    try:
        return parse_json(_text(path))
    except (FileNotFoundError, NotADirectoryError):
        return nothing
    except (OSError, ValueError) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or error
        _warn(f"{path} cannot be read and is ignored ({cause}); remove it")
        return nothing


def _text(path: Path) -> str:
    """What is in a file; a pipe, a device or a folder in its place is an error and no wait."""
    with open(path, "rb", opener=_open_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no file")
        if found.st_size > _MOST_BYTES:
            raise ValueError(f"it has {found.st_size} bytes")
        return file.read(_MOST_BYTES).decode()


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Wait until no other process writes into the folder.

    The lock is on the folder itself, and the system gives it up when a process ends.

    Raises
    ------
    OSError
        When another process does not give it up.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    give_up = time.monotonic() + _LOCK_SECONDS
    try:
        while not _try_lock(handle):
            if time.monotonic() > give_up:
                raise TimeoutError(errno.ETIMEDOUT, "another process has locked it")
            time.sleep(0.002)
        yield
    finally:
        close_unlocked(handle)


def _try_lock(handle: int) -> bool:
    """Whether the lock is ours; where there are no locks, nobody waits."""
    try:
        return try_lock(handle)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return True


def _short(key: str) -> str:
    return repr(key if len(key) <= 60 else key[:57] + "...")


def _warn(message: str) -> None:
    warnings.warn(printable(message), stacklevel=4)
