"""What ONNX itself can tell about one node: the types of its results, and results of constants."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from math import prod

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from tvm_rammer.frontend.onnx.names import reads, subgraphs

#: Bytes of the largest result that is computed here. What shapes are made of is far smaller; larger
#: constants are for TVM to fold.
_LARGEST_RESULT = 1 << 16
#: Elements of the largest constant that something is computed from here.
LARGEST_OPERAND = 1 << 20
#: Elements of the largest constant whose value can decide a shape.
LARGEST_SHAPE = 1 << 10

#: Operators that ONNX's reference implements as they are since this version only.
_REDEFINED = dict.fromkeys(("Hardmax", "LogSoftmax", "Resize", "Softmax", "Upsample"), 13)

#: Operators whose results differ from run to run.
_RANDOM = {
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
#: Operators whose results have a size that is known only afterwards, but never more elements than
#: their operands, for each dimension of these.
_BOUNDED = {"NonZero", "Unique", "Compress"}

#: The domain of operators of our own.
OWN_DOMAIN = "tvm_rammer"
#: Operators that are imported and ONNX does not know, by domain: the result has the shape of the
#: first operand, and the elements of this one.
_LIKE = {
    OWN_DOMAIN: {"NormalLike": 0, "UniformLike": 0},
    "com.microsoft": {
        "BiasGelu": 0,
        "DequantizeLinear": 1,
        "FastGelu": 0,
        "Gelu": 0,
        "QuantizeLinear": 2,
    },
}

Types = Mapping[str, onnx.TypeProto]
Values = Mapping[str, onnx.TensorProto]


def opsets_of(model: onnx.ModelProto) -> dict[str, int]:
    """The version of each domain's operators; ONNX's own domain is ``""``."""
    return {domain_of(each): each.version for each in model.opset_import}


def domain_of(operator: onnx.NodeProto | onnx.OperatorSetIdProto) -> str:
    """Whose operator a node is, or a set of operators; empty for ONNX's own."""
    return "" if operator.domain == "ai.onnx" else operator.domain


def type_of(tensor: onnx.TensorProto) -> onnx.TypeProto:
    """The type of a constant."""
    return helper.make_tensor_type_proto(tensor.data_type, tuple(tensor.dims))


def result_types(
    node: onnx.NodeProto, types: Types, values: Values, opsets: Mapping[str, int]
) -> dict[str, onnx.TypeProto]:
    """Types of a node's results, as far as they are known.

    Parameters
    ----------
    node : onnx.NodeProto
    types : mapping of str to onnx.TypeProto
        Of what the node and its sub-graphs read.
    values : mapping of str to onnx.TensorProto
        Constants.
    opsets : mapping of str to int
        See :func:`opsets_of`.

    Raises
    ------
    onnx.shape_inference.InferenceError
        ONNX does not allow such inputs or attributes.
    """
    schema = schema_of(node, opsets)
    if any(name and name not in types for name in node.input):
        return {}
    if schema is None:
        return _like_operands(node, types)
    deciding = {
        name: values[name]
        for name in node.input
        if name in values and prod(values[name].dims) <= LARGEST_SHAPE
    }
    imports = [helper.make_opsetid(*each) for each in opsets.items()]
    read = {name: types[name] for name in reads(node) if name in types}
    try:
        found = shape_inference.infer_node_outputs(
            schema, node, read, deciding, opset_imports=imports
        )
    except onnx.checker.ValidationError:
        # The importer has the whole model checked, and passes such complaints on.
        return {}
    except shape_inference.InferenceError:
        if any(subgraphs(node)):
            # Operators of other domains are unknown there; the others are checked on their own.
            return {}
        raise
    return {name: kind for name, kind in found.items() if name and kind.WhichOneof("value")}


def _like_operands(node: onnx.NodeProto, types: Types) -> dict[str, onnx.TypeProto]:
    """Types of results that take theirs from the operands."""
    number = _LIKE.get(node.domain, {}).get(node.op_type)
    if number is None or number >= len(node.input) or not node.input[number]:
        return {}
    shape = static_shape(types[node.input[0]])
    if shape is None:
        return {}
    kind = types[node.input[number]].tensor_type.elem_type
    return {node.output[0]: helper.make_tensor_type_proto(kind, shape)}


def result_values(
    node: onnx.NodeProto, types: Types, values: Values, opsets: Mapping[str, int]
) -> dict[str, onnx.TensorProto] | None:
    """The results of a node that are constants, or None.

    ``types`` are those of its operands and results, ``values`` those that are known.
    """
    if domain_of(node):
        return None
    if node.op_type in ("Shape", "Size"):
        return _of_shape(node, types)
    if (empty := _without_elements(node, types)) is not None:
        return empty
    operands = set(filter(None, node.input))
    if not all(name in values and prod(values[name].dims) <= LARGEST_OPERAND for name in operands):
        return None
    constant = bool(operands) or node.op_type == "Constant"
    if not constant or node.op_type in _RANDOM or not _small(node, types):
        return None
    if opsets.get("", 1) < _REDEFINED.get(node.op_type, 0):
        return None
    found = evaluated(node, {name: values[name] for name in operands}, opsets)
    if any(prod(value.dims) > LARGEST_OPERAND for value in (found or {}).values()):
        return None
    return found


