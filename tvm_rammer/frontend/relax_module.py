"""Relax modules: saved ones are read, symbolic dimensions get sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir.json_compact import upgrade_json

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.input_constants import Constants, as_constant, checked_constants
from tvm_rammer.frontend.input_shapes import (
    Dims,
    Shapes,
    Size,
    require_memory,
    symbol_values,
)
from tvm_rammer.frontend.loaded_model import LoadedModel, one_line
from tvm_rammer.tensors import as_tensor


def read_json(path: Path) -> tvm.IRModule:
    """Read a module that ``tvm.ir.save_json`` wrote."""
    data = path.read_bytes()
    try:
        text = data.decode()
        if not text.lstrip().startswith("{"):
            raise ValueError("no JSON object")
        text = upgrade_json(text)
        if _crashes(text):
            raise ModelError(f"{path}: damaged so that TVM crashes when it reads it; save it again")
        module = tvm.ir.load_json(text)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"{path}: not a module saved by tvm.ir.save_json, or damaged ({one_line(error)}); "
            "save it again"
        ) from error
    if not isinstance(module, tvm.IRModule):
        raise ModelError(
            f"{path}: holds a {type(module).__name__}, not a tvm.IRModule; save the whole module"
        )
    return module


#: Reads a module and visits all of it, in a process that may die of it. Of TVM it has the libraries
#: alone: to import the package takes longer than everything else.
_VISIT = """
import ctypes, sys

sys.modules["torch"] = None
import tvm_ffi
from tvm_ffi.serialization import from_json_graph_str

for library in sys.argv[1:]:
    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
module = from_json_graph_str(sys.stdin.read())
tvm_ffi.structural_hash(module)
tvm_ffi.get_global_func("relax.analysis.well_formed")(module, True)
"""


def _crashes(text: str) -> bool:
    """Whether a process that reads the module dies; TVM's reader checks no types of fields."""
    if not sys.executable:
        return False
    libraries = [library._name for library in tvm.base._LOADED_LIBS.values()]
    done = subprocess.run(
        [sys.executable, "-c", _VISIT, *libraries],
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        input=text.encode(errors="surrogatepass"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return done.returncode < 0


def from_relax(module: tvm.IRModule, where: str) -> LoadedModel:
    """A module whose ``main`` takes inputs and weights."""
    main = {var.name_hint: function for var, function in module.functions.items()}.get("main")
    if not isinstance(main, relax.Function):
        raise ModelError(f"{where}: the module has no Relax function 'main'; rename its entry")
    count = len(main.ret_ty.fields) if isinstance(main.ret_ty, relax.TupleType) else 1
    outputs = tuple(f"output_{number}" for number in range(count))
    return LoadedModel(module, tuple(param.name for param in main.params), outputs)


def specialise(model: LoadedModel, shapes: Shapes, where: str) -> LoadedModel:
    """Give the symbolic dimensions of a module the sizes that the shapes imply."""
    values = _symbol_values(model, shapes, where)
    if not values:
        return model
    names = {size for size in values.values() if isinstance(size, str)}
    called = {name: tirx.Var(name, "int64") for name in names}
    sizes = {
        symbol: called[size] if isinstance(size, str) else size
        for symbol, size in values.items()
        if symbol != size
    }
    if not sizes:
        return model
    bound = replace(model, module=relax.transform.BindSymbolicVars(sizes, "main")(model.module))
    _symbol_values(bound, shapes, where)  # a dimension such as n + 1 has a size now
    return bound


def _symbol_values(model: LoadedModel, shapes: Shapes, where: str) -> dict[str, Size]:
    """Size of every symbol that the shapes speak of, where the inputs fit into memory with them."""
    inputs = relax_inputs(model)
    values = symbol_values(inputs, shapes, where)
    known = {
        name: [values.get(dim, dim) if isinstance(dim, str) else dim for dim in dims]
        for name, dims in inputs.items()
        if dims is not None
    }
    params = dict(zip(model.input_names, model.input_params, strict=True))
    itemsizes = {name: _itemsize(params[name]) for name in known}
    require_memory(known, itemsizes, where)
    return values


def _itemsize(param: relax.Var) -> int:
    """Bytes of an element; 1, at least, of a type that is not given or that numpy lacks."""
    try:
        return np.dtype(str(param.ty.dtype)).itemsize
    except TypeError:
        return 1


def bind_constants(
    model: LoadedModel, shapes: Shapes, constants: Constants, where: str
) -> LoadedModel:
    """Fix inputs of a module to values."""
    checked_constants(constants, dict.fromkeys(model.input_names), shapes, where)
    if not constants:
        return model
    dims = relax_inputs(model)
    params = dict(zip(model.input_names, model.input_params, strict=True))
    values = {
        name: as_constant(name, value, np.dtype(str(params[name].ty.dtype)), dims[name], where)
        for name, value in constants.items()
    }
    given = {name: value.shape for name, value in values.items()}
    tensors = {name: as_tensor(value) for name, value in values.items()}
    return specialise(model, given, where).with_constants(tensors)


def relax_inputs(model: LoadedModel) -> dict[str, Dims]:
    return dict(zip(model.input_names, map(_relax_dims, model.input_params), strict=True))


def _relax_dims(param: relax.Var) -> Dims:
    shape = getattr(param.ty, "shape", None)
    return tuple(map(_relax_dim, shape)) if isinstance(shape, relax.ShapeExpr) else None


def _relax_dim(dim: Any) -> int | str | None:
    if isinstance(dim, tirx.Var):
        return str(dim.name)
    return int(dim) if isinstance(dim, tirx.IntImm) else None
