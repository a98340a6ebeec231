"""Models with inputs of sizes that each run decides."""

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper
from small_models import Dynamic, dynamic, floats

import tvm_rammer
from tvm_rammer.cli import main
from tvm_rammer.errors import InputError
from tvm_rammer.runtime.check import check_library
from tvm_rammer.runtime.onnx_reference import run_onnxruntime


def tower(batch="b", width=12):
    """Two products of as many rows as there are, and a mean over them."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape).astype("float32") for shape in ((width, 32), (32, 5))]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w1"], ["p"]),
        helper.make_node("Add", ["p", "y"], ["s"]),
        helper.make_node("Softmax", ["s"], ["z"], axis=-1),
        helper.make_node("ReduceMean", ["z"], ["m"], axes=[0], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "tower",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, width]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5]),
        ],
        [
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [batch, 5]),
            helper.make_tensor_value_info("m", TensorProto.FLOAT, [5]),
        ],
        [onnx.numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def inputs(rows, seed=0):
    return {"x": floats(rows, 12, seed=seed), "y": floats(rows, 5, seed=seed + 1)}


def agrees(module, given):
    module.run(**given)
    expected = run_onnxruntime(tower(), given)
    found = [module.get_output(number).numpy() for number in range(module.get_num_outputs())]
    return all(
        one.shape == other.shape and np.allclose(one, other, atol=1e-5)
        for one, other in zip(found, expected, strict=True)
    )


@pytest.fixture(scope="module")
def library():
    return tvm_rammer.build(tower(), shapes={"x": ("n", 12)})


@pytest.fixture(scope="module")
def both():
    """Planned for four rows, and for as many as there are."""
    shapes = [{"x": (4, 12), "y": (4, 5)}, {"x": ("n", 12), "y": ("n", 5)}]
    return tvm_rammer.build(tower(), shapes=shapes)


def test_runs_have_their_own_sizes(library):
    module = library.create()
    assert all(agrees(module, inputs(rows, rows)) for rows in (1, 3, 200, 3, 1, 65))


def test_instances_have_their_own_sizes(library):
    one, other = library.create(), library.create()
    one.set_input(**inputs(3))
    assert agrees(other, inputs(7))
    one.run()
    assert one.get_output(0).shape == (3, 5)


def test_what_it_takes(library):
    (interface,) = library.description.interfaces
    assert interface.shapes == (("n", 12), ("n", 5))
    assert [info.shape for info in interface.outputs] == [("n", 5), (5,)]
    module = library.create()
    assert module.get_input_info()[0] == {"x": ("n", 12), "y": ("n", 5)}
    module.set_input(**inputs(6))
    assert module.get_input_info()[0] == {"x": (6, 12), "y": (6, 5)}
    assert module.shapes == [{"x": ("n", 12), "y": ("n", 5)}]


def test_a_library_in_a_file(library, tmp_path):
    library.export_library(tmp_path / "tower.so")
    assert agrees(tvm_rammer.load(tmp_path / "tower.so").create(), inputs(9))


def test_known_sizes_first(both):
    module = both.create()
    for rows in (4, 9, 4, 1):
        assert agrees(module, inputs(rows, rows))
        direct = module._last.interface.direct
        assert (direct is not None) == (rows == 4)


def test_some_sizes_are_open_in_one_and_others_in_another():
    """The first that fits is taken."""
    made = tower()
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    made.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "others"
    shapes = [{"x": (4, 12), "y": ("n", 5)}, {"x": ("n", 12), "y": ("n", 5)}]
    module = tvm_rammer.build(made, shapes=shapes).create()
    given = {"x": floats(4, 12), "y": floats(1, 5)}
    (z, _) = module(**given)
    np.testing.assert_allclose(z.numpy(), run_onnxruntime(made, given)[0], atol=1e-5)
    assert agrees(module, inputs(4)) and agrees(module, inputs(6))


def test_it_is_compared_with_the_model(library):
    errors = check_library(library, tower())
    assert [each.name for each in errors] == ["z", "m"]
    assert all(each.error < 1e-5 for each in errors)


def test_a_relax_module():
    module = tvm_rammer.build(Dynamic).create()
    assert module.get_input_info()[0] == {"x": ("n", 8), "w": (8, 8)}
    for rows in (5, 1, 70):
        x, w = floats(rows, 8), floats(8, 8, seed=1)
        (found,) = module(x, w)
        np.testing.assert_allclose(found.numpy(), dynamic(x, w), rtol=1e-4, atol=1e-5)


def refused(call, *arguments, **keywords):
    with pytest.raises(InputError) as error:
        call(*arguments, **keywords)
    return str(error.value)


def test_nothing_is_set(library):
    module = library.create()
    assert refused(module.run) == (
        "no value is set for x ('n', 12), y ('n', 5): each run has sizes of its own"
    )
    module.set_input("x", floats(3, 12))
    assert refused(module.run) == ("no value is set for y ('n', 5): each run has sizes of its own")
    assert refused(module.get_output, 0) == "no output yet: call run() first"
    assert refused(library.create().get_input, "x") == (
        "'x' is of the shape ('n', 12), in which each run has sizes of its own; give a value of "
        "such a shape"
    )


def test_sizes_that_do_not_fit(library, both):
    module = library.create()
    module.set_input("x", floats(3, 12))
    module.set_input("y", floats(4, 5))
    assert refused(module.run) == (
        "the inputs are x (3, 12), y (4, 5); the library was built for x ('n', 12), y ('n', 5): "
        "set all inputs to the shapes of one"
    )
    assert refused(module.set_input, "x", floats(3, 13)) == (
        "input 'x' is float32 of shape ('n', 12); got float32 of shape (3, 13)"
    )
    assert refused(both.create().set_input, "x", floats(12)) == (
        "input 'x' is float32 of shape (4, 12) or ('n', 12); got float32 of shape (12,)"
    )
    assert refused(module.set_input, "x", floats(0, 12)) == (
        "input 'x' is float32 of shape ('n', 12); got float32 of shape (0, 12)"
    )


@pytest.mark.parametrize(
    "shapes, expected",
    [
        ({"x": ("n", "m")}, "input 'x' is (b, 12) in the model; the shape (n, m) does not fit"),
        (
            {"x": ("n", 12), "y": (3, 5)},
            "the shapes make the dimension 'b' both n and 3; give it one size",
        ),
        (
            {"x": ("a b", 12)},
            "the shape (a b, 12) of input 'x' must have positive integers, or names of sizes that "
            "each run decides",
        ),
    ],
)
def test_names_that_do_not_fit(shapes, expected):
    assert refused(tvm_rammer.build, tower(), shapes=shapes) == f"the model: {expected}"


def test_tuning_wants_sizes(tmp_path):
    message = refused(
        tvm_rammer.tune, tower(), trials=1, work_dir=tmp_path, shapes={"x": ("n", 12)}
    )
    assert message == (
        "tune: input 'x' has sizes that each run decides; give the shapes that it is to be tuned "
        "for"
    )


def test_the_command_line(tmp_path):
    onnx.save(tower(), tmp_path / "tower.onnx")
    np.save(tmp_path / "x.npy", floats(7, 12))
    model, built, x = (str(tmp_path / name) for name in ("tower.onnx", "tower.so", "x.npy"))
    run = CliRunner().invoke
    done = run(main, ["compile", model, "-o", built, "--shape", "x=n,12", "--check"])
    assert done.exit_code == 0, done.output
    done = run(main, ["run", built, "--input", f"x={x}"])
    assert done.exit_code == 0 and "7x5" in done.output, done.output
    done = run(main, ["run", built])
    assert done.exit_code == 1
    assert "'x' is of the shape ('n', 12), in which each run has sizes of its own" in done.output
