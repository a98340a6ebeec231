"""Libraries for inputs of several shapes: one function for each, one copy of the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

import tvm_rammer
from tvm_rammer.errors import InputError, ModelError
from tvm_rammer.region.library_content import INITIAL_STATE

WIDTH = 192
ROWS = (1, 24, 7)
BUILD = {"policy": "wavefront", "num_veus": 2}


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def remembering(rows: int | str = "n") -> onnx.ModelProto:
    """Some rows and a table of them as they were transformed; what they leave goes on."""
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "w"], ["xw"]),
        make("ReduceMean", ["xw", "zero"], ["mean"]),
        make("MatMul", ["h", "u"], ["hu"]),
        make("Add", ["mean", "hu"], ["sum"]),
        make("Tanh", ["sum"], ["hn"]),
        make("Transpose", ["wt"], ["turned"]),
        make("MatMul", ["table", "turned"], ["seen"]),
        make("Add", ["seen", "hn"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "remembering",
        [
            value("x", onnx.TensorProto.FLOAT, [rows, WIDTH]),
            value("h", onnx.TensorProto.FLOAT, [1, WIDTH]),
            value("table", onnx.TensorProto.FLOAT, [rows, WIDTH]),
        ],
        [
            value("y", onnx.TensorProto.FLOAT, [rows, WIDTH]),
            value("hn", onnx.TensorProto.FLOAT, [1, WIDTH]),
        ],
        [
            numpy_helper.from_array(floats(WIDTH, WIDTH, seed=seed) / 14, name)
            for seed, name in enumerate(("w", "u", "wt"))
        ]
        + [numpy_helper.from_array(np.array([0]), "zero")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def of_rows(rows: int) -> dict[str, tuple[int, ...]]:
    return {"x": (rows, WIDTH), "table": (rows, WIDTH)}


SHAPES = list(map(of_rows, ROWS))
STATES = {"h": "hn"}


@pytest.fixture(scope="module")
def library() -> Any:
    return tvm_rammer.build(remembering(), shapes=SHAPES, states=STATES, **BUILD)


def assert_goes_on(instance: Any, rows: tuple[int, ...] = (24, 1, 1, 7, 24, 7, 1)) -> None:
    """Runs with inputs of any of the shapes find what the one before left."""
    reference, h = ReferenceEvaluator(remembering()), np.zeros((1, WIDTH), "float32")
    for step, count in enumerate(rows):
        x, table = floats(count, WIDTH, seed=step), floats(count, WIDTH, seed=step + 100)
        y, h = reference.run(None, {"x": x, "table": table, "h": h})
        (got,) = instance(x, table)
        np.testing.assert_allclose(got.numpy(), y, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(instance.state["h"].numpy(), h, rtol=1e-4, atol=1e-5)
        assert instance.get_output("y").numpy().shape == (count, WIDTH)
        assert instance.get_input_info()[0] == of_rows(count)


@pytest.mark.parametrize("form", ["program", "wavefront", "per-op"])
def test_inputs_of_any_of_the_shapes(form):
    library = tvm_rammer.build(remembering(), shapes=SHAPES, states=STATES, form=form, **BUILD)
    direct = [interface.direct is not None for interface in library.description.interfaces]
    assert direct == [form != "per-op"] * len(ROWS)
    instance, other = library.create(), library.create()
    assert instance.shapes == SHAPES
    assert_goes_on(instance)
    assert_goes_on(other, (1, 7))
    instance.reset_state()
    assert_goes_on(instance)


def test_what_was_written_and_what_is_planned_anew(library, tmp_path):
    loaded = tvm_rammer.load(library.export_library(tmp_path / "several.so"))
    assert loaded.description.interfaces == library.description.interfaces
    assert_goes_on(loaded.create())
    assert_goes_on(library.replan(policy="sequential", num_veus=1).create())


def test_plans_that_are_interpreted():
    library = tvm_rammer.build(
        remembering(), shapes=SHAPES, states=STATES, backend="interpret", num_veus=2
    )
    assert_goes_on(library.create(), (7, 1, 24))


def test_the_weights_are_there_once(library, tmp_path):
    programs = library.programs.values()
    assert len(programs) == len(ROWS)
    (nbytes,) = {program.constant_bytes for program in programs}
    # Three matrices, each as its kernels want it: those of few rows and of many may differ.
    matrices = 4 * WIDTH * WIDTH
    assert 3 * matrices <= nbytes < 5 * matrices
    several = library.export_library(tmp_path / "several.so").stat().st_size
    alone = tvm_rammer.build(remembering(), shapes=of_rows(24), states=STATES, **BUILD)
    one = alone.export_library(tmp_path / "one.so").stat().st_size
    assert several - one < 2 * matrices + 200_000


def test_the_vm_has_a_function_for_each(library):
    machine = relax.VirtualMachine(library.executable, tvm.cpu())
    reference = ReferenceEvaluator(remembering())
    for interface, rows in zip(library.description.interfaces, ROWS, strict=True):
        x, table, h = floats(rows, WIDTH), floats(rows, WIDTH, seed=1), floats(1, WIDTH, seed=2)
        found = machine[interface.function](*map(tvm.runtime.tensor, (x, table, h)))
        wanted = reference.run(None, {"x": x, "table": table, "h": h})
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)
    functions = [interface.function for interface in library.description.interfaces]
    assert functions == ["main", "main_1", "main_2"]
    with pytest.raises((AttributeError, ValueError)):
        machine[INITIAL_STATE]


def test_inputs_without_states_and_their_tensors():
    library = tvm_rammer.build(remembering(), shapes=SHAPES, **BUILD)
    instance = library.create()
    # An input of one shape is one tensor to all functions.
    h = instance.get_input("h")
    instance.set_input(h=floats(1, WIDTH))
    instance.run(**{name: floats(*shape) for name, shape in SHAPES[1].items()})
    assert instance.get_input("h").same_as(h)
    assert instance.get_input("x").shape == (24, WIDTH)
    assert [tensor.shape[0] for tensor in instance()] == [24, 1]
    assert instance.benchmark(repeat=2, number=1).min > 0
    assert instance.profile(runs=1).program.name == library.description.interfaces[1].direct.region


def test_profiles_and_times_leave_the_state(library):
    instance = library.create()
    instance(*(floats(*shape) for shape in SHAPES[2].values()))
    before = instance.state["h"].numpy().copy()
    instance.benchmark(repeat=2, number=2)
    instance.profile(runs=2)
    np.testing.assert_array_equal(instance.state["h"].numpy(), before)


def test_shapes_that_do_not_go_together(library):
    instance = library.create()
    instance.set_input("x", floats(24, WIDTH))
    with pytest.raises(InputError) as error:
        instance.run()
    assert str(error.value) == (
        "the inputs are x (24, 192), table (1, 192); the library was built for x (1, 192), "
        "table (1, 192); or x (24, 192), table (24, 192); or x (7, 192), table (7, 192): set all "
        "inputs to the shapes of one"
    )
    instance.set_input("table", floats(24, WIDTH))
    instance.run()
    with pytest.raises(InputError) as error:
        instance.set_input("x", floats(25, WIDTH))
    assert str(error.value) == (
        "input 'x' is float32 of shape (1, 192) or (24, 192) or (7, 192); got float32 of shape "
        "(25, 192)"
    )
    # What was refused has changed nothing.
    assert instance.get_input_info()[0] == of_rows(24)
    instance.run()


def test_a_report_says_which_region_is_for_what(library):
    titles = [region.title for region in library.report.regions]
    assert titles == [
        f"{name} (x {rows}x192, table {rows}x192)"
        for name, rows in zip(library.programs, ROWS, strict=True)
    ]
    assert all(title in str(library.report) for title in titles)


def test_a_check_runs_all_of_them():
    pytest.importorskip("onnxruntime")
    from tvm_rammer.runtime.check import check_library

    library = tvm_rammer.build(remembering(), shapes=SHAPES, states=STATES, check=True, **BUILD)
    errors = check_library(library, remembering(), states=STATES)
    assert [(each.name, each.shapes) for each in errors] == [
        (name, f"x {rows}x192, table {rows}x192") for rows in ROWS for name in ("y", "h")
    ]
    with pytest.raises(ModelError, match=r"output '[yh]' with x \d+x192, table \d+x192 differs"):
        check_library(library, other_weights(), states=STATES)


def other_weights() -> onnx.ModelProto:
    model = remembering()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(floats(WIDTH, WIDTH), "w"))
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(floats(WIDTH, WIDTH), "wt"))
    return model


def symbolic() -> tvm.IRModule:
    """A module with a function beside ``main``, and a parameter that is given once."""
    builder = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64")
    x, w = (
        relax.Var(name, relax.TensorType((r, 8), "float32")) for name, r in (("x", n), ("w", 8))
    )
    inner = relax.Var("v", relax.TensorType((n, 8), "float32"))
    with builder.function("half", [inner], private=True):
        with builder.dataflow():
            out = builder.emit_output(relax.op.multiply(inner, relax.const(0.5, "float32")))
        builder.emit_func_output(out)
    half = builder.get().get_global_var("half")
    with builder.function("main", [x, w]):
        with builder.dataflow():
            product = builder.emit(relax.op.nn.relu(relax.op.matmul(x, w)))
            out = builder.emit_output(relax.op.matmul(product, w))
        called = builder.emit(half(out))
        builder.emit_func_output(called)
    return builder.get()


def test_functions_that_a_module_has_besides():
    w = floats(8, 8)
    library = tvm_rammer.build(
        symbolic(), params={"w": w}, shapes=[{"x": (3, 8)}, {"x": (5, 8)}], **BUILD
    )
    instance = library.create()
    for rows in (5, 3, 5):
        x = floats(rows, 8, seed=rows)
        (got,) = instance(x)
        want = np.maximum(x @ w, 0) @ w / 2
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([], "shapes is []; give a mapping of names to sizes"),
        ([SHAPES[0], (1, 2)], f"shapes is {[SHAPES[0], (1, 2)]!r}; give a mapping of names"),
        (
            [SHAPES[0], {"x": (1, WIDTH)}],
            "shapes[1] and shapes[0] are the same for the model: x (1, 192), table (1, 192); give "
            "each once",
        ),
        ([SHAPES[0], {"q": (1,)}], "the model: there is no input 'q'"),
    ],
)
def test_shapes_that_cannot_be_built_for(shapes, message):
    with pytest.raises(InputError) as error:
        tvm_rammer.build(remembering(), shapes=shapes, states=STATES)
    assert str(error.value).startswith(message)


def test_a_state_has_one_shape():
    model = remembering()
    for value in (model.graph.input[1], model.graph.output[1]):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    shapes = [SHAPES[0] | {"h": (1, WIDTH)}, SHAPES[1] | {"h": (24, WIDTH)}]
    with pytest.raises(InputError) as error:
        tvm_rammer.build(model, shapes=shapes, states=STATES)
    assert str(error.value) == (
        "states: 'h' has the shape (1, 192) with shapes[0], and (24, 192) with shapes[1]; what is "
        "kept from run to run has one shape"
    )


def test_an_output_stays_until_its_function_runs_again(library):
    instance = library.create()
    (first,) = instance(*(floats(*shape) for shape in SHAPES[0].values()))
    before = first.numpy().copy()
    instance(*(floats(*shape) for shape in SHAPES[1].values()))
    np.testing.assert_array_equal(first.numpy(), before)
    assert instance.get_output(0).numpy().shape == (24, WIDTH)
