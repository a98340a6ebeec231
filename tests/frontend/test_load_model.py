"""Models from files and from memory: what is accepted, and the one line for what is not."""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
import time
import warnings
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
import tvm
from close import assert_close
from onnx import TensorProto, helper, numpy_helper
from onnx_values import tensor
from tvm import relax, tirx

from tvm_rammer.errors import InputError, ModelError
from tvm_rammer.frontend import LoadedModel, load_model
from tvm_rammer.frontend.loaded_model import one_line
from tvm_rammer.frontend.onnx import onnx_file
from tvm_rammer.frontend.onnx.onnx_file import read_onnx_file
from tvm_rammer.tensors import empty

LIGHT = sorted(
    glob.glob(os.path.join(os.path.dirname(onnx.backend.test.__file__), "data/light/*.onnx"))
)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.arange(np.prod(shape), dtype="float32").reshape(shape), name)


def model_of(*nodes, inputs=(), outputs=(), weights=(), opset=18, **options) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), list(weights))
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **options)


def relu(shape: object = (2, 3), name: str = "r") -> onnx.ModelProto:
    node = helper.make_node("Relu", ["x"], ["y"], name=name)
    return model_of(node, inputs=[tensor("x", shape)], outputs=[tensor("y", None)])


def linear() -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs, outputs = [tensor("x", (2, 3))], [tensor("y", (2, 4))]
    return model_of(node, inputs=inputs, outputs=outputs, weights=[weight("w", 3, 4)])


