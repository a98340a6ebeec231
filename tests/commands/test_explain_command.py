"""``tvm-rammer explain``: every plan that was considered, and what limits the one that was kept."""

from __future__ import annotations

import json

import pytest

from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.commands import explain
from tvm_rammer.schedule.decisions import Contender, Decision
from tvm_rammer.units import counted


def test_json_has_the_decision_and_its_reasons(call, model):
    document = json.loads(call("explain", model, "--json").stdout)
    (region,) = document["regions"]
    assert region["policy"] == region["decision"]["chosen"].replace("per-op", "sequential")
    names = {contender["name"] for contender in region["decision"]["contenders"]}
    assert {"sequential", "wavefront", "estf", "ios", "locality", "per-op"} == names
    assert region["explanation"]["operators"] == 3
    assert region["explanation"]["predicted"] > 0
    assert "launch" in {loss["cost"] for loss in region["losses"]}
    assert document["left_out"] == []


def test_text_has_every_plan_and_what_a_better_one_takes(call, model):
    text = call("explain", model, "--num-veus", 1).stdout
    assert text.startswith("rammer_region0  on 1 vEU: ")
    for word in ("per-op", "locality", "predicted", "policy", "limit", "better"):
        assert word in text
    assert "sooner by" in text
    assert "no operator was left out" in text


def test_what_was_not_measured_has_no_columns(call, model):
    target = json.dumps({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"})
    text = call("explain", model, "--target", target).stdout
    assert "plan         predicted\n" in text.replace(" \n", "\n")
    assert "not measured: the target is not this machine" in " ".join(text.split())


def test_a_plan_that_was_given_up_says_so():
    one = Contender("sequential", 1.0, 1.0, (1.0, 1.0, 1.0), 7)
    lost = Contender("estf", 0.9, 1.1, (1.1, 1.05, 1.15), 2)
    table = explain._contenders(Decision("sequential", "measured", "slower", (lost, one)))
    assert list(table.columns[4].cells) == [
        "1.050 to 1.150, given up after 2 rounds",
        "1.000 to 1.000",
    ]


def test_a_policy_that_was_asked_for_has_no_rivals(call, model):
    text = call("explain", model, "--policy", "estf").stdout
    assert f"rammer_region0  on {counted(host_cpu().cores, 'vEU')}: estf" in text
    assert "of sequential" not in text


def test_a_library_knows_why_and_so_does_its_plan(call, library, tmp_path):
    text = call("explain", library).stdout
    assert "limit" in text
    (tmp_path / "plan.json").write_text(call("show", library, "--json").stdout)
    assert call("explain", "plan.json").stdout == text


def test_without_a_plan(call, model):
    assert call("explain", model, "--form", "per-op").stdout.startswith("nothing was planned")


@pytest.mark.parametrize("option", ["--policy", "--num-veus"])
def test_options_for_what_is_compiled_already(refused, library, option):
    line = refused("explain", library, option, "1")
    assert line == (
        f"error: {library}: is compiled already, {option} cannot change it; give the model instead"
    )
