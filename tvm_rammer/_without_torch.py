"""Imports TVM without PyTorch, which TVM and tvm-ffi would import wherever it is installed.

That costs seconds and half a gigabyte, and a broken PyTorch breaks TVM. A program that will give
TVM no tensors of PyTorch's, such as the command line on an ONNX file, need not pay for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


def import_tvm_without_torch() -> None:
    """Hide PyTorch from TVM while that is imported, once; nobody else notices.

    Nothing changes if either is imported already.
    """
    if not {"tvm", "tvm_ffi", "torch"} & sys.modules.keys():
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds TVM and tvm-ffi as usual, and then goes away."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in ("tvm", "tvm_ffi"):
            return None
        if fullname == "tvm":
            sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and "torch" not in sys.modules:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Loads a module while PyTorch cannot be imported."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        sys.modules["torch"] = None  # type: ignore[assignment]
        try:
            self._loader.exec_module(module)
        finally:
            del sys.modules["torch"]