def run(loaded: LoadedModel, *arrays: np.ndarray) -> list[np.ndarray]:
    executable = relax.build(loaded.module, "llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    results = machine["main"](*map(tvm.runtime.tensor, arrays))
    return [r.numpy() for r in (results if len(loaded.output_names) > 1 else [results])]


def message(error: type[Exception], *arguments: object) -> str:
    """The one line that loading raises (symbolic links in temporary paths do not matter)."""
    with pytest.raises(error) as caught:
        load_model(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


# What is accepted


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: Path(path).stem)
def test_networks_of_the_onnx_package_load(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_model(path)
    assert len(loaded.input_names) == len(loaded.module["main"].params) == 1
    assert len(loaded.output_names) == 1


def test_weights_become_constants(tmp_path):
    onnx.save(linear(), tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx")
    assert (loaded.input_names, loaded.output_names) == (("x",), ("y",))
    x = np.ones((2, 3), "float32")
    expected = x @ np.arange(12, dtype="float32").reshape(3, 4)
    assert_close(run(loaded, x)[0], expected)


def test_the_names_of_the_model_survive():
    """TVM renames ``input.1``; we say what the model says, and do not warn about it."""
    nodes = [helper.make_node("Relu", ["input.1"], ["0"]), helper.make_node("Neg", ["0"], ["b:0"])]
    model = model_of(
        *nodes, inputs=[tensor("input.1", (2,))], outputs=[tensor("b:0", (2,)), tensor("0", (2,))]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_model(model)
    assert (loaded.input_names, loaded.output_names) == (("input.1",), ("b:0", "0"))


def test_initialisers_listed_as_inputs_are_weights():
    model = linear()
    model.graph.input.append(tensor("w", (3, 4)))
    assert load_model(model).input_names == ("x",)


def test_no_operators_pass_the_input_through():
    loaded = load_model(model_of(inputs=[tensor("x", (2,))], outputs=[tensor("x", (2,))]))
    assert run(loaded, np.array([1, 2], "float32"))[0].tolist() == [1, 2]


def test_local_functions_are_inlined():
    opsets = [helper.make_opsetid("", 18)]
    body = [helper.make_node("Relu", ["a"], ["c"]), helper.make_node("Neg", ["c"], ["b"])]
    function = helper.make_function("my", "NegRelu", ["a"], ["b"], body, opsets)
    model = model_of(
        helper.make_node("NegRelu", ["x"], ["y"], domain="my"),
        inputs=[tensor("x", (2,))],
        outputs=[tensor("y", (2,))],
        functions=[function],
    )
    model.opset_import.append(helper.make_opsetid("my", 1))
    assert run(load_model(model), np.array([-1, 2], "float32"))[0].tolist() == [0, -2]


def test_external_data_is_read_from_beside_the_model(tmp_path, monkeypatch):
    external = {"save_as_external_data": True, "location": "m.bin", "size_threshold": 0}
    onnx.save(linear(), tmp_path / "m.onnx", **external)
    monkeypatch.chdir("/")
    expected = load_model(linear()).module
    tvm.ir.assert_structural_equal(load_model(tmp_path / "m.onnx").module, expected)


def many_uses(side: int = 160) -> onnx.ModelProto:
    """Large weights of a MatMul, of a Gemm, of an Add and as an output; and one for two nodes."""
    nodes = [
        helper.make_node("MatMul", ["x", "shared"], ["a"]),
        helper.make_node("Gemm", ["a", "shared", "bias"], ["b"], transB=1),
        helper.make_node("Add", ["b", "added"], ["c"]),
        helper.make_node("MatMul", ["c", "given"], ["y"]),
    ]
    weights = [weight(name, side, side) for name in ("shared", "added", "given", "unused")]
    weights += [weight("bias", side), numpy_helper.from_array(np.eye(99, dtype="float64"), "z")]
    inputs = [tensor("given", (side, side)), tensor("x", (side, side))]
    outputs = [tensor("y", (side, side)), tensor("given", (side, side))]
    return model_of(*nodes, inputs=inputs, outputs=outputs, weights=weights)


def test_large_weights_from_a_file_are_those_of_the_model(tmp_path):
    model = many_uses()
    onnx.save(model, tmp_path / "m.onnx")
    found, expected = load_model(tmp_path / "m.onnx"), load_model(model)
    assert (found.input_names, found.output_names) == (expected.input_names, expected.output_names)
    assert found.module["main"].attrs["num_input"] == 1
    x = np.eye(160, dtype="float32") / 1e6
    for got, wanted in zip(run(found, x), run(expected, x), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_large_weights_are_read_in_pieces(tmp_path, monkeypatch):
    """Of any size; a matrix that is transposed in as many rows as there are."""
    monkeypatch.setattr(onnx_file, "_PIECE", 40_000)
    nodes = [
        helper.make_node("MatMul", ["x", "plain"], ["a"]),
        helper.make_node("Gemm", ["a", "turned"], ["y"], transB=1),
    ]
    weights = [weight("plain", 150, 170), weight("turned", 155, 170)]
    ends = {"inputs": [tensor("x", (3, 150))], "outputs": [tensor("y", (3, 155))]}
    onnx.save(model_of(*nodes, weights=weights, **ends), tmp_path / "m.onnx")
    found = read_onnx_file(tmp_path / "m.onnx").weights
    plain, turned = map(numpy_helper.to_array, weights)
    np.testing.assert_array_equal(found["plain"].numpy(), plain)
    np.testing.assert_array_equal(found["turned"].numpy(), turned.T)


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    onnx.save(many_uses(), path)

    def empty_after_truncation(*arguments: object) -> np.ndarray:
        os.truncate(path, 1000)
        return empty(*arguments)

    monkeypatch.setattr(onnx_file, "empty", empty_after_truncation)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert re.fullmatch(
        rf"{path}: not an ONNX model, or damaged \(byte \d+: the file has become shorter\); "
        "export the model again",
        str(caught.value),
    )


def test_which_weights_of_a_file_are_no_part_of_the_message(tmp_path):
    onnx.save(many_uses(), tmp_path / "m.onnx")
    model = read_onnx_file(tmp_path / "m.onnx")
    assert sorted(model.weights) == ["shared", "unused"]
    kept = [value.name for value in model.proto.graph.initializer]
    assert kept == ["added", "given", "bias", "z"]
    assert all(value.raw_data for value in model.proto.graph.initializer)
    np.testing.assert_array_equal(
        model.weights["shared"].numpy(), numpy_helper.to_array(weight("", 160, 160))
    )


@pytest.mark.parametrize("listed", ["nowhere", "input", "value_info"])
def test_a_matrix_that_one_gemm_transposes_is_read_transposed(tmp_path, listed):
    """Also where the file tells its shape; not if another node reads it too."""
    nodes = [
        helper.make_node("Gemm", ["x", "once"], ["a"], transB=1, alpha=0.5),
        helper.make_node("Gemm", ["x", "twice"], ["b"], transB=1),
        helper.make_node("Gemm", ["twice", "x"], ["c"], transB=1),
    ]
    weights = [weight("once", 150, 200), weight("twice", 150, 200)]
    outputs = [tensor("a", (3, 150)), tensor("b", (3, 150)), tensor("c", (150, 3))]
    proto = model_of(*nodes, inputs=[tensor("x", (3, 200))], outputs=outputs, weights=weights)
    if listed != "nowhere":
        shapes = [tensor(each.name, tuple(each.dims)) for each in weights]
        getattr(proto.graph, listed).extend(shapes)
    onnx.save(proto, tmp_path / "m.onnx")
    found = {name: w.shape for name, w in read_onnx_file(tmp_path / "m.onnx").weights.items()}
    assert found == {"once": (200, 150), "twice": (150, 200)}
    x = np.linspace(-1, 1, 600, dtype="float32").reshape(3, 200)
    from_file, from_proto = (run(load_model(m), x) for m in (tmp_path / "m.onnx", proto))
    for got, want in zip(from_file, from_proto, strict=True):
        assert_close(got, want)


def test_a_branch_may_use_a_large_weight(tmp_path):
    def branch(name: str, operator: str) -> onnx.GraphProto:
        node = helper.make_node(operator, ["w"], [name])
        return helper.make_graph([node], name, [], [tensor(name, (160, 160))])

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("t", "Neg"), else_branch=branch("e", "Abs")
    )
    model = model_of(
        helper.make_node("MatMul", ["x", "w"], ["unused"]),
        node,
        inputs=[tensor("c", (), TensorProto.BOOL), tensor("x", (1, 160))],
        outputs=[tensor("y", (160, 160))],
        weights=[weight("w", 160, 160)],
    )
    onnx.save(model, tmp_path / "m.onnx")
    assert not read_onnx_file(tmp_path / "m.onnx").weights
    tvm.ir.assert_structural_equal(load_model(tmp_path / "m.onnx").module, load_model(model).module)


@pytest.mark.slow
def test_a_model_above_two_gigabytes_loads(tmp_path):
    """Above what one protobuf message can hold (needs some 7 GB of memory)."""
    with open(tmp_path / "m.bin", "wb") as data:
        data.truncate(9 * 2**28)
    weights = [onnx.TensorProto(name=f"w{n}", data_type=1, dims=(8192, 8192)) for n in range(9)]
    for number, tensor_proto in enumerate(weights):
        tensor_proto.data_location = TensorProto.EXTERNAL
        place = {"location": "m.bin", "offset": number * 2**28, "length": 2**28}
        for key, value in place.items():
            tensor_proto.external_data.add(key=key, value=str(value))
    names = [f"x{n}" for n in range(10)]
    nodes = [helper.make_node("MatMul", [names[n], f"w{n}"], [names[n + 1]]) for n in range(9)]
    ends = tensor("x0", (1, 8192)), tensor("x9", (1, 8192))
    onnx.save(
        model_of(*nodes, inputs=ends[:1], outputs=ends[1:], weights=weights), tmp_path / "m.onnx"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_model(tmp_path / "m.onnx").output_names == ("x9",)


def test_a_saved_module_loads_back(tmp_path):
    module = load_model(linear()).module
    (tmp_path / "m.json").write_text(tvm.ir.save_json(module))
    loaded = load_model(str(tmp_path / "m.json"))
    tvm.ir.assert_structural_equal(loaded.module, module)
    assert (loaded.input_names, loaded.output_names) == (("x",), ("output_0",))


def test_a_module_and_a_loaded_model_pass_through():
    loaded = load_model(linear())
    assert load_model(loaded) is loaded
    assert load_model(loaded.module).module is loaded.module


def test_many_nodes_load_quickly():
    """25,000 nodes, as in an unrolled LSTM of 10 layers and 100 steps."""
    names = ["x", *(f"v{number}" for number in range(24_999)), "y"]
    nodes = [helper.make_node("Tanh", [a], [b]) for a, b in pairwise(names)]
    model = model_of(*nodes, inputs=[tensor("x", (2,))], outputs=[tensor("y", (2,))])
    start = time.thread_time()
    load_model(model)
    assert time.thread_time() - start < 10


# Shapes


def test_shapes_settle_symbols_wherever_they_occur():
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    model = model_of(
        node,
        inputs=[tensor("a", ("batch", "n", 3)), tensor("b", ("batch", 3, 4))],
        outputs=[tensor("y", None)],
    )
    main = load_model(model, {"a": (2, 5, 3)}).module["main"]
    assert [list(map(int, p.ty.shape)) for p in main.params] == [[2, 5, 3], [2, 3, 4]]


def test_symbolic_dimensions_without_sizes(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(relu(("batch", 3, None)), path)
    assert message(ModelError, path) == (
        f"{path}: input 'x' has the symbolic shape (batch, 3, ?); give it sizes, such as "
        "--shape x=1,3,1 (in Python shapes={'x': (1, 3, 1)})"
    )


def test_an_unknown_rank():
    assert message(ModelError, relu(None)) == (
        "the model: input 'x' has no shape in the model; give it one: "
        "--shape x=1,... (in Python shapes={'x': (1, ...)})"
    )
    assert load_model(relu(None), {"x": (4,)}).module["main"].ret_ty.ndim == 1


def test_a_negative_size_is_not_known():
    """Some exporters write -1; numpy's integers are sizes, too."""
    model = relu((1, 3))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    loaded = load_model(model, {"x": (np.int64(2), 3)})
    assert [int(n) for n in loaded.module["main"].params[0].ty.shape] == [2, 3]
    with pytest.raises(ModelError, match=r"has the symbolic shape \(\?, 3\)"):
        load_model(model)


_SIZES = "positive integers, or names of sizes that each run decides"


@pytest.mark.parametrize(
    "shapes, expected",
    [
        ({"z": (1,)}, "there is no input 'z'; its inputs: 'x' (n, 3)"),
        ({"x": (1, 3, 4)}, "input 'x' is (n, 3) in the model; the shape (1, 3, 4) does not fit"),
        ({"x": (1, 4)}, "input 'x' is (n, 3) in the model; the shape (1, 4) does not fit"),
        ({"x": (0, 3)}, "the shape (0, 3) of input 'x' must have " + _SIZES),
        ({"x": (True, 3)}, "the shape (True, 3) of input 'x' must have " + _SIZES),
        ({"x": "4,32"}, "the shape '4,32' of input 'x' must have " + _SIZES),
        ({"x": 3}, "the shape 3 of input 'x' must have " + _SIZES),
        ({"x": (1.5, 3)}, "the shape (1.5, 3) of input 'x' must have " + _SIZES),
    ],
)
def test_shapes_that_do_not_fit(shapes, expected):
    assert message(InputError, relu(("n", 3)), shapes) == f"the model: {expected}"


@pytest.mark.parametrize(
    ("size", "takes"),
    [
        (10**12, "11175.9 GiB"),
        (2**62, "51539607552.0 GiB"),
        (10**20 - 1, "1117587089538.6 GiB"),
    ],
)
@pytest.mark.parametrize("from_module", [False, True])
def test_an_input_that_this_machine_cannot_hold(monkeypatch, size, takes, from_module):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**20}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    model = symbolic_module() if from_module else relu(("n", 3))
    assert message(InputError, model, {"x": (size, 3)}) == (
        f"the model: input 'x' of shape ({size}, 3) has {takes}, but this machine's memory has "
        "4.0 GiB; give it a smaller shape"
    )


def test_a_dimension_that_a_symbol_decides_has_a_size_that_counts(monkeypatch):
    """Also of an input that has no shape of its own; sizes of numpy count without overflow."""
    node = helper.make_node("Add", ["a", "b"], ["y"])
    inputs = [tensor("a", ("n", 1)), tensor("b", ("n", 2**31))]
    model = model_of(node, inputs=inputs, outputs=[tensor("y", None)])
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 2**30}.__getitem__)
    assert message(InputError, model, {"a": (np.int32(2), 1)}) == (
        "the model: input 'b' of shape (2, 2147483648) has 16.0 GiB, but this machine's memory has "
        "1.0 GiB; give it a smaller shape"
    )


@pytest.mark.parametrize("from_module", [False, True])
def test_shapes_without_names(from_module):
    model = symbolic_module() if from_module else relu(("n", 3))
    assert message(InputError, model, [("x", (4, 3))]) == (
        "shapes is [('x', (4, 3))]; give a mapping of names to sizes"
    )


def test_one_symbol_with_two_sizes():
    node = helper.make_node("Add", ["a", "b"], ["y"])
    inputs = [tensor("a", ("n",)), tensor("b", ("n",))]
    model = model_of(node, inputs=inputs, outputs=[tensor("y", None)])
    assert message(InputError, model, {"a": (2,), "b": (3,)}) == (
        "the model: the shapes make the dimension 'n' both 2 and 3; give it one size"
    )


def symbolic_module() -> tvm.IRModule:
    n, builder = tirx.Var("n", "int64"), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([n, 3], "float32"))
    y = relax.Var("y", relax.TensorType([n + 1], "float32"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(relax.Tuple([relax.op.nn.relu(x), y]))
        builder.emit_func_output(out)
    return builder.get()


def test_a_module_keeps_its_symbols_until_shapes_are_given():
    module = symbolic_module()
    loaded = load_model(module)
    assert loaded.module is module
    assert loaded.output_names == ("output_0", "output_1")
    main = load_model(loaded, {"x": (4, 3)}).module["main"]
    assert [list(map(int, p.ty.shape)) for p in main.params] == [[4, 3], [5]]


@pytest.mark.parametrize("dtype", ["", "float32x4"])
def test_an_input_of_a_module_may_be_of_a_type_that_numpy_lacks(dtype):
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType([2, 3], dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    assert load_model(builder.get()).input_names == ("x",)


def test_a_shape_that_contradicts_an_expression_of_symbols():
    assert message(InputError, symbolic_module(), {"x": (4, 3), "y": (9,)}) == (
        "the model: input 'y' is (5) in the model; the shape (9) does not fit"
    )


# What is not accepted


def test_a_missing_file_and_a_directory(tmp_path):
    path = tmp_path / "no.onnx"
    assert message(ModelError, path) == f"{path}: no such file; give the path of a model"
    assert message(ModelError, tmp_path) == (
        f"{tmp_path}: cannot be read: Is a directory; give a model file"
    )


def test_something_else():
    assert message(ModelError, 3) == (
        "a int is not a model: give a path, an onnx.ModelProto, a torch.export.ExportedProgram "
        "or a tvm.IRModule"
    )


def test_damaged_onnx_files(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(linear(), path)
    path.write_bytes(path.read_bytes()[:-20])
    text = message(ModelError, path)
    assert text.startswith(f"{path}: not an ONNX model, or damaged (Error parsing message ")
    assert text.endswith("); export the model again")
    path.write_bytes(b"")
    assert message(ModelError, path) == f"{path}: the file is empty; export the model again"


def test_a_file_above_the_limit_of_protobuf(tmp_path, monkeypatch):
    monkeypatch.setattr("tvm_rammer.frontend.onnx.import_onnx._PROTOBUF_LIMIT", 3)
    path = tmp_path / "m.onnx"
    path.write_bytes(b"much")
    assert message(ModelError, path).endswith(
        "; above 2 GB use onnx.save(..., save_as_external_data=True)"
    )


def test_external_data_is_missing_or_cut(tmp_path):
    path, data = tmp_path / "m.onnx", tmp_path / "m.bin"
    onnx.save(linear(), path, save_as_external_data=True, location=data.name, size_threshold=0)
    data.write_bytes(data.read_bytes()[:5])
    for cause in ("data", "m.bin"):
        text = message(ModelError, path)
        assert text.startswith(f"{path}: the weights beside it cannot be read: ")
        assert cause in text
        assert text.endswith("; put the external data file that belongs to the model there")
        data.unlink(missing_ok=True)


@pytest.mark.parametrize("text", ["", "garbage", "[]", "3", '{"nodes": []}', "\xff"])
def test_damaged_json_files(tmp_path, text):
    path = tmp_path / "m.json"
    path.write_text(text, "latin1")
    found = message(ModelError, path)
    assert found.startswith(f"{path}: not a module saved by tvm.ir.save_json, or damaged (")
    assert found.endswith("); save it again")


@pytest.mark.parametrize("dtype", ["INT4", "UINT4", "FLOAT4E2M1"])
def test_tensors_of_parts_of_bytes(dtype):
    kind = getattr(TensorProto, dtype)
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["narrow"], to=kind),
            helper.make_node("Cast", ["narrow"], ["y"], to=TensorProto.FLOAT),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    found = message(ModelError, model)
    assert f"is a tensor of {dtype[:4].lower()}" in found
    assert found.endswith(", which TVM cannot make when a model runs; export it in int8 or float32")


def test_an_attribute_of_another_type(tmp_path):
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"])
    node.attribute.add(name="coordinate_transformation_mode", type=onnx.AttributeProto.INT, i=1)
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, 2, 2])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [scales],
    )
    found = message(ModelError, helper.make_model(graph, ir_version=8))
    assert found.startswith("the model: cannot be understood (AttributeError: ")
    assert found.endswith(
        "; report it if onnx.checker.check_model finds nothing wrong with the model"
    )


def test_json_that_crashes_the_reader_of_tvm(tmp_path):
    """An array that holds itself: whoever visits it comes to no end of the stack."""
    saved = json.loads(tvm.ir.save_json(load_model(linear()).module))
    number = next(k for k, node in enumerate(saved["nodes"]) if node["type"] == "ffi.Array")
    saved["nodes"][number]["data"] = [number]
    path = tmp_path / "m.json"
    path.write_text(json.dumps(saved))
    assert message(ModelError, path) == (
        f"{path}: damaged so that TVM crashes when it reads it; save it again"
    )


def test_json_of_something_else(tmp_path):
    path = tmp_path / "m.json"
    path.write_text(tvm.ir.save_json(tirx.Var("n", "int64")))
    assert message(ModelError, path) == (
        f"{path}: holds a Var, not a tvm.IRModule; save the whole module"
    )


def test_a_module_without_main():
    assert message(ModelError, tvm.IRModule()) == (
        "the model: the module has no Relax function 'main'; rename its entry"
    )


def test_no_outputs():
    assert message(ModelError, model_of(inputs=[tensor("x", (2,))])) == (
        "the model: the graph has no outputs; there is nothing to compile"
    )


def test_inputs_that_are_no_numeric_tensors():
    strings = model_of(
        inputs=[tensor("x", (2,), TensorProto.STRING)],
        outputs=[tensor("x", (2,), TensorProto.STRING)],
    )
    assert message(ModelError, strings) == (
        "the model: input 'x' is a tensor of strings; it must be a numeric tensor"
    )
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, (2,))
    assert message(ModelError, model_of(inputs=[sequence], outputs=[sequence])) == (
        "the model: input 's' is of the type sequence; it must be a numeric tensor"
    )


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("others", [[], ["z"]])
def test_outputs_that_are_no_tensors(count, others):
    nodes = [
        helper.make_node("Relu", ["x"], ["z"]),
        helper.make_node("SequenceConstruct", ["z"] * count, ["y"]),
    ]
    sequence = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, (2,))
    outputs = [sequence, *(tensor(name, (2,)) for name in others)]
    assert message(ModelError, model_of(*nodes, inputs=[tensor("x", (2,))], outputs=outputs)) == (
        "the model: output 'y' is of the type sequence; it must be a tensor: export the model with "
        "the sequence's tensors as outputs"
    )


