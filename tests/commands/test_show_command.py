"""``tvm-rammer show``: text, pictures, JSON that can be shown again, and what it refuses."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from tvm_rammer.region.library_content import FORMAT_VERSION


def plan(call, library):
    return json.loads(call("show", library, "--json").stdout)


def test_text_has_the_rtasks_and_a_timeline(call, library):
    text = call("show", library).stdout
    assert "rProgram rammer_region0, policy " in text
    assert "wave 0\n  vEU 0  #0  matmul" in text
    assert re.search("rammer_region0, [a-z]+, simulated:", text)


def test_json_has_the_plans_and_what_they_would_take(call, library):
    document = plan(call, library)
    (program,) = document["programs"]
    (simulated,) = document["simulated"]
    assert len(program["operators"]) == 3
    assert simulated["makespan_seconds"] >= simulated["lower_bound_seconds"] > 0


def test_what_json_printed_can_be_shown(call, library, tmp_path):
    (tmp_path / "plan.json").write_text(call("show", library, "--json").stdout)
    assert call("show", "plan.json").stdout == call("show", library).stdout


def test_all_pictures_at_once(call, library, tmp_path):
    result = call("show", library, "--html", "p.html", "--svg", "p.svg", "--trace", "t.json")
    assert result.exit_code == 0
    assert (tmp_path / "p.html").read_text().startswith("<!DOCTYPE html>")
    assert ElementTree.parse(tmp_path / "p.svg").getroot().tag.endswith("svg")
    names = {
        event["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    }
    assert "matmul" in names
    listed = [line.split() for line in result.stdout.splitlines()[-3:]]
    assert listed == [["html", "p.html"], ["trace", "t.json"], ["svg", "p.svg"]]


def test_a_run_is_measured(call, library, tmp_path):
    result = call("show", library, "--measured", "--html", "p.html")
    assert result.exit_code == 0, result.stderr
    assert re.search("rammer_region0, [a-z]+, measured:", result.stdout)
    assert re.search(r"measured +median run \S+ .s, with a stamp at both ends", result.stdout)
    page = (tmp_path / "p.html").read_text()
    assert "measured" in page and "simulated" in page
    (measured,) = json.loads(call("show", library, "--measured", "--json").stdout)["measured"]
    assert measured["program"] == "rammer_region0"
    assert measured["makespan_seconds"] > 0


# Bad input


def test_a_plan_cannot_be_run(call, refused, library, tmp_path):
    (tmp_path / "plan.json").write_text(call("show", library, "--json").stdout)
    assert refused("show", "plan.json", "--measured") == (
        "error: plan.json: a plan cannot be run; give --measured the model or a library"
    )
    assert refused("show", "plan.json", "--policy", "estf") == (
        "error: plan.json: is compiled already, --policy cannot change it; give the model instead"
    )
    assert refused("run", "plan.json") == (
        "error: plan.json: a plan holds no model to compile; give the model instead"
    )


def test_an_edited_plan_is_proved_again(call, refused, library, tmp_path):
    document = plan(call, library)
    document["programs"][0]["veus"][0].pop(0)
    (tmp_path / "plan.json").write_text(json.dumps(document))
    assert refused("show", "plan.json") == (
        "error: plan.json: programs[0]: tiles [0, 1) of operator 'matmul' do not run; "
        "run every tile once"
    )


def test_a_plan_with_a_wrong_field(call, refused, library, tmp_path):
    document = plan(call, library)
    document["programs"][0]["veus"][0][0]["start"] = "x"
    (tmp_path / "plan.json").write_text(json.dumps(document))
    assert refused("show", "plan.json") == (
        'error: plan.json: programs[0]: veus[0][0].start is "x"; it must be an integer'
    )


@pytest.mark.parametrize("missing", ["num_veus", "interfaces", "left_out"])
def test_a_plan_without_a_field(call, refused, library, tmp_path, missing):
    document = plan(call, library)
    del document[missing]
    (tmp_path / "plan.json").write_text(json.dumps(document))
    assert refused("show", "plan.json") == (
        "error: plan.json: not a plan that `tvm-rammer show --json` wrote, or damaged: "
        f"it lacks the key '{missing}'; add it"
    )


def test_the_beginning_of_a_plan(call, refused, library, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(plan(call, library))[:-100])
    line = refused("show", "plan.json")
    assert line.startswith(
        "error: plan.json: not a plan that `tvm-rammer show --json` wrote, or damaged: "
    )
    assert line.endswith("; write it again")
    (tmp_path / "plan.json").write_text(json.dumps({"format": FORMAT_VERSION}))
    assert refused("show", "plan.json") == (
        "error: plan.json: not a plan that `tvm-rammer show --json` wrote, or damaged: "
        "it lacks the key 'tvm'; add it"
    )


def test_neither_a_plan_nor_a_model(refused, tmp_path):
    (tmp_path / "list.json").write_text("[]")
    assert refused("show", "list.json") == (
        "error: list.json: not a module saved by tvm.ir.save_json, or damaged (no JSON object); "
        "save it again"
    )


def test_a_plan_of_another_format(call, refused, library, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(plan(call, library) | {"format": 99}))
    assert refused("show", "plan.json") == (
        f"error: plan.json: plan format 99, this version reads {FORMAT_VERSION}; "
        "write it again with `tvm-rammer show --json`"
    )


def test_nothing_planned_is_nothing_to_draw(refused, model):
    line = refused("show", model, "--form", "per-op", "--html", "p.html")
    assert line == f"error: {model}: nothing was planned, there is no timeline to draw"


def test_a_picture_that_cannot_be_written(refused, library):
    line = refused("show", library, "--svg", "no/p.svg")
    assert line == "error: no/p.svg: there is no folder no; make it first"


def test_what_is_shown_is_not_overwritten(refused, library):
    before = library.read_bytes()
    line = refused("show", library, "--html", library)
    assert line == f"error: {library}: --html would overwrite what is shown; give another file"
    assert library.read_bytes() == before


def test_two_pictures_are_two_files(refused, library):
    line = refused("show", library, "--html", "a.html", "--svg", "./a.html")
    assert line == "error: a.html: --svg would overwrite --html; give another file"
