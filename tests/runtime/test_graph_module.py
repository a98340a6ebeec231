"""GraphModule has the graph executor's methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from close import assert_close, assert_outputs_close
from small_models import Pair, Sorting, floats, replan, sorting

import tvm_rammer
from tvm_rammer.errors import DeviceError, InputError
from tvm_rammer.runtime.graph_module import BenchmarkResult, GraphModule
from tvm_rammer.runtime.library import Library
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing import models
from tvm_rammer.testing.reference import random_inputs

LSTM = models.lstm(2, 2, 16)
INPUTS = random_inputs(LSTM)
(WANTED,) = run_onnxruntime(LSTM, INPUTS)


@pytest.fixture(scope="module")
def library() -> Library:
    return tvm_rammer.build(LSTM)


@pytest.fixture(scope="module")
def sorting_library() -> Library:
    return tvm_rammer.build(Sorting)


@pytest.fixture
def module(library: Library) -> GraphModule:
    return library.create()


def is_right(module: GraphModule) -> bool:
    return np.allclose(module.get_output(0).numpy(), WANTED, 0, 1e-5)


# Inputs


def test_inputs_are_set_by_name(module):
    for name, value in INPUTS.items():
        module.set_input(name, value)
    module.run()
    assert is_right(module)


def test_inputs_are_set_by_number(module):
    for number, value in enumerate(INPUTS.values()):
        module.set_input(np.int64(number), value)
    module.run()
    assert is_right(module)


def test_inputs_are_set_as_keywords(module):
    module.set_input("x0", INPUTS["x0"], x1=INPUTS["x1"])
    module.run()
    assert is_right(module)


def test_run_takes_inputs(module):
    module.run(**INPUTS)
    assert is_right(module)


def test_the_call_form_takes_inputs_and_returns_all_outputs(module):
    (output,) = module(*INPUTS.values())
    assert_close(output.numpy(), WANTED)
    (output,) = module(INPUTS["x0"], x1=INPUTS["x1"])
    assert_close(output.numpy(), WANTED)


def test_values_may_be_tensors_views_and_foreign_arrays(module):
    module.set_input("x0", tvm.runtime.tensor(INPUTS["x0"]))
    wide = np.repeat(INPUTS["x1"], 2, axis=1)
    module.set_input("x1", wide[:, ::2])
    module.run()
    assert is_right(module)


class OtherArray:
    """An array of a library with types that numpy does not know: only DLPack reads it."""

    def __init__(self, values: np.ndarray) -> None:
        self.tensor = tvm.runtime.tensor(values)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("numpy has no such type")

    def __dlpack__(self, **_: Any) -> Any:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def test_values_that_numpy_cannot_read_are_read_by_dlpack(module):
    module.run(**{name: OtherArray(value) for name, value in INPUTS.items()})
    assert is_right(module)


def test_a_value_that_nobody_can_read_is_refused(module):
    with pytest.raises(InputError) as refused:
        module.set_input("x0", [[1.0], [1.0, 2.0]])
    text = str(refused.value)
    assert text.startswith("input 'x0' cannot be read by numpy: setting an array element")
    assert "by DLPack: " in text and "\n" not in text


def test_parameters_are_loaded_from_a_mapping_or_bytes(module):
    module.load_params(INPUTS)
    module.run()
    assert is_right(module)
    values = {name: tvm.runtime.tensor(value) for name, value in INPUTS.items()}
    data = tvm.runtime.save_param_dict(values)
    for form in (bytes, bytearray):
        module.set_input("x0", 0 * INPUTS["x0"])
        module.load_params(form(data))
        module.run()
        assert is_right(module)


def test_inputs_that_are_not_set_are_zero(library):
    module = library.create()
    module.run()
    zeros = {name: 0 * value for name, value in INPUTS.items()}
    assert_close(module.get_output(0).numpy(), run_onnxruntime(LSTM, zeros)[0])


def test_an_input_that_is_called_value():
    g = models.GraphBuilder("value")
    value = g.input("value", (4, 8))
    g.output("key", g.op("Softmax", g.op("MatMul", value, g.weight((8, 8), 1.0))))
    module = tvm_rammer.build(g.build()).create()
    module.set_input(value=floats(4, 8))
    np.testing.assert_array_equal(module.get_input("value").numpy(), floats(4, 8))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("x2", WANTED, "there is no input 'x2'; the model's inputs are 'x0', 'x1'"),
        (2, WANTED, "there is no input 2; the model has 2, from 0"),
        (-1, WANTED, "there is no input -1; the model has 2, from 0"),
        (0.5, WANTED, "there is no input 0.5; the model has 2, from 0"),
        (
            "x0",
            WANTED[0],
            "input 'x0' is float32 of shape (1, 16); got float32 of shape (16,)",
        ),
        (
            1,
            WANTED.astype("float64"),
            "input 'x1' is float32 of shape (1, 16); got float64 of shape (1, 16)",
        ),
        ("x0", None, "input 'x0' is float32 of shape (1, 16); got object of shape ()"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(module, key, value, message):
    with pytest.raises(InputError) as refused:
        module.set_input(key, value)
    assert str(refused.value) == message


def test_too_many_values_are_refused(module):
    with pytest.raises(InputError, match=r"^there is no input 2; the model has 2, from 0$"):
        module(WANTED, WANTED, WANTED)


def test_parameters_that_cannot_be_read_are_refused(module):
    with pytest.raises(InputError) as refused:
        module.load_params(b"no parameters")
    assert str(refused.value) == (
        "the parameters cannot be read; give the bytes of tvm.runtime.save_param_dict"
    )


def test_parameters_are_by_name(module):
    with pytest.raises(InputError) as refused:
        module.load_params([1])
    assert str(refused.value) == (
        "the parameters are a list; give values by name, or the bytes of "
        "tvm.runtime.save_param_dict"
    )


@pytest.mark.parametrize(("out", "kind"), [(np.zeros(3), "ndarray"), (3, "int")])
def test_an_output_is_copied_into_tensors_alone(module, out, kind):
    module.run()
    with pytest.raises(InputError) as refused:
        module.get_output(0, out)
    assert str(refused.value) == f"out is a {kind}; give a tvm.runtime.Tensor"


def test_the_interface_is_known(module, sorting_library):
    assert (module.get_num_inputs(), module.get_num_outputs()) == (2, 1)
    shapes, dtypes = module.get_input_info()
    assert shapes == {"x0": (1, 16), "x1": (1, 16)}
    assert dtypes == {"x0": "float32", "x1": "float32"}
    assert (module.get_input_index("x1"), module.get_input_index("x2")) == (1, -1)
    outputs = sorting_library.description.outputs
    assert [o.name for o in outputs] == ["output_0", "output_1.0", "output_1.1"]


# Outputs


def test_an_output_is_copied_into_a_tensor_that_is_given(module):
    module.run(**INPUTS)
    out = tvm.runtime.empty((1, 16), "float32")
    assert module.get_output(0, out=out) is out
    assert_close(out.numpy(), WANTED)


@pytest.mark.parametrize("index", [1, -1])
def test_an_output_that_is_not_there(module, index):
    with pytest.raises(InputError) as refused:
        module.get_output(index)
    assert str(refused.value) == f"there is no output {index}; the model has 1, from 0"


def test_an_output_by_its_name(module):
    module.run(**INPUTS)
    assert module.get_output("out").same_as(module.get_output(0))
    with pytest.raises(InputError) as refused:
        module.get_output("z")
    assert str(refused.value) == "there is no output 'z'; the model's outputs are 'out'"


def test_a_tensor_of_another_type_is_refused(module):
    module.run(**INPUTS)
    with pytest.raises(InputError) as refused:
        module.get_output(0, out=tvm.runtime.empty((16,), "int32"))
    assert str(refused.value) == "output 0 is float32 of shape (1, 16); out is int32 of shape (16,)"


def test_inputs_and_outputs_are_not_copied(module):
    """What is written into an input's memory is used; an output is always the same memory."""
    output = np.from_dlpack(module.get_output(0))
    for number, value in enumerate(INPUTS.values()):
        np.from_dlpack(module.get_input(number))[:] = value
    module.run()
    assert_close(output, WANTED)