def test_unsupported_operators_are_named_with_their_first_nodes():
    nodes = [
        helper.make_node("ImageDecoder", ["x"], ["a"], name="first"),
        helper.make_node(
            *("TfIdfVectorizer", ["n"], ["b"]),
            **{"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0},
            **{"ngram_counts": [0], "ngram_indexes": [0], "pool_int64s": [2]},
        ),
        helper.make_node("ImageDecoder", ["x"], ["c"], name="second"),
    ]
    inputs = [tensor("x", (9,), TensorProto.UINT8), tensor("n", (4,), TensorProto.INT64)]
    outputs = [tensor("b", None), tensor("c", None, TensorProto.UINT8)]
    model = model_of(*nodes, inputs=inputs, outputs=outputs, opset=20)
    assert message(ModelError, model) == (
        "the model: TVM's ONNX importer does not support ImageDecoder (node 'first'), "
        "TfIdfVectorizer (node 'b'); export the model without"
    )


def test_pages_of_another_library_become_a_line():
    assert one_line("no\nsuch  thing") == "no such thing"
    short = one_line("node = nodes[0], " * 250)
    assert len(short) <= 300
    assert short.endswith(" ...")


def test_classical_models_are_sent_elsewhere():
    node = helper.make_node("LinearRegressor", ["x"], ["y"], name="r", domain="ai.onnx.ml")
    model = model_of(node, inputs=[tensor("x", (2, 3))], outputs=[tensor("y", (2, 1))])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    assert message(ModelError, model) == (
        "the model: TVM's ONNX importer does not support ai.onnx.ml.LinearRegressor (node 'r'); "
        "run classical machine learning, as of scikit-learn, with ONNX Runtime"
    )


def test_an_operator_of_another_domain_is_not_taken_for_its_namesake():
    node = helper.make_node("Relu", ["x"], ["y"], name="r", domain="my.company")
    model = model_of(node, inputs=[tensor("x", (2,))], outputs=[tensor("y", (2,))])
    assert message(ModelError, model) == (
        "the model: TVM's ONNX importer does not support my.company.Relu (node 'r'); "
        "export the model without"
    )


def test_a_node_that_cannot_be_imported_is_named(capfd):
    nodes = [
        helper.make_node("Unique", ["x"], ["u"]),
        helper.make_node("Squeeze", ["u"], ["y"], name="best"),
    ]
    model = model_of(*nodes, inputs=[tensor("x", (2, 3))], outputs=[tensor("y", None)])
    assert message(ModelError, model) == (
        "the model: TVM cannot import Squeeze (node 'best'): which sizes are 1 is known only at "
        "run time; name its axes"
    )
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("node", "complaint"),
    [
        (helper.make_node("Concat", ["x", "x"], ["y"], axis=9), "axis must be in [-rank, rank-1]."),
        (
            helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], pads=[-1, 0]),
            "Attribute pads must not contain negative values",
        ),
        (
            helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], dilations=[0]),
            "Attribute dilations must only contain positive values",
        ),
    ],
)
def test_what_onnx_forbids_is_refused(node, complaint):
    model = model_of(node, inputs=[tensor("x", (2, 3, 4))], outputs=[tensor("y", None)])
    inputs = ", ".join(["'x' float (2, 3, 4)"] * len(node.input))
    assert message(ModelError, model) == (
        f"the model: ONNX forbids {node.op_type} (node 'y'): {complaint}; its inputs are {inputs}; "
        "correct the model, or the shapes that were given"
    )


