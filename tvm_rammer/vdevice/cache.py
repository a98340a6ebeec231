"""Keeps measurements between processes: small JSON files in the user's cache folder."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import platformdirs


def cache_directory() -> Path:
    """Where measurements are kept: ``TVM_RAMMER_CACHE_DIR`` or the user's cache folder."""
    return Path(os.environ.get("TVM_RAMMER_CACHE_DIR") or platformdirs.user_cache_dir("tvm-rammer"))


def load_json(name: str, folder: Path | None = None) -> Any:
    """What was stored under ``name``, here or in another folder; None if nothing can be read."""
    try:
        return json.loads(((folder or cache_directory()) / name).read_text())
    except (OSError, ValueError):
        return None


def store_json(name: str, value: Any) -> None:
    """Store ``value`` under ``name`` in one step, so that nobody ever reads half a file.

    A folder that cannot be written costs a measurement the next time, and one warning now.
    """
    folder = cache_directory()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / name, json.dumps(value, indent=1))
    except OSError as error:
        warnings.warn(
            f"measurements are not kept, as {folder} cannot be written ({error.strerror}): "
            "set TVM_RAMMER_CACHE_DIR to a folder that can",
            stacklevel=2,
        )


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
