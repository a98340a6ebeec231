"""CUDA C to machine code by nvcc, and what each of its functions takes of an SM.

No GPU is needed: what ptxas says of registers, shared memory and spills holds wherever the code
runs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tvm_rammer.errors import DeviceError, ModelError
from tvm_rammer.units import listed


@dataclass(frozen=True)
class FunctionResources:
    """What a function takes.

    Attributes
    ----------
    name : str
    kernel : bool
        Whether it is launched, not called.
    registers : int
        Of a thread; of a function that is called, its kernel's count them.
    shared_bytes : int
        Static shared memory of a block.
    stack_bytes : int
        Of a thread.
    spill_stores, spill_loads : int
        Bytes that a thread writes to local memory, and reads, as registers run out.
    """

    name: str
    kernel: bool
    registers: int = 0
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_stores: int = 0
    spill_loads: int = 0


@dataclass(frozen=True)
class Cubin:
    """Machine code of a source for one architecture.

    Attributes
    ----------
    arch : str
    image : bytes
        An ELF file.
    functions : tuple of FunctionResources
        Kernels and the functions that they call, as ptxas names them.
    """

    arch: str
    image: bytes
    functions: tuple[FunctionResources, ...]

    @property
    def kernels(self) -> dict[str, FunctionResources]:
        """The kernels by name."""
        return {each.name: each for each in self.functions if each.kernel}

    @property
    def spilling(self) -> list[str]:
        """The names of all functions that have fewer registers than they need."""
        return [each.name for each in self.functions if each.spill_stores or each.spill_loads]


def find_tool(name: str) -> Path | None:
    """A program of CUDA's toolkit.

    On the ``PATH``, below ``$CUDA_HOME`` or ``$CUDA_PATH``, or of one of NVIDIA's Python packages.
    """
    homes = [os.environ[home] for home in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(home)]
    packages = find_spec("nvidia")
    for folder in packages.submodule_search_locations or () if packages else ():
        homes += sorted(map(str, Path(folder).glob("*")))
    places = os.pathsep.join([os.environ.get("PATH", ""), *(f"{home}/bin" for home in homes)])
    found = shutil.which(name, path=places)
    return Path(found) if found else None


def compile_cubin(source: str, arch: str, *flags: str) -> Cubin:
    """Compile CUDA C.

    Parameters
    ----------
    source : str
    arch : str
        Such as ``"sm_90"``.
    flags : str
        More options of nvcc.

    Raises
    ------
    DeviceError
        When nvcc is not there, or does not know the architecture.
    ModelError
        When it refuses the source: its first words.
    """
    nvcc = find_tool("nvcc")
    if nvcc is None:
        raise DeviceError(
            "nvcc is not there, which compiles kernels for GPUs: install CUDA's compiler, and put "
            "it on the PATH or name its folder in CUDA_HOME"
        )
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "kernels.cu"), Path(folder, "kernels.cubin")
        given.write_text(source)
        options = ["-w", f"-arch={arch}", "-cubin", "--ptxas-options=-v", *flags]
        command = [str(nvcc), *options, given.name, "-o", made.name]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise _refusal(nvcc, arch, done.stdout + done.stderr)
        return Cubin(arch, made.read_bytes(), parse_resources(done.stdout + done.stderr))


def check_nvcc(arch: str) -> None:
    """Raise a DeviceError if nvcc is there and does not compile for an architecture."""
    known = known_architectures()
    # Variants such as sm_90a are not listed.
    if known and arch.rstrip("af") not in known:
        raise _unknown(arch, known)


def known_architectures() -> list[str]:
    """What nvcc compiles for, the oldest first; nothing where it is not there."""
    nvcc = find_tool("nvcc")
    return [] if nvcc is None else _architectures(nvcc)


def parse_resources(text: str) -> tuple[FunctionResources, ...]:
    """What ``ptxas -v`` says of functions, in its order."""
    found: dict[str, dict[str, int]] = {}
    kernels = set()
    current = ""
    for line in text.splitlines():
        if named := re.search(r"Compiling entry function '([^']+)'", line):
            current = named[1]
            kernels.add(current)
        elif named := re.search(r"Function properties for (\S+)", line):
            current = named[1]
        elif current:
            numbers = found.setdefault(current, {})
            for field, pattern in _NUMBERS.items():
                if number := re.search(pattern, line):
                    numbers[field] = int(number[1])
    return tuple(FunctionResources(n, n in kernels, **numbers) for n, numbers in found.items())


_NUMBERS = {
    "registers": r"Used (\d+) registers",
    "shared_bytes": r"(\d+) bytes smem",
    "stack_bytes": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
}


def _refusal(nvcc: Path, arch: str, text: str) -> DeviceError | ModelError:
    if "Unsupported gpu architecture" in text or "is not defined for option" in text:
        return _unknown(arch, _architectures(nvcc))
    lines = [line for line in text.splitlines() if "error" in line or "fatal" in line]
    why = lines[0].strip() if lines else text.strip()[-200:]
    return ModelError(f"nvcc refuses the kernels for {arch}: {why}")


def _architectures(nvcc: Path) -> list[str]:
    """What nvcc compiles for, as it says; nothing if it does not."""
    done = subprocess.run([str(nvcc), "--list-gpu-code"], capture_output=True, text=True)
    return done.stdout.split()


def _unknown(arch: str, known: list[str]) -> DeviceError:
    return DeviceError(
        f"nvcc does not compile for {arch}: it knows {listed(known, most=20)}; older and newer "
        "GPUs need another version of CUDA"
    )