def test_the_checker_is_heard_when_the_import_succeeds():
    node = helper.make_node("Relu", ["x"], ["y"], name="r", surprise=1)
    model = model_of(node, inputs=[tensor("x", (2,))], outputs=[tensor("y", (2,))])
    with pytest.warns(UserWarning, match="^the model: onnx.checker: Unrecognized attribute"):
        load_model(model)


# PyTorch

EXPORT_AND_LOAD = """
import sys
import numpy, torch, tvm
from tvm import relax
from tvm_rammer.errors import ModelError
from tvm_rammer.frontend import load_model

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 5)

    def forward(self, x, y):
        return torch.relu(self.linear(x)), y + 1

model, x, y = Model().eval(), torch.randn(2, 4), torch.randn(3)
dynamic = {"x": {0: torch.export.Dim("batch")}, "y": None}
torch.export.save(torch.export.export(model, (x, y)), sys.argv[1])
program = torch.export.export(model, (x, y), dynamic_shapes=dynamic)
for loaded in load_model(sys.argv[1]), load_model(program, {"x": (2, 4)}):
    assert loaded.input_names == ("x", "y"), loaded
    assert loaded.output_names == ("relu", "add"), loaded
    machine = relax.VirtualMachine(relax.build(loaded.module, "llvm"), tvm.cpu())
    results = machine["main"](tvm.runtime.tensor(x.numpy()), tvm.runtime.tensor(y.numpy()))
    for result, expected in zip(results, model(x, y), strict=True):
        numpy.testing.assert_allclose(result.numpy(), expected.detach().numpy(), atol=1e-5)
try:
    load_model(program)
except ModelError as error:
    assert "input 'x' has the symbolic shape (" in str(error), error
else:
    raise AssertionError("the batch is unknown")
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("first", ["tvm", "torch"])
def test_an_exported_program_loads(tmp_path, first):
    """In a process of its own: PyTorch and TVM are particular about who is imported first."""
    command = [sys.executable, "-c", f"import {first}\n{EXPORT_AND_LOAD}", tmp_path / "m.pt2"]
    subprocess.run(command, check=True, timeout=120)


def test_a_torch_file_without_torch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    path = tmp_path / "m.pt2"
    path.write_bytes(b"x")
    assert message(ModelError, path) == f"{path}: needs PyTorch to be read: pip install torch"


QUANTISE_AND_SAVE = """
import sys, torch
import torch.ao.quantization.fx._decomposed
operator = torch.ops.quantized_decomposed.dequantize_per_tensor
class Model(torch.nn.Module):
    def forward(self, x):
        return operator(x, 0.5, 3, -128, 127, torch.int8)
