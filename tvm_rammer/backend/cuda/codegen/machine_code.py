"""Machine code in libraries that are written where there is no driver of a GPU.

Where there is one, TVM compiles kernels when they are made. Where there is none, it keeps CUDA C,
and the machine that loads the library must have a compiler. So, before a library is written, nvcc
compiles its sources, and modules with machine code take the place of those with text. To make them
needs TVM's runtime for CUDA, which loads nothing without a driver: a stand-in that has no device.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_rammer.backend.cuda.cubin import compile_cubin, find_tool

_CREATE = "ffi.Module.create.cuda"
#: What an attribute of a kernel says of its launch: which extents, in order.
LAUNCH_TAGS = "tirx.kernel_launch_params"
#: What TVM's runtime calls of the driver; each answers that there is no device.
_DRIVER = (
    *("cuDeviceGetName", "cuFuncSetAttribute", "cuGetErrorName", "cuGetErrorString"),
    *("cuLaunchKernelEx", "cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload"),
    "cuTensorMapEncodeTiled",
)
_NO_DEVICE = 100

#: How the kernels of a source are called, as TVM's metadata; sources of this process.
_signatures: dict[str, str] = {}


def remember_signatures(source: str, functions: Mapping[Any, tirx.PrimFunc]) -> None:
    """Keep how the kernels of a source are called, which its module does not tell."""
    info = {
        str(func.attrs["global_symbol"]): {
            "name": "",
            "arg_types": [_argument(param) for param in func.params],
            "launch_param_tags": [str(tag) for tag in func.attrs[LAUNCH_TAGS]],
        }
        for func in functions.values()
        if LAUNCH_TAGS in func.attrs
    }
    _signatures[source] = json.dumps({"tvm_version": tvm.__version__, "func_info": info})


def embed_machine_code(module: tvm.runtime.Module, arch: str) -> int:
    """Put machine code in place of the CUDA C that a module imports, directly or not.

    Nothing happens where nvcc is not there, or where TVM has compiled the kernels already.

    Parameters
    ----------
    module : tvm.runtime.Module
    arch : str
        Such as ``"sm_90"``.

    Returns
    -------
    int
        Modules that were replaced.
    """
    if find_tool("nvcc") is None or tvm_ffi.get_global_func(_CREATE, allow_missing=True):
        return 0
    return _embed(module, arch)


def _embed(module: tvm.runtime.Module, arch: str) -> int:
    imports = list(module.imports)
    known = [_text_of(each) for each in imports]
    made = [
        each if text is None else _module_of(text, arch)
        for each, text in zip(imports, known, strict=True)
    ]
    replaced = sum(text is not None for text in known)
    if replaced:
        module.clear_imports()
        for each in made:
            module.import_module(each)
    return replaced + sum(_embed(each, arch) for each in imports)


def _text_of(module: tvm.runtime.Module) -> str | None:
    """The CUDA C of a module that was made here; None of any other."""
    text = module.inspect_source() if module.kind == "cuda" else None
    return text if text in _signatures else None


def _module_of(text: str, arch: str) -> tvm.runtime.Module:
    image = compile_cubin(text, arch, "-O3").image
    signatures = tvm_ffi.get_global_func("runtime.LoadMetaDataFromJSON")(_signatures[text])
    return _runtime()(image, "cubin", signatures, {"cuda": text})


@cache
def _runtime() -> Any:
    """What makes modules of TVM's runtime for CUDA, beside a driver that has no device."""
    with tempfile.TemporaryDirectory() as folder:
        text, library = Path(folder, "driver.c"), Path(folder, "driver.so")
        text.write_text("".join(f"int {n}(void) {{ return {_NO_DEVICE}; }}\n" for n in _DRIVER))
        options = ["-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
        subprocess.run(["g++", *options, str(text), "-o", str(library)], check=True)
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"))
    create = tvm_ffi.get_global_func(_CREATE)
    # Whoever compiles later in this process must find no runtime that has no device.
    tvm_ffi.registry.remove_global_func(_CREATE)
    return create


def _argument(param: Any) -> str:
    return "handle" if isinstance(param.ty, tvm.ir.PointerType) else str(param.ty)
