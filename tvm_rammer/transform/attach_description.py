"""A compiler pass that puts a description of the library into the library.

Relax functions are added: one returns the description (compressed JSON), so that a library can be
listed, drawn and driven by the names of the model's own inputs wherever it is loaded; one returns
the constants and the instruction table of the region that ``main`` consists of, so that a runtime
may call the region's kernel without the VM between.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, PrimType

from tvm_rammer.backend.registry import backend_named
from tvm_rammer.machine import VDevice
from tvm_rammer.options import Options
from tvm_rammer.region.direct_call import direct_call
from tvm_rammer.region.marks import read_left_out
from tvm_rammer.region.planned import Region
from tvm_rammer.relax_util import operator_name, type_shape
from tvm_rammer.rprogram.serialize import to_json
from tvm_rammer.schedule import CostModel, explain

#: Increased whenever a library can no longer be read by older versions of this package.
FORMAT_VERSION = 6
#: Returns the description: zlib-compressed JSON as a tensor of uint8.
DESCRIBE = "tvm_rammer_describe"
#: Returns (constants, table) of the region that ``main`` calls directly.
STATE = "tvm_rammer_state"

#: Returns the number of vEUs that the library was planned for; see :func:`_constant_function`.
NUM_VEUS = "tvm_rammer_num_veus"


@dataclass(frozen=True)
class ModelNames:
    """What the model itself calls its inputs and outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Description:
    """What is put into the library besides the module's own functions."""

    regions: tuple[Region, ...]
    options: Options
    vdevice: VDevice
    names: ModelNames | None
    merged_rows: int = 1


@tvm.transform.module_pass(opt_level=0, name="AttachDescription")
class AttachDescription:
    """Add the functions :data:`DESCRIBE` and, where it applies, :data:`STATE`.

    Parameters
    ----------
    description : Description
    target : Target

    Attributes
    ----------
    content : dict
        What the library says about itself, after the pass has run.
    """

    def __init__(self, description: Description, target: tvm.target.Target) -> None:
        self.description = description
        self.target = target
        self.content: dict[str, Any] = {}

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Describe ``main``; a module without one, or with a description, stays as it is."""
        names = {symbol.name_hint for symbol in mod.get_global_vars()}
        if "main" not in names or DESCRIBE in names:
            return mod
        main = mod["main"]
        regions = {region.signature.name for region in self.description.regions}
        direct = direct_call(main, regions)
        text = json.dumps(self._content(mod, main, direct))
        self.content = json.loads(text)
        packed = np.frombuffer(zlib.compress(text.encode()), np.uint8)
        builder = relax.BlockBuilder(mod)
        with builder.function(DESCRIBE, []):
            builder.emit_func_output(builder.emit(relax.const(packed)))
        if direct is not None:
            constants, table = _state(main)
            with builder.function(STATE, []):
                builder.emit_func_output(builder.emit(relax.Tuple([constants, table])))
        result = builder.get()
        result[NUM_VEUS] = _constant_function(NUM_VEUS, self.description.vdevice.num_veus)
        return result

    def _content(self, mod: tvm.IRModule, main: Any, direct: Any) -> dict[str, Any]:
        given = self.description
        costs = backend_named(given.vdevice.kind).costs(given.vdevice)
        inputs = [param.name for param in main.params]
        ret = main.ret_ty
        results = list(ret.fields) if isinstance(ret, relax.TupleType) else [ret]
        names = given.names or ModelNames(
            tuple(inputs), tuple(f"output_{k}" for k in range(len(results)))
        )
        outputs = [
            tensor
            for name, ty in zip(names.outputs, results, strict=True)
            for tensor in _tensors(name, ty)
        ]
        return {
            "format": FORMAT_VERSION,
            "tvm": tvm.__version__,
            "target": str(self.target),
            "options": asdict(given.options),
            "num_veus": given.vdevice.num_veus,
            "merged_rows": given.merged_rows,
            "vdevice": given.vdevice.name,
            "backend": given.vdevice.kind,
            "costs": asdict(costs),
            "inputs": [
                _tensor(name, param.ty)
                for name, param in zip(names.inputs, main.params, strict=True)
            ],
            "outputs": outputs,
            "direct": asdict(direct) if direct is not None else None,
            "programs": [json.loads(to_json(region.program)) for region in given.regions],
            "plans": [_plan(region, costs) for region in given.regions],
            "arenas": {region.program.name: region.code.arena_bytes for region in given.regions},
            "left_out": [asdict(item) for item in read_left_out(mod)],
        }


def _plan(region: Region, costs: CostModel) -> dict[str, Any]:
    """Why a region has its plan, and what limits it."""
    return {
        "region": region.program.name,
        "decision": None if region.decision is None else asdict(region.decision),
        "explanation": asdict(explain(region.program, costs)),
    }


def _constant_function(symbol: str, value: int) -> tirx.PrimFunc:
    """A packed function that returns a number.

    A library with at least one function of TVM's own build needs no C++ compiler to run in the
    process that built it: for one without any, TVM makes a stand-in from C source.
    """
    body = tirx.Return(tirx.const(value, "int32"))
    func = tirx.PrimFunc([], body, ret_type=PrimType("int32"))
    return func.with_attrs({"global_symbol": symbol, "tirx.is_scheduled": True})


def _tensors(name: str, ty: Any) -> list[dict[str, Any]]:
    """The tensors of a type in order; those of a tuple by its name and their number."""
    if isinstance(ty, relax.TupleType):
        return [leaf for k, part in enumerate(ty.fields) for leaf in _tensors(f"{name}.{k}", part)]
    return [_tensor(name, ty)]


def _tensor(name: str, ty: Any) -> dict[str, Any]:
    """Name, shape and dtype; an unknown shape is None, what is no tensor has its kind as dtype."""
    shape = type_shape(ty)
    kind = type(ty).__name__.removesuffix("Type").lower()
    dtype = str(ty.dtype) if isinstance(ty, relax.TensorType) else kind
    return {"name": name, "shape": list(shape) if shape is not None else None, "dtype": dtype}


def _state(main: Any) -> tuple[GenericConst, GenericConst]:
    """The constants and the table that ``main`` passes to its one kernel."""
    for block in main.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, Call) and (
                operator_name(binding.value) == "relax.call_dps_packed"
            ):
                *_, constants, table = binding.value.args[1].fields
                return constants, table
    raise AssertionError("a direct call has a call_dps_packed")
