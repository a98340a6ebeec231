"""ONNX models: read, checked for what would silently be wrong, and imported."""

from __future__ import annotations

import contextlib
import io
import re
import traceback
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
import tvm
from tvm import relax, tirx

from tvm_rammer.errors import ModelError, RammerError
from tvm_rammer.frontend.input_constants import Constants
from tvm_rammer.frontend.input_shapes import Shapes
from tvm_rammer.frontend.loaded_model import LoadedModel, end_blocks, one_line
from tvm_rammer.frontend.onnx.branches import import_graph, refuse_unequal_branches
from tvm_rammer.frontend.onnx.fix_inputs import fix_inputs, free_inputs
from tvm_rammer.frontend.onnx.fold import fold
from tvm_rammer.frontend.onnx.half_floats import compute_in_float32, say_types
from tvm_rammer.frontend.onnx.infer import OWN_DOMAIN
from tvm_rammer.frontend.onnx.names import all_nodes, describe, renamed, subgraphs
from tvm_rammer.frontend.onnx.onnx_file import OnnxModel, copy_fields, in_memory, read_onnx_file
from tvm_rammer.frontend.onnx.operators import rewrite_operators
from tvm_rammer.frontend.onnx.operators.table import REDUCTIONS
from tvm_rammer.frontend.onnx.random_nodes import draw_by_state
from tvm_rammer.frontend.onnx.recurrent import unroll_recurrent
from tvm_rammer.frontend.onnx.small_integers import widen_small_integers
from tvm_rammer.frontend.onnx.validate import validate
from tvm_rammer.frontend.random_numbers import STATE
from tvm_rammer.printable import printable
from tvm_rammer.relax_util import relax_functions
from tvm_rammer.transform.attach_description import State

#: What protobuf can hold in one message.
_PROTOBUF_LIMIT = 2**31

#: The domain of trees, linear models and the like.
_CLASSICAL = "ai.onnx.ml"
#: TVM's importer does not look at domains; another domain's Relu would silently become ONNX's.
_DOMAINS = ("", "ai.onnx", _CLASSICAL, "com.microsoft", OWN_DOMAIN)

#: Types of 1 to 7 bits.
_PART_OF_A_BYTE = re.compile(r"(u?int|float)[1-7](_|$)")

#: Warnings of the importer that tell a user nothing: the original names are kept, shapes missing in
#: the model were given, and onnx.checker cannot look at models above protobuf's limit.
_NOISE = re.compile(
    r"Renaming name |Input .* has unknown |Field 'shape' of 'type' is required |Failed to serialize"
)
#: What the operands are that must be constants, by their number.
_CONSTANTS: Mapping[str, Mapping[int, str]] = {
    **{name: {1: "axes"} for name in REDUCTIONS},
    "CumProd": {1: "axis"},
    "CumSum": {1: "axis"},
    "Pad": {1: "pads", 2: "value", 3: "axes"},
    "Split": {1: "sizes of its parts"},
}


def read_onnx(path: Path) -> OnnxModel:
    """Read a model and the weights beside it."""
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
            f"{path}: not an ONNX model, or damaged ({one_line(error)}); {advice}"
        ) from error
    try:
        onnx.load_external_data_for_model(model.proto, str(path.parent))
    except Exception as error:
        raise ModelError(
            f"{path}: the weights beside it cannot be read: {one_line(error)}; "
            "put the external data file that belongs to the model there"
        ) from error
    return model


def from_onnx(
    model: OnnxModel,
    shapes: Shapes,
    constants: Constants,
    where: str,
    states: Collection[str] = (),
) -> LoadedModel:
    """Import a model whose inputs have the given shapes and values; it is changed.

    Inputs that will be ``states`` are inputs here, too.
    """
    try:
        return _imported(model, shapes, constants, where, states)
    except RammerError:
        raise
    except Exception as error:
        # A valid model gives none: attributes have their types, and inputs are there.
        cause = one_line(error)
        raise ModelError(
            f"{where}: cannot be understood ({type(error).__name__}: {cause}); "
            "report it if onnx.checker.check_model finds nothing wrong with the model"
        ) from error


def _imported(
    model: OnnxModel,
    shapes: Shapes,
    constants: Constants,
    where: str,
    states: Collection[str],
) -> LoadedModel:
    validate(model.proto, where)
    model = _computing_in_float32(replace(model, proto=_inlined_functions(model.proto)))
    model = fix_inputs(model, shapes, constants, where)
    inputs = tuple(value.name for value in free_inputs(model))
    proto = model.proto
    draws = draw_by_state(proto, where)
    _prepare(proto, where, states)
    sizes = _sizes(proto.graph)
    module = _import(proto, sizes, model.weights, where)
    module = _bind_weights(module, [*sizes], model.weights)
    outputs = tuple(value.name for value in proto.graph.output)
    _refuse_sequences(module, outputs, where)
    _refuse_parts_of_bytes(module, where)
    if not draws:
        return LoadedModel(module, inputs, outputs)
    return LoadedModel(module, inputs, outputs[:-1], (State(STATE),))


