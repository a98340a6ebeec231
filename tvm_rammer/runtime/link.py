"""Links an executable into a shared object.

As TVM's own ``export_library`` does, which makes the code of one part after the other, a third of
the time from a model to its file, gives constants to LLVM, which copies them four times, and ends
the process when a disk is full, as LLVM does. Here parts are made side by side, into memory; what
has no code, as constants and what the VM runs, is a file that the assembler includes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import tvm_ffi
from tvm.runtime import Module
from tvm.support import cc

from tvm_rammer.memory_file import memory_file

#: Where TVM looks for what has no code, when it loads a library.
SERIALISED = "__tvm_ffi__library_bin"
#: How TVM packs that into an array of bytes.
_PACK = "runtime.ModulePackImportsToTensor"
#: Code for x86-64 does not reach past 2 GiB: what is as large lies in a section behind all others.
_NEAR, _FAR = ".rodata", '.lrodata, "al", %progbits'
_FAR_BYTES = 1 << 30
_INCLUDED = """
.section {section}
.globl {symbol}
.type {symbol}, %object
.size {symbol}, {nbytes}
{symbol}:
.incbin "{path}"
.section .note.GNU-stack, "", %progbits
"""


def link_shared_object(root: Module, architecture: str, path: Path, folder: Path) -> None:
    """Write a module and all that it imports.

    Parameters
    ----------
    root : Module
        That of an executable; what has code among its imports is LLVM's.
    architecture : str
        What it is for, e.g. ``"aarch64"``.
    path : Path
        Of the shared object.
    folder : Path
        For files that the compiler reads, which stay there.

    Raises
    ------
    OSError
        A file cannot be written.
    RuntimeError
        The compiler does not link.
    """
    parts = [module for module in _imported(root) if module.is_compilation_exportable()]
    # Threads end before their files are closed, also where one fails.
    with _in_memory(parts) as objects, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        packed = threads.submit(_write_packed, root, architecture, folder)
        list(threads.map(lambda part, name: part.write_to_file(name, "o"), parts, objects))
        cc.create_shared(str(path), [*objects, packed.result()])


def _imported(root: Module) -> Iterator[Module]:
    """A module and what it imports, directly or not, each once."""
    found, left = {root}, [root]
    while left:
        module = left.pop()
        yield module
        new = [each for each in module.imports if each not in found]
        found.update(new)
        left += new


@contextmanager
def _in_memory(parts: Sequence[Module]) -> Iterator[list[str]]:
    """The name of a file in memory for each part, which other processes can read too."""
    with ExitStack() as files:
        names = []
        for _ in parts:
            descriptor = memory_file("part")
            files.callback(os.close, descriptor)
            names.append(f"/proc/{os.getpid()}/fd/{descriptor}")
        yield names


def _write_packed(root: Module, architecture: str, folder: Path) -> str:
    """The name of an assembler's file with all that has no code."""
    content = np.from_dlpack(tvm_ffi.get_global_func(_PACK)(root))
    raw, text = folder / "packed.bin", folder / "packed.s"
    raw.write_bytes(content.data)
    far = architecture == "x86_64" and content.nbytes > _FAR_BYTES
    quoted = str(raw).replace("\\", "\\\\").replace('"', '\\"')
    words = {"symbol": SERIALISED, "nbytes": content.nbytes, "path": quoted}
    text.write_text(_INCLUDED.format(section=_FAR if far else _NEAR, **words))
    return str(text)
