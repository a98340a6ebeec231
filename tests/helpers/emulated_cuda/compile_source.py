"""Compiles CUDA C with g++ into a library that TVM-FFI loads."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import tvm_ffi

from emulated_cuda.inline_ptx import translate_inline_ptx

HERE = Path(__file__).parent
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-w", "-U_FORTIFY_SOURCE", "-fno-strict-aliasing")
#: A GPU loads and stores vectors only where they are aligned.
ALIGNED = ("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error")
#: Every load and store of a kernel calls what looks for races.
WATCHED = ("-fsanitize=thread", "--param", "tsan-distinguish-volatile=1", "--param")
WATCHED += ("tsan-instrument-func-entry-exit=0",)
#: What a kernel takes after its own arguments, by the number that the entry has for it.
TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
TAGS += ("tirx.use_dyn_shared_memory",)
COOPERATIVE = "tirx.use_cooperative_launch"

_SHARED = re.compile(
    r"(?P<extern>extern\s+)?__shared__\s+(?:(?:__align__|alignas)\s*\(\d+\)\s+)?"
    r"(?P<type>[\w:]+(?:\s+\w+)*?)\s+(?P<name>\w+)\s*(?P<extent>\[[^\]]*\])?;"
)


def obstacle() -> str:
    """Why CUDA cannot be emulated here; empty if it can."""
    if not shutil.which(compiler()):
        return f"{compiler()} is not there, which compiles CUDA sources for the emulation"
    return ""


def compiler() -> str:
    """What compiles: ``$CXX`` or g++."""
    return os.environ.get("CXX", "g++")


def compile_source(source: str, kernels: Mapping[str, Sequence[str]], races: bool = False) -> Path:
    """Compile CUDA C, once for each source.

    Parameters
    ----------
    source : str
        As TVM generates it.
    kernels : mapping of str to sequence of str
        The names of its kernels, and the tags of what each is launched with.
    races : bool
        Whether launches look for races, which end them with an error; some ten times slower.

    Returns
    -------
    Path
        Of a shared library; ``tvm_ffi.load_module`` gives its kernels.
    """
    text = "\n".join(
        ['#include "emulated.h"', '#line 1 "kernels.cu"', translate(source), '#line 1 "entries"']
        + [_entry(name, tags) for name, tags in kernels.items()]
    )
    runtime = _runtime()
    name = sha256(f"{races}{text}".encode()).hexdigest()[:16]
    library = runtime.with_name(f"{name}.so")
    if not library.exists():
        code, made = library.with_suffix(".cpp"), library.with_suffix(".o")
        code.write_text(text)
        flags = (*ALIGNED, *(WATCHED if races else ()))
        _run(*flags, "-c", f"-I{HERE / 'include'}", str(code), "-o", str(made))
        found = [f"-Wl,-rpath,{path}" for path in (runtime.parent, _ffi())]
        _run(
            "-shared",
            *found,
            str(made),
            str(runtime),
            f"-L{_ffi()}",
            "-ltvm_ffi",
            "-o",
            str(library),
        )
    return library


def translate(source: str) -> str:
    """CUDA C as C++, line by line: storage that blocks share, inline PTX and linkage."""
    sites = iter(range(len(source)))

    def shared(found: re.Match[str]) -> str:
        dtype, name = found["type"], found["name"]
        if found["extern"]:
            return f"{dtype}* {name} = ({dtype}*)emulated::dynamic_shared();"
        place = f"emulated::shared<{dtype}{found['extent'] or ''}>({next(sites)})"
        before = found.string[: found.start()]
        if before.count("{") == before.count("}"):
            # Of the whole file: every block has one, so it is looked up where it is used.
            return f"#define {name} ({place})"
        return f"auto& {name} = {place};"

    source = _SHARED.sub(shared, translate_inline_ptx(source))
    # What the host may call as well is not always a function of its own that could be static.
    source = re.sub(r"__host__ __device__|__device__ __host__", "", source)
    return re.sub(r'extern "C" (?=__global__|__device__)', "", source)


def _entry(name: str, tags: Sequence[str]) -> str:
    numbers = ", ".join(str(TAGS.index(tag)) for tag in tags if tag != COOPERATIVE)
    return (
        f'extern "C" __attribute__((visibility("default"))) int __tvm_ffi_{name}('
        "void*, const EmulatedAny* given, int count, EmulatedAny* result) {\n"
        f"  return emulated::enter({name}, given, count, result, {{{numbers}}}, "
        f"{'true' if COOPERATIVE in tags else 'false'});\n}}\n"
        'extern "C" __attribute__((visibility("default"))) '
        f"const emulated::Entry emulated_entry_{name} = emulated::Driven<{name}>::entry;"
    )


def _ffi() -> Path:
    return Path(tvm_ffi.__file__).parent / "lib"


@cache
def _runtime() -> Path:
    """The scheduler, compiled once for a process."""
    folder = Path(tempfile.mkdtemp(prefix="emulated-cuda-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "libemulated.so"
    sources = (str(HERE / name) for name in ("emulated.cpp", "races.cpp"))
    _run("-shared", *sources, "-lpthread", f"-Wl,-soname,{library.name}", "-o", str(library))
    return library


@cache
def driver_folder() -> Path:
    """Where an emulated driver is, ``libcuda.so.1`` and ``libcudart.so.13``: see ``driver.cpp``."""
    runtime = _runtime()
    folder = runtime.parent
    driver, script = folder / "libcuda.so.1", folder / "versions"
    _run("-shared", str(HERE / "driver.cpp"), str(runtime), *_named(driver), "-ldl")
    # All is in the driver; TVM's runtime asks for it by the version of the runtime library.
    library = folder / "libcudart.so.13"
    script.write_text(f"{library.name} {{}};\n")
    needed = (f"-Wl,--version-script={script}", "-Wl,--no-as-needed", str(driver))
    _run("-shared", "-x", "c++", os.devnull, "-x", "none", *needed, *_named(library))
    return folder


def _named(library: Path) -> tuple[str, ...]:
    return (f"-Wl,-soname,{library.name}", "-Wl,-rpath,$ORIGIN", "-o", str(library))


def _run(*arguments: str) -> None:
    done = subprocess.run([compiler(), *FLAGS, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{compiler()} refused an emulated source:\n{done.stderr[:4000]}")
