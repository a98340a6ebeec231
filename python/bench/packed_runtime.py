"""The part of TVM that runs a library for CUDA, copied into a folder for another machine.

It is TVM's runtime and that for CUDA, CUDA's runtime library where it is here, and the package
``tvm_ffi`` for one version of Python: some ten megabytes, without compilers.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import tvm

from tvm_rammer.errors import RammerError

#: Of ``tvm_ffi``, what only builds.
_LEFT_OUT = {"include", "3rdparty", "share", "src", "cython", "cmake", "testing", "__pycache__"}
_LIBRARIES = Path(tvm.__file__).parent / "lib"
_FFI = "apache-tvm-ffi"


def this_python() -> str:
    """The version of Python, as ``pip`` names it."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def cudart_name() -> str:
    """CUDA's runtime library that TVM's runtime needs, such as ``"libcudart.so.13"``."""
    found = re.search(rb"libcudart\.so\.\d+", (_LIBRARIES / "libtvm_runtime_cuda.so").read_bytes())
    if found is None:
        raise RammerError("this build of TVM has no runtime for CUDA: install apache-tvm from PyPI")
    return found[0].decode()


def copy_runtime(folder: Path, python: str) -> None:
    """Copy all that is needed.

    Parameters
    ----------
    folder : Path
        Is made.
    python : str
        Version of the other machine's Python, such as ``"3.12"``.

    Raises
    ------
    RammerError
        When pip finds no ``tvm_ffi`` for it.
    """
    folder.mkdir()
    if python == this_python():
        copy_ffi(folder)
    else:
        _fetch_ffi(folder, python)
    extensions = find_spec("typing_extensions")
    if extensions and extensions.origin:
        shutil.copy(extensions.origin, folder)
    libraries = folder / "lib"
    libraries.mkdir()
    for name in ("libtvm_runtime.so", "libtvm_runtime_cuda.so"):
        shutil.copy(_LIBRARIES / name, libraries)
    if cudart := _cudart():
        shutil.copy(cudart, libraries / cudart_name())


def copy_ffi(folder: Path) -> None:
    """Copy the package ``tvm_ffi`` that is installed, and what says that it is."""
    for file in distribution(_FFI).files or ():
        if _wanted(PurePosixPath(file)):
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target)


def _fetch_ffi(folder: Path, python: str) -> None:
    """Unpack the package ``tvm_ffi`` of the same version for another Python, which pip fetches."""
    wanted = f"{_FFI}=={distribution(_FFI).version}"
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version", python, "--dest", scratch, wanted]
        done = subprocess.run(command, capture_output=True, text=True)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            why = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise RammerError(
                f"pip fetches no {wanted} for Python {python} ({why}): give --python "
                f"{this_python()}, or --no-runtime and install apache-tvm there"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            names = [name for name in wheel.namelist() if _wanted(PurePosixPath(name))]
            wheel.extractall(folder, names)


def _wanted(file: PurePosixPath) -> bool:
    top = file.parts[0]
    ours = top == "tvm_ffi" or (top.startswith("apache_tvm_ffi") and top.endswith(".dist-info"))
    return ours and not _LEFT_OUT.intersection(file.parts)


def _cudart() -> Path | None:
    """CUDA's runtime library here; None if there is none."""
    name = cudart_name()
    for place in (name, *_of_packages(name)):
        try:
            ctypes.CDLL(place)
        except OSError:
            continue
        paths = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines())
        return next((Path(path) for path in paths if name in path), None)
    return None


def _of_packages(name: str) -> Iterable[str]:
    packages = find_spec("nvidia")
    for folder in packages.submodule_search_locations or () if packages else ():
        yield from sorted(str(path) for path in Path(folder).glob(f"*/lib/{name}"))