def test_instances_share_no_tensors(library):
    one, other = library.create(), library.create()
    one.run(**INPUTS)
    other.run(x0=0 * INPUTS["x0"])
    assert is_right(one) and not is_right(other)


# Models that the VM runs


def test_a_model_with_operators_in_no_plan(sorting_library):
    assert sorting_library.description.interfaces[0].direct is None
    module = sorting_library.create()
    x, y = floats(4, 8), floats(600, 8, seed=1)
    assert_outputs_close([t.numpy() for t in module(x, y)], sorting(x, y))
    assert_outputs_close([t.numpy() for t in module(-x, 2 * y)], sorting(-x, 2 * y))


def test_an_output_before_the_first_run(sorting_library):
    with pytest.raises(InputError, match=r"^no output yet: call run\(\) first$"):
        sorting_library.create().get_output(0)


def test_an_input_that_is_no_tensor():
    with pytest.raises(InputError) as refused:
        tvm_rammer.build(Pair).create()
    assert str(refused.value) == (
        "'pair' is a tuple, not a tensor; run the model through lib.executable"
    )


# Making and timing


def test_the_graph_executors_way_to_make_one(library):
    module = library["default"](tvm.cpu())
    module.run(**INPUTS)
    assert is_right(module)


def test_other_devices_are_refused(library):
    with pytest.raises(DeviceError) as refused:
        library.create(tvm.cuda())
    assert str(refused.value) == "a library for CPUs does not run on cuda:0; give it tvm.cpu()"
    with pytest.raises(DeviceError) as refused:
        library.create("cpu")
    assert str(refused.value) == "'cpu' is no device; give create() tvm.cpu(), or nothing"


def test_a_benchmark_gives_statistics(module):
    result = module.benchmark(repeat=4, number=2)
    assert len(result.results) == 4
    assert 0 < result.min <= result.median <= result.max
    assert result.min <= result.mean <= result.max
    assert str(result).startswith("mean ")


def test_the_spread_of_one_time_is_nought():
    assert BenchmarkResult((0.5,)).std == 0.0
    assert BenchmarkResult((0.25, 0.75)).std > 0.3


def test_a_benchmark_of_nothing_is_refused(module):
    with pytest.raises(InputError):
        module.benchmark(repeat=2.5)
    with pytest.raises(InputError) as refused:
        module.benchmark(repeat=0)
    assert str(refused.value) == (
        "repeat is 0, number is 5, warm_up is 3; they are whole numbers, the first two at least 1, "
        "the last at least 0"
    )


# Plans


@pytest.mark.parametrize("num_veus", [1, 2, 4])
@pytest.mark.parametrize("policy", ["sequential", "wavefront"])
@pytest.mark.parametrize("form", ["program", "wavefront"])
def test_every_plan_computes_the_same(library, form, policy, num_veus):
    planned = replan(library, policy=policy, num_veus=num_veus, form=form)
    module = planned.create()
    assert (module.num_veus, planned.description.policy) == (num_veus, policy)
    module.run(**INPUTS)
    assert is_right(module)


def test_operator_after_operator():
    library = tvm_rammer.build(LSTM, form="per-op")
    assert library.programs == {}
    module = library.create()
    module.run(**INPUTS)
    assert is_right(module)