def _sizes(graph: onnx.GraphProto) -> dict[str, tuple[Any, ...]]:
    """The shapes of a graph's inputs, with one of TVM's names for each that is open."""
    open_sizes: dict[str, tirx.Var] = {}

    def size(dim: onnx.TensorShapeProto.Dimension) -> Any:
        if not dim.dim_param:
            return dim.dim_value
        return open_sizes.setdefault(dim.dim_param, tirx.Var(dim.dim_param, "int64"))

    return {value.name: tuple(map(size, value.type.tensor_type.shape.dim)) for value in graph.input}


def _prepare(proto: onnx.ModelProto, where: str, states: Collection[str]) -> None:
    """Put a graph whose inputs have shapes into operators that TVM imports rightly."""
    say_types(proto)
    fold(proto, where)
    widen_small_integers(proto.graph)
    rewrite_operators(proto, where, states)
    if say_types(proto):
        # ONNX's definitions of operators have constants of the types of their operands.
        fold(proto, where)
    _refuse_foreign(proto, where)
    refuse_run_time_operands(proto.graph, where)
    refuse_unequal_branches(proto.graph, where)
    _drop_aliases_of_sequences(proto.graph)
    unroll_recurrent(proto, where)


def _drop_aliases_of_sequences(graph: onnx.GraphProto) -> None:
    """Let the readers of an Identity read its operand, in place, where there are sequences.

    TVM's importer takes an Identity of one for a tensor. A result of the graph keeps its Identity.
    """
    if not any("Sequence" in node.op_type for node in all_nodes(graph)):
        return
    results = {value.name for value in graph.output}
    names: dict[str, str] = {}
    kept = []
    for node in graph.node:
        copy = renamed(node, names)
        if copy.op_type == "Identity" and copy.output[0] not in results:
            names[copy.output[0]] = copy.input[0]
        else:
            kept.append(copy)
    del graph.node[:]
    graph.node.extend(kept)


def _computing_in_float32(model: OnnxModel) -> OnnxModel:
    """A model without 16-bit floats inside; its weights, now twice as large, are taken out."""
    if not compute_in_float32(model.proto):
        return model
    wide = in_memory(model.proto)
    return OnnxModel(wide.proto, {**model.weights, **wide.weights})


