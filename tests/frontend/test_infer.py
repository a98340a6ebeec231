"""Results of constants are ONNX Runtime's, in every version of ONNX's operators."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_rammer.frontend.onnx.infer import result_types, result_values

N = helper.make_node
FLOATS, PAIRS = np.float32([3, -1.5]), np.float32([[[3, 2], [3, 4]], [[1, 2], [3, 4]]])
INTEGERS = np.array([-7, 7])

CASES = [
    (N("Unsqueeze", ["a"], ["y"], axes=[0]), {"a": np.array(3)}, 9),
    (N("Unsqueeze", ["a"], ["y"], axes=[0]), {"a": np.array(3)}, 12),
    (N("Unsqueeze", ["a", "b"], ["y"]), {"a": np.array(3), "b": np.array([0])}, 13),
    (N("Squeeze", ["a"], ["y"], axes=[0]), {"a": np.array([3])}, 11),
    (N("Slice", ["a"], ["y"], axes=[0], starts=[0], ends=[1]), {"a": INTEGERS}, 9),
    (N("Slice", ["a", "b", "c"], ["y"]), {"a": INTEGERS, "b": np.array([-1]), "c": [9]}, 11),
    (N("ReduceProd", ["a"], ["y"], axes=[0]), {"a": FLOATS}, 11),
    (N("ReduceSum", ["a"], ["y"], axes=[0]), {"a": FLOATS}, 11),
    (N("ReduceMax", ["a", "b"], ["y"]), {"a": FLOATS, "b": np.array([0])}, 18),
    (N("Clip", ["a"], ["y"], min=0.0, max=1.0), {"a": FLOATS}, 10),
    (N("Pad", ["a"], ["y"], pads=[0, 1]), {"a": FLOATS}, 10),
    (N("Split", ["a"], ["y", "z"], split=[1, 1]), {"a": FLOATS}, 10),
    (N("Cast", ["a"], ["y"], to=TensorProto.INT64), {"a": FLOATS}, 9),
    (N("TopK", ["a"], ["y", "i"], k=1), {"a": FLOATS}, 9),
    (N("Softmax", ["a"], ["y"]), {"a": PAIRS}, 9),
    (N("Softmax", ["a"], ["y"]), {"a": PAIRS}, 17),
    (N("Upsample", ["a"], ["y"], scales=[2.0]), {"a": FLOATS}, 7),
    (N("Gather", ["a", "b"], ["y"]), {"a": INTEGERS, "b": np.array(-1)}, 9),
    (N("Div", ["a", "b"], ["y"]), {"a": INTEGERS, "b": np.array([2, -2])}, 9),
    (N("Mod", ["a", "b"], ["y"]), {"a": INTEGERS, "b": np.array([2, -3])}, 17),
    (N("Round", ["a"], ["y"]), {"a": np.float32([-2.5, 2.5])}, 17),
    (N("Where", ["c", "a", "b"], ["y"]), {"a": np.array(1), "b": INTEGERS, "c": [True, False]}, 12),
    (N("ConstantOfShape", ["a"], ["y"]), {"a": np.array([2, 3])}, 9),
    (N("Constant", [], ["y"], value_ints=[1, 2]), {}, 12),
    (N("Expand", ["a", "b"], ["y"]), {"a": np.float32(1), "b": np.array([2, 3])}, 9),
    (N("NonZero", ["a"], ["y"]), {"a": np.float32([1, 0, 3])}, 9),
    (N("Range", ["a", "b", "c"], ["y"]), {"a": np.array(0), "b": np.array(5), "c": 2}, 11),
    (N("Reshape", ["a", "b"], ["y"]), {"a": FLOATS, "b": np.array([-1, 1])}, 9),
    (N("Equal", ["a", "a"], ["y"]), {"a": INTEGERS}, 9),
]


@pytest.mark.parametrize(
    ("node", "inputs", "version"), CASES, ids=lambda c: getattr(c, "op_type", "")
)
def test_constants_are_what_onnx_runtime_computes(node, inputs, version):
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    values = {name: numpy_helper.from_array(array, name) for name, array in arrays.items()}
    types = {n: helper.make_tensor_type_proto(v.data_type, v.dims) for n, v in values.items()}
    types |= result_types(node, types, values, {"": version})
    found = result_values(node, types, values, {"": version})
    if node.op_type in ("Softmax", "Upsample") and version < 13:
        assert found is None
        return
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info(n, v.data_type, v.dims) for n, v in values.items()],
        [onnx.ValueInfoProto(name=name) for name in node.output],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for name, want in zip(node.output, session.run(None, arrays), strict=True):
        got = numpy_helper.to_array(found[name])
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
        assert helper.make_tensor_type_proto(found[name].data_type, want.shape) == types[name] or (
            node.op_type == "NonZero"
        )
