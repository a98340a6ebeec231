"""A plan file that was edited is refused, and the place is named, or it is safe by definition."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from fuzzing.edits import edited
from fuzzing.plans import judge
from rprogram.oracle import is_safe
from tvm import relax

import tvm_rammer
from tvm_rammer.commands.plan_file import read_plan
from tvm_rammer.errors import PlanError


def branches() -> Any:
    """Three branches of an image, put side by side: parts of a buffer, and waits."""
    x = relax.Var("x", relax.TensorType((1, 8, 8, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            found = [relax.op.exp(x), relax.op.nn.softmax(x), relax.op.sqrt(relax.op.abs(x))]
            joined = builder.emit(relax.op.concat([builder.emit(each) for each in found], -1))
            builder.emit_output(relax.op.nn.softmax(joined))
            last = builder.emit_output(relax.op.nn.softmax(joined, 1))
        builder.emit_func_output(last)
    return builder.get()


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """What ``tvm-rammer show --json`` prints, less what nobody reads back."""
    content = tvm_rammer.build(branches(), policy="wavefront", num_veus=2).description.content
    return json.loads(json.dumps(content))


def refusal(document: Any, tmp_path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    with pytest.raises(PlanError) as caught:
        read_plan(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    return text.removeprefix(f"{path}: ")


def set_at(document: Any, *path: Any) -> Any:
    """A copy with the last of the path at the place before it."""
    copy = json.loads(json.dumps(document))
    *parents, key, value = path
    inner = copy
    for parent in parents:
        inner = inner[parent]
    inner[key] = value
    return copy


DAMAGED = "not a plan that `tvm-rammer show --json` wrote, or damaged: "
#: The way to an interface, and to a size of its first input.
INTERFACE = ("interfaces", 0)
FIRST = (*INTERFACE, "inputs", 0, "shape", 0)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("plans", []), "plans is of none, programs of {name}; list the same regions"),
        (("arenas", {}), "arenas is of none, programs of {name}; list the same regions"),
        (("plans", 0, "region", "x"), "plans is of x, programs of {name}; list the same regions"),
        (("num_veus", 0), "num_veus is 0; it must be at least 1"),
        (("num_veus", "2"), 'num_veus is "2"; it must be an integer'),
        (
            ("interfaces", 0, "inputs", 0, "shape", 0, -1),
            "'x' has the shape (-1, 8, 8, 4); give it sizes from 0",
        ),
        (
            ("interfaces", 0, "inputs", 0, "shape", 0, None),
            "interfaces[0].inputs[0].shape[0] is null; it must be an integer",
        ),
        (("options", "policy", "best"), "options is none: there is no policy 'best'"),
        (("options", "form", []), "options.form is []; it must be one of 'program', 'wavefront'"),
        (("left_out", [{"operator": "x"}]), "left_out[0] lacks the key 'reason'; add it"),
        (("plans", 0, "explanation", "work", "much"), 'plans[0].explanation.work is "much"; it'),
        (("plans", 0, "explanation", None), "plans[0].explanation is null; it must be an object"),
        (("plans", 0, "decision", {}), "plans[0].decision lacks the key 'chosen'; add it"),
        (
            ("interfaces", 0, "direct", "inputs", ["0"]),
            'interfaces[0].direct.inputs[0] is "0"; it must be',
        ),
        (("interfaces", []), "interfaces is empty; list what the library takes and returns"),
        (("target", "nonsense"), "target: "),
    ],
)
def test_what_is_wrong_is_named(document, tmp_path, path, message):
    name = document["programs"][0]["name"]
    wanted = DAMAGED + message.replace("{name}", name)
    assert refusal(set_at(document, *path), tmp_path).startswith(wanted)


def test_a_plan_from_before_there_were_topologies_is_of_one_complex(document, tmp_path):
    old = json.loads(json.dumps(document))
    del old["costs"]["topology"]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(old))
    description = read_plan(path)
    assert description is not None
    assert description.costs.topology is None


def test_two_plans_of_one_name(document, tmp_path):
    twice = set_at(document, "programs", document["programs"] * 2)
    assert refusal(twice, tmp_path) == (DAMAGED + "programs has two of one name; give each its own")


def test_a_plan_is_named_by_its_place(document, tmp_path):
    assert refusal(set_at(document, "programs", 0, "veus", []), tmp_path) == (
        "programs[0]: the program has no vEU; give it at least one"
    )


def test_a_thousand_edits(document, tmp_path):
    verdicts = []
    for seed in range(1_000):
        changed, said = edited(document, Random(seed))
        try:
            verdicts.append(judge(changed, tmp_path / "plan.json", is_safe))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {said}") from error
    assert verdicts.count("refused") > 500
    assert verdicts.count("safe") > 20
