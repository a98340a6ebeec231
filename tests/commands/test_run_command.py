"""``tvm-rammer run``: inputs from files, outputs to files, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from close import assert_close
from onnx import TensorProto, helper

from tvm_rammer.commands.tensor_files import save_outputs
from tvm_rammer.region.library_content import FORMAT_VERSION


def run(call, *arguments):
    result = call("run", *arguments, "--repeat", 2, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_files_are_what_the_model_computes(call, library, x):
    w = np.eye(8, dtype=np.float32)
    np.save("x.npy", x)
    np.save("w.npy", w)
    document = run(call, library, "--input", "w=w.npy", "--input", "x.npy", "--output", "out")
    assert document["files"] == ["out/z.npy", "out/t.npy"]
    assert_close(np.load("out/z.npy"), np.maximum(x, 0))
    assert_close(np.load("out/t.npy"), np.tanh(x))
    assert [item["source"] for item in document["inputs"]] == ["x.npy", "w.npy"]


def test_an_npz_has_the_inputs_by_name(call, library, x):
    np.savez("all.npz", w=2 * np.eye(8, dtype=np.float32), x=x)
    z, _ = run(call, library, "--input", "all.npz")["outputs"]
    assert (z["min"], z["max"], z["not_finite"]) == (0.0, 2.0, 0)


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_what_numpy_cannot_name_is_of_the_inputs_dtype(call, refused, name):
    """An output in bfloat16 can be an input."""
    bfloat16 = np.dtype("bfloat16")
    ends = [helper.make_tensor_value_info(end, TensorProto.BFLOAT16, (3,)) for end in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "bf.onnx")
    value = np.array([1, 2, -3], bfloat16)
    np.save("x.npy", value)
    np.savez("x.npz", x=value)
    run(call, "bf.onnx", "--input", name, "--output", "first")
    run(call, "bf.onnx", "--input", "first/y.npy", "--output", "second")
    assert np.load("second/y.npy").view(bfloat16).tolist() == [1, 2, -3]
    np.save("wide.npy", np.zeros(3, "V4"))
    assert refused("run", "bf.onnx", "--input", "wide.npy") == (
        "error: wide.npy: input 'x' is bfloat16 of shape (3,); got |V4 of shape (3,); "
        "convert the array"
    )


def test_inputs_that_are_not_given_are_random_but_repeatable(call, library):
    first, again = run(call, library)["outputs"], run(call, library)["outputs"]
    assert first == again
    assert run(call, library, "--seed", 1)["outputs"] != first


def test_outputs_whose_names_differ_have_files_of_their_own(tmp_path):
    """Also where the name that an output gets instead is another's; a long name keeps its start."""
    long = "y" * 300
    names = ["a/b", "a_b_2", "a:b", "..", f"{long}1", f"{long}2"]
    files = save_outputs(tmp_path, {name: np.array(n) for n, name in enumerate(names)})
    short = "y" * 200
    expected = ["a_b.npy", "a_b_2.npy", "a_b_3.npy", "3.npy", f"{short}.npy", f"{short}_5.npy"]
    assert [path.name for path in files] == expected
    assert [int(np.load(path)) for path in files] == [*range(6)]


def test_a_model_is_compiled_first(call, model, library):
    same = run(call, model, "--num-veus", 1)
    assert same["num_veus"] == 1
    assert same["outputs"][0]["mean"] == pytest.approx(run(call, library)["outputs"][0]["mean"])


def test_plans_are_interpreted_where_that_is_asked_for(call, model, library, x):
    np.save("x.npy", x)
    np.save("w.npy", np.eye(8, dtype=np.float32))
    inputs = ("--input", "x.npy", "--input", "w.npy", "--output", "out")
    assert run(call, model, "--backend", "interpret", *inputs)["num_veus"] == 4
    assert_close(np.load("out/z.npy"), np.maximum(x, 0))


def test_values_that_are_not_finite_are_counted_and_leave_the_json_valid(call, library):
    np.save("x.npy", np.full((4, 8), np.nan, np.float32))
    np.save("w.npy", np.eye(8, dtype=np.float32))
    _, t = run(call, library, "--input", "x.npy", "--input", "w.npy")["outputs"]
    assert (t["mean"], t["not_finite"]) == (None, 32)