def _inlined_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model without local functions; the data of its weights, which may be large, stay aside."""
    if not proto.functions:
        return proto
    light = onnx.ModelProto()
    copy_fields(proto, light, without="graph")
    copy_fields(proto.graph, light.graph, without="initializer")
    for tensor in proto.graph.initializer:
        # The name is taken.
        light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    inlined = onnx.inliner.inline_local_functions(light)
    del inlined.graph.initializer[:]
    inlined.graph.initializer.extend(proto.graph.initializer)
    return inlined


def _refuse_foreign(proto: onnx.ModelProto, where: str) -> None:
    """Raise a ModelError for operators that would be taken for their namesakes."""
    if foreign := [node for node in all_nodes(proto.graph) if node.domain not in _DOMAINS]:
        raise ModelError(f"{where}: {_unsupported(foreign)}")


def _refuse_sequences(module: tvm.IRModule, outputs: Sequence[str], where: str) -> None:
    """Raise a ModelError for an output of several tensors, whose types a model may not declare."""
    result = module["main"].ret_ty
    types = [result] if len(outputs) == 1 else result.fields
    for name, ty in zip(outputs, types, strict=True):
        if isinstance(ty, relax.TupleType):
            raise ModelError(
                f"{where}: output {name!r} is of the type sequence; it must be a tensor: export "
                "the model with the sequence's tensors as outputs"
            )


def _refuse_parts_of_bytes(module: tvm.IRModule, where: str) -> None:
    """Raise a ModelError for tensors of less than 8 bits that are made when the model runs."""
    main = module["main"]
    bound = [binding.var for block in main.body.blocks for binding in block.bindings]
    for var in (*main.params, *bound):
        dtype = str(var.ty.dtype) if isinstance(var.ty, relax.TensorType) else ""
        if _PART_OF_A_BYTE.match(dtype):
            raise ModelError(
                f"{where}: {var.name!r} is a tensor of {dtype}, which TVM cannot make when a model "
                "runs; export it in int8 or float32"
            )


def _bind_weights(
    module: tvm.IRModule, names: Sequence[str], weights: Mapping[str, tvm.runtime.Tensor]
) -> tvm.IRModule:
    """Make constants of the parameters of ``main`` that are weights."""
    if not weights:
        return module
    params = zip(module["main"].params, names, strict=True)
    bound = {param: weights[name] for param, name in params if name in weights}
    for symbol, func in relax_functions(module).items():
        if symbol.name_hint != "main":
            module[symbol] = _Binder(bound).visit_expr(func)
    module = relax.transform.BindParams("main", bound)(module)
    # The importer has counted the weights too.
    module["main"] = module["main"].with_attr("num_input", len(names) - len(bound))
    return module


@relax.expr_functor.mutator
class _Binder(relax.PyExprMutator):
    """Puts constants where functions of loops read parameters of ``main``."""

    def __init__(self, bound: Mapping[Any, Any]) -> None:
        super().__init__()
        self.bound = {var: relax.const(weight) for var, weight in bound.items()}

    def visit_var_(self, var: Any) -> Any:
        return self.bound.get(var) or super().visit_var_(var)


def _import(
    model: onnx.ModelProto,
    shapes: dict[str, tuple[Any, ...]],
    weights: Collection[str],
    where: str,
) -> tvm.IRModule:
    # The importer prints the expression that it fails on, and warns with the checker's complaints.
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            module = import_graph(model, shapes, weights)
        except tvm.error.OpNotImplemented as error:
            refused = str(error).partition(": ")[2].split(", ")
            nodes = [node for node in all_nodes(model.graph) if node.op_type in refused]
            raise ModelError(f"{where}: {_unsupported(nodes)}") from error
        except Exception as error:
            reason = one_line(error)
            reasons = "; ".join([reason, *_complaints(caught)])
            culprit = _culprit(error)
            raise ModelError(f"{where}: TVM cannot import {culprit}: {reasons}") from error
    for complaint in _complaints(caught):
        warnings.warn(printable(f"{where}: {complaint}"), UserWarning, stacklevel=4)
    return module


def _unsupported(nodes: Iterable[onnx.NodeProto]) -> str:
    """Name each operator once, with its first node."""
    first = {node.op_type: node for node in reversed(list(nodes))}
    names = ", ".join(describe(first[operator]) for operator in sorted(first))
    advice = "export the model without"
    if {node.domain for node in first.values()} == {_CLASSICAL}:
        advice = "run classical machine learning, as of scikit-learn, with ONNX Runtime"
    return f"TVM's ONNX importer does not support {names}; {advice}"


def _culprit(error: Exception) -> str:
    """Which node the importer was at: it does not say, but the frames of its traceback know."""
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
    builders = {id(b): b for f in frames if (b := getattr(f.get("self"), "bb", None)) is not None}
    for builder in builders.values():
        end_blocks(builder)
    nodes = [f["node"] for f in frames if isinstance(f.get("node"), onnx.NodeProto)]
    return describe(nodes[-1]) if nodes else "the graph"


def _complaints(caught: Iterable[warnings.WarningMessage]) -> list[str]:
    texts = (str(warning.message) for warning in caught)
    return [f"onnx.checker: {one_line(text)}" for text in texts if not _NOISE.match(text)]


def refuse_run_time_operands(
    graph: onnx.GraphProto, where: str, outside: Collection[str] = ()
) -> None:
    """Raise a ModelError for a node of which such an operand is data.

    Parameters
    ----------
    graph : onnx.GraphProto
        All constants are initialisers.
    where : str
        The model, for messages.
    outside : collection of str
        Constants of the graphs around this one.
    """
    constants = {*outside, *(tensor.name for tensor in graph.initializer)}
    of_sizes = _of_sizes(graph, constants)
    for node in graph.node:
        for inner in subgraphs(node):
            refuse_run_time_operands(inner, where, constants)
        for number, what in _CONSTANTS.get(node.op_type, {}).items():
            name = node.input[number] if number < len(node.input) else ""
            if what == "pads" and name in of_sizes:
                # They may be formulas of open sizes.
                continue
            if name and name not in constants:
                raise ModelError(
                    f"{where}: {describe(node)} cannot be compiled: of its {what}, {name!r}, the "
                    "value is known only at run time; fix the inputs that decide it with constants="
                )


def _of_sizes(graph: onnx.GraphProto, constants: Collection[str]) -> set[str]:
    """What is computed of shapes and constants alone."""
    found: set[str] = set()
    for node in graph.node:
        read = set(filter(None, node.input)) - set(constants)
        if node.op_type == "Shape" or (read and read <= found):
            found.update(node.output)
    return found
