"""``tvm-rammer compile``: what it writes, what it says, what it refuses."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest
from conftest import write_model
from onnx import TensorProto, helper

import tvm_rammer


def test_the_library_can_be_loaded(library):
    assert tvm_rammer.load(library).description.policy == "auto"


def test_text_says_what_was_planned(call, model):
    result = call("compile", model, "-o", "tiny.so", "--num-veus", 2, "--policy", "sequential")
    assert result.exit_code == 0
    assert result.stdout.startswith("tiny.so  ")
    assert "inputs   x float32 4x8, w float32 8x8" in result.stdout
    assert "plan     sequential, 2 vEUs, one launch for a region" in result.stdout
    assert result.stderr == ""


def test_json_is_one_document(call, model):
    document = json.loads(call("compile", model, "-o", "tiny.so", "--json").stdout)
    assert document["library"] == "tiny.so"
    assert document["options"]["policy"] == "auto"
    assert document["interfaces"][0]["outputs"][0] == {
        "name": "z",
        "shape": [4, 8],
        "dtype": "float32",
    }
    assert document["report"]["regions"][0]["operators"] == 3


def test_per_op_says_why_nothing_is_planned(call, model):
    result = call("compile", model, "-o", "tiny.so", "--form", "per-op")
    assert "region   none: nothing was planned" in result.stdout


def test_shapes_for_symbolic_dimensions(call, tmp_path):
    model = write_model(tmp_path / "symbolic.onnx", batch="n")
    assert call("compile", model, "-o", "s.so", "--shape", "x=2,8").exit_code == 0
    assert tvm_rammer.load("s.so").description.inputs[0].shape == (2, 8)


def test_constants_are_no_inputs(call, tmp_path):
    def value(name: str, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    node = helper.make_node("Mul", ["x", "k"], ["y"])
    graph = helper.make_graph(
        [node], "scale", [value("x", 3, 2), value("k", 2)], [value("y", 3, 2)]
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), "scale.onnx")
    assert call("compile", "scale.onnx", "-o", "s.so", "--constant", "k=2,0.5").exit_code == 0
    description = tvm_rammer.load("s.so").description
    assert [info.name for info in description.inputs] == ["x"]


def test_states_are_no_inputs_and_no_outputs(call, counting):
    result = call("compile", counting, "-o", "s.so", "--state", "count=next", "--check")
    assert result.exit_code == 0, result.stderr
    assert "inputs             x float32 3x2" in result.stdout
    assert "kept between runs  count float32 3x2" in result.stdout
    assert "error count" in result.stdout
    assert [info.name for info in tvm_rammer.load("s.so").description.outputs] == ["y"]
    for command in ("run", "explain"):
        assert call(command, counting, "--state", "count=next").exit_code == 0
    assert call("show", counting, "--kernels", "--state", "count=next").exit_code == 0


@pytest.fixture
def counting(tmp_path):
    """``next = count + x; y = exp(next)``."""
    names = ("x", "count", "next", "y")
    x, count, following, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (3, 2)) for name in names
    )
    nodes = [
        helper.make_node("Add", ["count", "x"], ["next"]),
        helper.make_node("Exp", ["next"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "counting", [x, count], [following, y])
    opset = [helper.make_opsetid("", 17)]
    path = tmp_path / "counting.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def test_the_tolerance_is_written_down(call, model):
    call("compile", model, "-o", "tiny.so", "--winograd-tolerance", "1e-3", "--round-data")
    options = tvm_rammer.load("tiny.so").description.content["options"]
    assert options["winograd_tolerance"] == 1e-3
    assert options["round_data"] is True


def test_limits_are_written_down(call, model):
    call("compile", model, "-o", "tiny.so", "--wait-limit", "2.5", "--max-arena-bytes", "1000000")
    options = tvm_rammer.load("tiny.so").description.content["options"]
    assert (options["wait_limit"], options["max_arena_bytes"]) == (2.5, 1_000_000)


# Bad input


def test_a_missing_file(refused):
    line = refused("compile", "no.onnx", "-o", "a.so")
    assert line == "error: no.onnx: no such file; give the path of a model"


def test_the_name_of_a_network(refused):
    assert refused("compile", "randwire", "-o", "a.so") == (
        "error: randwire: no such file; `tvm-rammer models randwire -o randwire.onnx` writes that "
        "network"
    )


def test_a_library(refused, library):
    assert refused("compile", library, "-o", "a.so") == (
        f"error: {library}: a library is compiled already; give the model instead"
    )


def test_a_corrupt_file(refused, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"hello world")
    line = refused("compile", "bad.onnx", "-o", "a.so")
    assert line.startswith("error: bad.onnx: not an ONNX model, or damaged (")
    assert line.endswith("); export the model again")


def test_an_unsupported_operator(refused, tmp_path):
    write_model(tmp_path / "m.onnx", operator="NonMaximal")
    assert refused("compile", "m.onnx", "-o", "a.so") == (
        "error: m.onnx: TVM's ONNX importer does not support NonMaximal (node 'last'); "
        "export the model without"
    )


def test_a_symbolic_shape_without_sizes(refused, tmp_path):
    write_model(tmp_path / "m.onnx", batch="n")
    assert refused("compile", "m.onnx", "-o", "a.so") == (
        "error: m.onnx: input 'x' has the symbolic shape (n, 8); give it sizes, such as "
        "--shape x=1,8 (in Python shapes={'x': (1, 8)})"
    )


def test_a_shape_for_an_unknown_input(refused, model):
    line = refused("compile", model, "-o", "a.so", "--shape", "q=2,8")
    assert line == (f"error: {model}: there is no input 'q'; its inputs: 'x' (4, 8), 'w' (8, 8)")


def test_several_shapes(call, tmp_path):
    model = write_model(tmp_path / "symbolic.onnx", batch="n")
    shapes = ("--shape", "x=2,8", "--shape", "w=8,8", "--shape", "x=5,8")
    result = call("compile", model, "-o", "s.so", "--check", *shapes)
    assert result.exit_code == 0, result.stderr
    for rows in (2, 5):
        assert re.search(rf"inputs +x float32 {rows}x8, w float32 8x8 *\n", result.stdout)
        assert f"of its largest value with x {rows}x8, w 8x8" in result.stdout
    interfaces = tvm_rammer.load("s.so").description.interfaces
    assert [interface.inputs[0].shape for interface in interfaces] == [(2, 8), (5, 8)]
    np.save("x.npy", np.ones((5, 8), np.float32))
    ran = json.loads(call("run", "s.so", "--input", "x=x.npy", "--repeat", 1, "--json").stdout)
    assert [each["shape"] for each in ran["outputs"]] == [[5, 8], [5, 8]]
    shown = json.loads(call("show", "s.so", "--measured", "--json").stdout)
    assert len(shown["measured"]) == len(shown["programs"]) == 2


def test_a_shape_given_twice(refused, model):
    line = refused("compile", model, "-o", "a.so", "--shape", "x=4,8", "--shape", "x=4,8")
    assert line == (
        "error: shapes[1] and shapes[0] are the same for the model: x (4, 8), w (8, 8); give each "
        "once"
    )


def test_shapes_that_are_not_as_many(refused, model):
    given = [("--shape", text) for text in ("x=4,8", "x=5,8", "x=6,8", "w=8,8", "w=8,9")]
    line = refused("compile", model, "-o", "a.so", *(part for pair in given for part in pair))
    assert line == (
        "error: --shape gives input 'w' 2 shapes, and another input 3: give each input one for "
        "all, or one for each"
    )


def test_a_constant_given_twice(refused, model):
    line = refused("compile", model, "-o", "a.so", "--constant", "x=4", "--constant", "x=8")
    assert line == "error: --constant gives input 'x' twice; give each input once"


@pytest.mark.parametrize("text", ["x", "=y", "x="])
def test_a_state_that_is_none(call, model, text):
    result = call("compile", model, "-o", "a.so", "--state", text)
    assert result.exit_code == 2
    assert f"{text!r} is not of the form state=next_state" in result.stderr


def test_a_state_given_twice(refused, model):
    line = refused("compile", model, "-o", "a.so", "--state", "x=y", "--state", "x=z")
    assert line == "error: --state gives input 'x' twice; give each input once"


@pytest.mark.parametrize("text", ["x", "=1", "x=", "x=1,", "x=many"])
def test_a_constant_that_is_none(call, model, text):
    result = call("compile", model, "-o", "a.so", "--constant", text)
    assert result.exit_code == 2
    line = result.stderr
    assert f"'{text}' is not of the form sr=16000 or size=480,640" in line


def test_no_veu(refused, model):
    line = refused("compile", model, "-o", "a.so", "--num-veus", 0)
    assert line == "error: num_veus is 0: it must be a whole number of at least 1"


def test_more_veus_than_the_machine_has(refused, model):
    line = refused("compile", model, "-o", "a.so", "--num-veus", 100_000)
    assert line.startswith("error: num_veus is 100000, but ")


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (
            "--policy",
            "error: there is no policy 'x'; "
            "choose one of 'auto', 'estf', 'ios', 'locality', 'sequential', 'wavefront'",
        ),
        (
            "--form",
            "error: there is no form 'x'; choose one of 'program', 'wavefront', 'per-op'",
        ),
    ],
)
def test_an_unknown_choice(refused, model, option, line):
    assert refused("compile", model, "-o", "a.so", option, "x") == line


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("no/a.so", "error: no/a.so: there is no folder no; make it first"),
        ("a.txt", "error: a.txt: a library's name ends in .so"),
    ],
)
def test_a_path_that_cannot_be_written(refused, model, output, line):
    assert refused("compile", model, "-o", output) == line


def test_a_folder_in_the_place_of_the_library(refused, model, tmp_path):
    (tmp_path / "a.so").mkdir()
    line = refused("compile", model, "-o", "a.so")
    assert line == "error: a.so: is a folder; give the name of a file"


def test_a_name_that_is_too_long(refused, model):
    long = "a" * 300
    assert refused("compile", model, "-o", f"{long}.so") == (
        f"error: {long}.so: cannot be written: File name too long; choose another path"
    )
    assert refused("compile", f"{long}.onnx", "-o", "a.so") == (
        f"error: {long}.onnx: cannot be read: File name too long; give a model file"
    )


def test_no_compiler(refused, model, monkeypatch):
    monkeypatch.setattr("tvm.support.cc.get_cc", lambda: None)
    assert refused("compile", model, "-o", "a.so") == (
        "error: a.so: no C++ compiler is found to link the library; install g++ "
        "(`tvm-rammer run` and `show` take the model and need none)"
    )


def test_what_is_interpreted_is_refused_before_it_is_compiled(refused, model):
    assert refused("compile", model, "-o", "m.so", "--backend", "interpret") == (
        "error: m.so: the back end 'interpret' runs in the process that builds only; build without "
        "it for a library that can be written"
    )