def test_text_has_shapes_and_time(call, library):
    text = " ".join(call("run", library).stdout.split())
    assert "x float32 4x8 random w float32 8x8 random output" in text
    assert " a run (median of 10, " in text


# Bad input


def test_an_unknown_input(refused, library, x):
    np.save("x.npy", x)
    line = refused("run", library, "--input", "q=x.npy")
    assert line == "error: x.npy: there is no input 'q'; the model's inputs are 'x', 'w'"


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (np.zeros((4, 9), np.float32), "float32 of shape (4, 9)"),
        (np.zeros((4, 8)), "float64 of shape (4, 8)"),
    ],
)
def test_a_wrong_shape_or_dtype(refused, library, value, got):
    np.save("x.npy", value)
    assert refused("run", library, "--input", "x.npy") == (
        f"error: x.npy: input 'x' is float32 of shape (4, 8); got {got}; convert the array"
    )


def test_a_missing_array(refused, library):
    line = refused("run", library, "--input", "x.npy")
    assert line == "error: x.npy: no such file; write it with numpy.save"


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_truncated_array(refused, library, tmp_path, x, name):
    (np.save if name == "x.npy" else np.savez)(name, x)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:150])
    line = refused("run", library, "--input", name)
    assert line.startswith(f"error: {name}: not an array of numpy, or damaged (")
    assert line.endswith("); write it with numpy.save")


def test_a_pickled_array_is_not_loaded(refused, library):
    np.save("x.npy", np.array([{}], dtype=object))
    assert refused("run", library, "--input", "x.npy") == (
        "error: x.npy: not an array of numpy, or damaged "
        "(Object arrays cannot be loaded when allow_pickle=False); write it with numpy.save"
    )


def test_an_input_given_twice(refused, library, x):
    np.save("x.npy", x)
    line = refused("run", library, "--input", "x=x.npy", "--input", "x=x.npy")
    assert line == ("error: x.npy: input 'x' has a value already, from x.npy; give each input once")


def test_more_files_than_inputs(refused, library, x):
    np.save("x.npy", x)
    line = refused("run", library, *["--input", "x.npy"] * 3)
    assert line == ("error: x.npy: there is no input left for it; the model's inputs are 'x', 'w'")


def test_a_library_cannot_be_compiled_otherwise(refused, library):
    line = refused("run", library, "--num-veus", 1)
    assert line == (
        f"error: {library}: is compiled already, --num-veus cannot change it; "
        "give the model instead"
    )


def test_a_missing_library(refused):
    line = refused("run", "no.so")
    assert line == "error: no.so: no such file; export a library there first"


def test_a_folder_in_the_place_of_a_library(refused, tmp_path):
    (tmp_path / "d.so").mkdir()
    assert refused("run", "d.so") == "error: d.so: is a folder; give the file of a library"


def test_a_corrupt_library(refused, tmp_path):
    (tmp_path / "bad.so").write_bytes(b"not a library")
    line = refused("run", "bad.so")
    assert line == "error: bad.so: no shared object; compile the model again"


def test_a_library_of_another_format(refused, library, monkeypatch):
    monkeypatch.setattr("tvm_rammer.region.library_content.FORMAT_VERSION", 99)
    line = refused("run", library)
    assert line == (
        f"error: {library}: library format {FORMAT_VERSION}, this version reads 99; "
        "compile the model again"
    )


def test_a_library_of_another_tvm(refused, library, monkeypatch):
    monkeypatch.setattr("tvm.__version__", "0.99.0")
    line = refused("run", library)
    assert line.startswith(f"error: {library}: compiled with TVM 0.27.")
    assert line.endswith(", this is TVM 0.99.0; compile the model again")


def test_no_runs(refused, library):
    line = refused("run", library, "--repeat", 0)
    assert line == "error: --repeat is 0; it must be at least 1"


def test_a_file_in_the_place_of_the_output_folder(refused, library, tmp_path):
    (tmp_path / "out").write_text("")
    line = refused("run", library, "--output", "out")
    assert line == "error: out: the folder cannot be made: File exists; choose another"
