"""A model, from a file or from memory, as a Relax module with its weights inside."""

from __future__ import annotations

import contextlib
import io
import os
import re
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
import tvm
from tvm import relax, tirx
from tvm.relax.frontend.onnx import from_onnx

from tvm_rammer.errors import ModelError
from tvm_rammer.input_shapes import Dims, Shapes, static_shapes, symbol_values
from tvm_rammer.onnx_file import OnnxModel, read_onnx_file
from tvm_rammer.recurrent import unroll_recurrent

#: What protobuf can hold in one message.
_PROTOBUF_LIMIT = 2**31

#: TVM's importer does not look at domains; another domain's Relu would silently become ONNX's.
_DOMAINS = ("", "ai.onnx", "com.microsoft")

#: Attributes that TVM's importer does not look at, and what it takes them for.
_IGNORED: dict[str, dict[str, Any]] = {
    "Resize": {"antialias": 0, "keep_aspect_ratio_policy": b"stretch"}
}

#: Warnings of the importer that tell a user nothing: the original names are kept, shapes missing in
#: the model were given, and onnx.checker cannot look at models above protobuf's limit.
_NOISE = re.compile(
    r"Renaming name |Input .* has unknown |Field 'shape' of 'type' is required |Failed to serialize"
)


@dataclass(frozen=True)
class LoadedModel:
    """A Relax module and what the model itself calls its inputs and outputs.

    Attributes
    ----------
    module : tvm.IRModule
        Its ``main`` takes the inputs; the weights are constants.
    input_names : tuple of str
        One per parameter of ``main``, as the model spells them (TVM renames some).
    output_names : tuple of str
        One per output of ``main``.
    """

    module: tvm.IRModule
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]


def load_model(model: Any, shapes: Shapes | None = None) -> LoadedModel:
    """Load a model.

    Parameters
    ----------
    model : path, onnx.ModelProto, torch.export.ExportedProgram, tvm.IRModule or LoadedModel
        A file is ONNX, or a module saved by ``tvm.ir.save_json`` (``.json``), or a program saved
        by ``torch.export.save`` (``.pt2``). Only a module may keep symbolic dimensions.
    shapes : mapping of str to sequence of int, optional
        Shapes of inputs, by their names in the model: sizes for its symbolic dimensions.

    Returns
    -------
    LoadedModel

    Raises
    ------
    ModelError
        The model cannot be read or imported, or dimensions of its inputs stay unknown.
    InputError
        ``shapes`` does not fit the model.
    """
    shapes = shapes or {}
    where = "the model"
    if isinstance(model, str | os.PathLike):
        where = os.fspath(model)
        model = _read(Path(model))
    if isinstance(model, onnx.ModelProto):
        model = OnnxModel(model)
    if isinstance(model, OnnxModel):
        return _from_onnx(model, shapes, where)
    if isinstance(model, tvm.IRModule):
        return _specialise(_from_relax(model, where), shapes, where)
    if isinstance(model, LoadedModel):
        return _specialise(model, shapes, where)
    if type(model).__name__ == "ExportedProgram":
        return _from_torch(model, shapes, where)
    raise ModelError(
        f"a {type(model).__name__} is not a model: give a path, an onnx.ModelProto, "
        "a torch.export.ExportedProgram or a tvm.IRModule"
    )


def _read(path: Path) -> Any:
    reader = {".json": _read_json, ".pt2": _read_pt2}.get(path.suffix, _read_onnx)
    try:
        return reader(path)
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file; give the path of a model") from error
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}; give a model file") from error


def _read_onnx(path: Path) -> OnnxModel:
    size = path.stat().st_size
    if not size:
        raise ModelError(f"{path}: the file is empty; export the model again")
    try:
        model = read_onnx_file(path)
    except OSError:
        raise
    except Exception as error:
        advice = "export the model again"
        if size >= _PROTOBUF_LIMIT:
            advice = "above 2 GB use onnx.save(..., save_as_external_data=True)"
        raise ModelError(
            f"{path}: not an ONNX model, or damaged ({_line(error)}); {advice}"
        ) from error
    try:
        onnx.load_external_data_for_model(model.proto, str(path.parent))
    except Exception as error:
        raise ModelError(
            f"{path}: the weights beside it cannot be read: {_line(error)}; "
            "put the external data file that belongs to the model there"
        ) from error
    return model


