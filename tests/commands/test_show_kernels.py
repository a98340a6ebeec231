"""``tvm-rammer show --kernels``: the table, its JSON, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def report(call, model):
    return json.loads(call("show", model, "--kernels", "--json").stdout)


def test_every_kernel_is_one_line_with_its_measures(call, model):
    result = call("show", model, "--kernels")
    assert result.exit_code == 0, result.stderr
    heading, _, *lines = result.stdout.splitlines()
    assert heading.split() == [
        *("uses", "time", "±", "share", "GFLOP/s", "GB/s", "peak", "roof", "limit"),
        *("kernel", "rTasks", "operator,", "tile"),
    ]
    assert sum("matmul" in line for line in lines) == 1
    totals = [line.split()[0] for line in lines[lines.index("") + 1 :]]
    assert totals[:3] == ["kernels", "roofline", "one"]
    assert "3 operators with 3 kernels" in result.stdout


def test_a_narrow_table_has_fewer_columns(call, model, monkeypatch):
    monkeypatch.setattr("tvm_rammer.commands.command._PLAIN_WIDTH", 80)
    heading, _, *lines = call("show", model, "--kernels").stdout.splitlines()
    assert heading.split() == [
        *("uses", "time", "share", "GFLOP/s", "peak", "roof", "limit"),
        *("kernel", "operator,", "tile"),
    ]
    assert all(len(line) <= 80 for line in lines)


def test_what_exceeds_the_table_is_one_line(call, model, monkeypatch):
    monkeypatch.setattr("tvm_rammer.commands.kernel_table._MOST_KERNELS", 1)
    assert "2 more" in call("show", model, "--kernels").stdout
    assert " more" not in call("show", model, "--kernels", "--all").stdout


def test_json_has_work_times_and_ceilings(report):
    assert report["operators"] == sum(kernel["count"] for kernel in report["kernels"]) == 3
    matmul = next(k for k in report["kernels"] if k["rule"] == "matmul")
    assert matmul["flops"] == 2 * 4 * 8 * 8
    assert matmul["bytes"] == 4 * (4 * 8 + 8 * 8 + 4 * 8)
    assert matmul["measured"] and matmul["seconds"] > 0 and matmul["spread"] >= 0
    assert matmul["vector_bytes"]["multiply_add"] > 4
    assert matmul["missed"] is None
    assert matmul["roofline"]["seconds"] == max(
        matmul["roofline"]["compute_seconds"], matmul["roofline"]["memory_seconds"]
    )
    total = sum(kernel["count"] * kernel["seconds"] for kernel in report["kernels"])
    assert report["seconds"] == pytest.approx(total)
    assert report["ceilings"]["flops"] > 1e8


def test_what_takes_longest_comes_first(report):
    times = [kernel["count"] * kernel["seconds"] for kernel in report["kernels"]]
    assert times == sorted(times, reverse=True)


def test_kernels_for_another_machine_are_modelled(call, model):
    target = json.dumps({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"})
    result = call("show", model, "--kernels", "--target", target, "--json")
    report = json.loads(result.stdout)
    assert report["ceilings"] is report["roofline_seconds"] is None
    for kernel in report["kernels"]:
        assert not kernel["measured"]
        assert kernel["seconds"] == kernel["modelled_seconds"] > 0
        assert kernel["roofline"] is kernel["spread"] is None
    text = call("show", model, "--kernels", "--target", target).stdout
    assert "modelled for another machine" in text


def test_scalar_code_is_reported(call, model, monkeypatch):
    """Whatever the code has: here a schedule that promises more than any code holds."""
    from tvm_rammer.backend.cpu.timing import examine
    from tvm_rammer.kernel.constraints import Constraint, Vectors
    from tvm_rammer.runtime import kernel_report

    too_much = Constraint(("lane",), Vectors(multiply_add=4096))
    monkeypatch.setattr(kernel_report, "constraint_of", lambda body: too_much)
    monkeypatch.setattr(
        examine, "vectors_of_jobs", lambda compiled: [Vectors()] * len(compiled.jobs)
    )
    text = call("show", model, "--kernels").stdout
    assert "missed by 3 operators: scalar code" in text


# Bad input


def test_a_library_has_no_kernels_to_take_apart(refused, library):
    assert refused("show", library, "--kernels") == (
        f"error: {library}: a library holds no kernels to take apart; give --kernels the model"
    )


def test_a_plan_has_no_kernels_to_take_apart(call, refused, library, tmp_path):
    (tmp_path / "plan.json").write_text(call("show", library, "--json").stdout)
    assert refused("show", "plan.json", "--kernels") == (
        "error: plan.json: a plan holds no kernels to take apart; give --kernels the model"
    )


@pytest.mark.parametrize(("option", "value"), [("policy", "sequential"), ("form", "per-op")])
def test_options_of_the_plan_are_refused(refused, model, option, value):
    assert refused("show", model, "--kernels", f"--{option}", value) == (
        f"error: --{option} does not change the kernels; leave it out with --kernels"
    )


def test_pictures_are_refused(refused, model):
    assert refused("show", model, "--kernels", "--svg", "p.svg") == (
        "error: --svg draws a plan; leave it out with --kernels"
    )


def test_a_measured_plan_is_refused(refused, model):
    assert refused("show", model, "--kernels", "--measured") == (
        "error: --measured runs a plan; leave it out with --kernels"
    )


def test_a_missing_model(refused):
    assert refused("show", "no.onnx", "--kernels") == (
        "error: no.onnx: no such file; give the path of a model"
    )


def test_what_no_template_takes_is_named(call, tmp_path):
    """A scatter runs as it is written, and the report says so."""
    node = helper.make_node("ScatterElements", ["x", "rows", "new"], ["scattered"], axis=0)
    x, new, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (6, 4)), ("new", (2, 4)), ("y", (6, 4)))
    )
    rows = numpy_helper.from_array(np.array([[4] * 4, [0] * 4]), "rows")
    nodes = [node, helper.make_node("Relu", ["scattered"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x, new], [y], [rows])
    path = tmp_path / "scatter.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    report = json.loads(call("show", path, "--kernels", "--json").stdout)
    rules = {kernel["operator"]: kernel["rule"] for kernel in report["kernels"]}
    assert rules == {"scatter_elements": "untouched", "relu": "elementwise"}
    assert report["fallback_operators"] == 1
    shown = call("show", path, "--kernels").stdout
    assert "scatter_elements" in shown and "untouched" in shown