program = torch.export.export(Model(), (torch.ones(3, dtype=torch.int8),))
torch.export.save(program, sys.argv[1])
"""
LOAD = "import sys, tvm_rammer; print(tvm_rammer.load_model(sys.argv[1]).input_names)"
SAVE_WITH_OTHERS = """
import sys, torch
library = torch.library.Library("torchao", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.torchao.twice(x)
torch.export.save(torch.export.export(Model(), (torch.ones(3),)), sys.argv[1])
"""


def in_its_own_process(code, path):
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_a_saved_program_may_have_operators_that_pytorch_does_not_know_unasked(tmp_path):
    path = tmp_path / "m.pt2"
    assert in_its_own_process(QUANTISE_AND_SAVE, path).returncode == 0
    result = in_its_own_process(LOAD, path)
    assert (result.stdout, result.stderr) == ("('x',)\n", "")


@pytest.mark.skipif(
    find_spec("torch") is None or find_spec("torchao") is not None,
    reason="PyTorch is not installed, or torchao is",
)
def test_a_saved_program_says_which_module_it_needs(tmp_path):
    path = tmp_path / "m.pt2"
    assert in_its_own_process(SAVE_WITH_OTHERS, path).returncode == 0
    assert message(ModelError, path) == (
        f"{path}: needs the module 'torchao' to be read, which has operators or kinds of tensors "
        "of the program; install it"
    )