def _read_json(path: Path) -> tvm.IRModule:
    data = path.read_bytes()
    try:
        module = tvm.ir.load_json(data.decode())
    except Exception as error:
        raise ModelError(
            f"{path}: not a module saved by tvm.ir.save_json, or damaged ({_line(error)}); "
            "save it again"
        ) from error
    if not isinstance(module, tvm.IRModule):
        raise ModelError(
            f"{path}: holds a {type(module).__name__}, not a tvm.IRModule; save the whole module"
        )
    return module


def _read_pt2(path: Path) -> Any:
    data = path.read_bytes()
    try:
        import torch
    except ImportError as error:
        raise ModelError(f"{path}: needs PyTorch to be read: pip install torch") from error
    try:
        return torch.export.load(io.BytesIO(data))
    except Exception as error:
        raise ModelError(
            f"{path}: not a program saved by torch.export.save, or damaged ({_line(error)}); "
            "save it again"
        ) from error


def _from_onnx(model: OnnxModel, shapes: Shapes, where: str) -> LoadedModel:
    proto = model.proto
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    graph = proto.graph
    if not graph.output:
        raise ModelError(f"{where}: the graph has no outputs; there is nothing to compile")
    if foreign := [node for node in graph.node if node.domain not in _DOMAINS]:
        raise ModelError(f"{where}: {_unsupported(foreign)}")
    for node in graph.node:
        _refuse_ignored(node, where)
    known = {tensor.name for tensor in graph.initializer}
    given = [value for value in graph.input if value.name not in known]
    inputs = {v.name: _onnx_dims(v, where) for v in given if v.name not in model.weights}
    static = static_shapes(inputs, shapes, where)
    sizes = static | {name: tuple(weight.shape) for name, weight in model.weights.items()}
    module = _import(unroll_recurrent(proto, sizes, where), sizes, where)
    module = _bind_weights(module, [value.name for value in given], model.weights)
    return LoadedModel(module, tuple(inputs), tuple(value.name for value in graph.output))


def _refuse_ignored(node: onnx.NodeProto, where: str) -> None:
    """Raise a ModelError for an attribute that would silently be taken for another."""
    supposed = _IGNORED.get(node.op_type, {})
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if attribute.name in supposed and value != supposed[attribute.name]:
            shown = value.decode() if isinstance(value, bytes) else value
            raise ModelError(
                f"{where}: {_describe(node)} has {attribute.name}={shown}, which TVM's importer "
                "ignores; export the model without it"
            )


def _bind_weights(
    module: tvm.IRModule, names: Sequence[str], weights: Mapping[str, tvm.runtime.Tensor]
) -> tvm.IRModule:
    """Make constants of the parameters of ``main`` that are weights."""
    if not weights:
        return module
    params = zip(module["main"].params, names, strict=True)
    bound = {param: weights[name] for param, name in params if name in weights}
    module = relax.transform.BindParams("main", bound)(module)
    # The importer has counted the weights too.
    module["main"] = module["main"].with_attr("num_input", len(names) - len(bound))
    return module


def _import(model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]], where: str) -> tvm.IRModule:
    # The importer prints the expression that it fails on, and warns with the checker's complaints.
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            module = from_onnx(model, shape_dict=shapes)
        except tvm.error.OpNotImplemented as error:
            refused = set(re.findall(r"\w+", str(error)))
            nodes = [node for node in model.graph.node if node.op_type in refused]
            raise ModelError(f"{where}: {_unsupported(nodes)}") from error
        except Exception as error:
            reasons = "; ".join([_line(error), *_complaints(caught)])
            culprit = _culprit(error)
            raise ModelError(f"{where}: TVM cannot import {culprit}: {reasons}") from error
    for complaint in _complaints(caught):
        warnings.warn(f"{where}: {complaint}", UserWarning, stacklevel=4)
    return module


