"""Files that a benchmark goes on from: refused if they are of another kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tvm_rammer.errors import InputError
from tvm_rammer.whole_files import write_whole


class Measured(Protocol):
    """What was measured, under one setting."""

    setting: Any


R = TypeVar("R", bound=Measured)
T = TypeVar("T")


def save(path: Path, head: Mapping[str, Any], name: str, items: Mapping[str, Any]) -> None:
    """Write a file in one step, a line for each item: an interrupt leaves the old one whole."""
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(item)}" for key, item in items.items())
    write_whole(path, f'{json.dumps(head)[:-1]},\n"{name}": {{\n{lines}\n}}}}\n'.encode())


def load(path: Path, number: int, script: str, parse: Callable[[Any], T]) -> T:
    """What a file of format ``number`` holds, made by ``script``.

    Raises
    ------
    InputError
        The file is missing or of another kind.
    """
    try:
        data = json.loads(path.read_text())
        if data["format"] != number:
            raise ValueError
        return parse(data)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a result of {script}; give another file") from error


def resumed(path: Path | None, load: Callable[[Path], R], empty: R) -> R:
    """What an earlier run found under the setting of ``empty``, or ``empty``."""
    if path is None or not path.exists():
        return empty
    found = load(path)
    if found.setting != empty.setting:
        raise InputError(f"{path} was measured with {found.setting}; give another file")
    return found