def schema_of(node: onnx.NodeProto, opsets: Mapping[str, int]) -> defs.OpSchema | None:
    """What ONNX says about a node's operator; nothing about those of other domains."""
    domain = domain_of(node)
    version = opsets.get(domain)
    return None if version is None else _schema(node.op_type, version, domain)


@cache
def _schema(operator: str, version: int, domain: str) -> defs.OpSchema | None:
    if not defs.has(operator, version, domain):
        # ONNX Runtime's exporters write LayerNormalization into older versions.
        return defs.get_schema(operator, domain) if defs.has(operator, domain) else None
    return defs.get_schema(operator, version, domain)


def _of_shape(node: onnx.NodeProto, types: Types) -> dict[str, onnx.TensorProto] | None:
    sizes = static_shape(types.get(node.input[0]))
    if sizes is None:
        return None
    if node.op_type == "Size":
        value = np.array(prod(sizes), np.int64)
    else:
        value = np.array(sizes[slice(*ends_of(node))], np.int64)
    return {node.output[0]: numpy_helper.from_array(value, node.output[0])}


def ends_of(node: onnx.NodeProto) -> tuple[int, int | None]:
    """Of which axis on a ``Shape`` gives the sizes, and up to which."""
    ends = {each.name: each.i for each in node.attribute}
    return ends.get("start", 0), ends.get("end")


def _without_elements(node: onnx.NodeProto, types: Types) -> dict[str, onnx.TensorProto] | None:
    """The results of a node of which none has any element."""
    shapes = {name: static_shape(types.get(name)) for name in node.output if name}
    if any(shape is None or 0 not in shape for shape in shapes.values()):
        return None
    kinds = {name: types[name].tensor_type.elem_type for name in shapes}
    return {
        name: onnx.TensorProto(name=name, data_type=kinds[name], dims=shape, raw_data=b"")
        for name, shape in shapes.items()
        if shape is not None
    }


def static_shape(kind: onnx.TypeProto | None) -> tuple[int, ...] | None:
    """The shape of a tensor if it is known as a whole."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    sizes = tuple(dim.dim_value for dim in dims)
    # A size that is not known reads as 0.
    if 0 in sizes and not all(dim.HasField("dim_value") for dim in dims):
        return None
    return sizes


def known_sizes(kind: onnx.TypeProto) -> list[int | None]:
    """What is known of the size of every axis of a tensor whose axes are known."""
    dims = kind.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]


def _small(node: onnx.NodeProto, types: Types) -> bool:
    """Whether the results are small tensors of numbers."""
    for name in filter(None, node.output):
        if name not in types:
            return False
        dtype = _dtype(types[name].tensor_type.elem_type)
        if dtype is None:
            return False
        shape = static_shape(types[name])
        if shape is None and node.op_type not in _BOUNDED:
            return False
        if shape is not None and prod(shape) * dtype.itemsize > _LARGEST_RESULT:
            return False
    return True


def _dtype(kind: int) -> np.dtype | None:
    """A dtype that numpy itself computes with, else None."""
    if kind in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        return None
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    return dtype if dtype.kind in "biuf" and dtype.isbuiltin == 1 else None


def evaluated(
    node: onnx.NodeProto, operands: Values, opsets: Mapping[str, int]
) -> dict[str, onnx.TensorProto] | None:
    """The results of a node that computes with numbers; ``None`` if they cannot be had."""
    if any(_dtype(value.data_type) is None for value in operands.values()):
        return None
    arrays = {name: numpy_helper.to_array(value) for name, value in operands.items()}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(_alone(node, operands, opsets))
            results = evaluator.run(None, arrays)
    except Exception:
        # What cannot be computed here is left to run time.
        return None
    pairs = zip(filter(None, node.output), results, strict=True)
    return {name: numpy_helper.from_array(np.asarray(value), name) for name, value in pairs}


def _alone(node: onnx.NodeProto, operands: Values, opsets: Mapping[str, int]) -> onnx.ModelProto:
    """A model of one node."""
    inputs = [
        helper.make_tensor_value_info(name, value.data_type, tuple(value.dims))
        for name, value in operands.items()
    ]
    # The types of results are the reference's business.
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, outputs)
    imports = [helper.make_opsetid(*each) for each in opsets.items()]
    return helper.make_model(graph, opset_imports=imports)