def _onnx_dims(value: onnx.ValueInfoProto, where: str) -> Dims:
    kind = str(value.type.WhichOneof("value")).removesuffix("_type")
    tensor = value.type.tensor_type
    if kind != "tensor" or tensor.elem_type == onnx.TensorProto.STRING:
        what = "a tensor of strings" if kind == "tensor" else f"of the type {kind}"
        raise ModelError(f"{where}: input {value.name!r} is {what}; it must be a numeric tensor")
    if not tensor.HasField("shape"):
        return None
    # Some exporters write -1 for a size that is not known.
    return tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or None
        for dim in tensor.shape.dim
    )


def _from_torch(program: Any, shapes: Shapes, where: str) -> LoadedModel:
    from tvm.relax.frontend.torch import from_exported_program

    try:
        module = from_exported_program(program)
    except Exception as error:
        raise ModelError(
            f"{where}: TVM cannot import the exported program: {_line(error)}"
        ) from error
    loaded = _specialise(_from_relax(module, where), shapes, where)
    static_shapes(_relax_inputs(loaded), {}, where)
    outputs = tuple(map(str, program.graph_signature.user_outputs))
    known = len(outputs) == len(loaded.output_names)
    return replace(loaded, output_names=outputs) if known else loaded


def _from_relax(module: tvm.IRModule, where: str) -> LoadedModel:
    main = {var.name_hint: function for var, function in module.functions.items()}.get("main")
    if not isinstance(main, relax.Function):
        raise ModelError(f"{where}: the module has no Relax function 'main'; rename its entry")
    count = len(main.ret_ty.fields) if isinstance(main.ret_ty, relax.TupleType) else 1
    outputs = tuple(f"output_{number}" for number in range(count))
    return LoadedModel(module, tuple(param.name for param in main.params), outputs)


def _specialise(model: LoadedModel, shapes: Shapes, where: str) -> LoadedModel:
    """Give the symbolic dimensions of a module the sizes that the shapes imply."""
    values = symbol_values(_relax_inputs(model), shapes, where)
    if not values:
        return model
    bound = replace(model, module=relax.transform.BindSymbolicVars(values, "main")(model.module))
    symbol_values(_relax_inputs(bound), shapes, where)  # a dimension such as n + 1 has a size now
    return bound


def _relax_inputs(model: LoadedModel) -> dict[str, Dims]:
    params = model.module["main"].params
    return dict(zip(model.input_names, map(_relax_dims, params), strict=True))


def _relax_dims(param: relax.Var) -> Dims:
    shape = getattr(param.ty, "shape", None)
    return tuple(map(_relax_dim, shape)) if isinstance(shape, relax.ShapeExpr) else None


def _relax_dim(dim: Any) -> int | str | None:
    if isinstance(dim, tirx.Var):
        return str(dim.name)
    return int(dim) if isinstance(dim, tirx.IntImm) else None


def _unsupported(nodes: Iterable[onnx.NodeProto]) -> str:
    """Name each operator once, with its first node."""
    first = {node.op_type: _describe(node) for node in reversed(list(nodes))}
    names = ", ".join(first[operator] for operator in sorted(first))
    return f"TVM's ONNX importer does not support {names}; export the model without"


def _describe(node: onnx.NodeProto) -> str:
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return f"{operator} (node {node.name or ', '.join(node.output)!r})"


def _culprit(error: Exception) -> str:
    """Which node the importer was at: it does not say, but the frames of its traceback know."""
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
    builders = {id(b): b for f in frames if (b := getattr(f.get("self"), "bb", None)) is not None}
    for builder in builders.values():
        builder._end_block()  # else TVM logs "BlockBuilder destroyed with remaining blocks!"
    nodes = [f["node"] for f in frames if isinstance(f.get("node"), onnx.NodeProto)]
    return _describe(nodes[-1]) if nodes else "the graph"


def _complaints(caught: Iterable[warnings.WarningMessage]) -> list[str]:
    texts = (str(warning.message) for warning in caught)
    return [f"onnx.checker: {_line(text)}" for text in texts if not _NOISE.match(text)]


def _line(message: object) -> str:
    return " ".join(str(message).split())
