"""A policy from outside of the package is planned with; what is wrong with one is named."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pytest
from bench.scaling import makespans
from bench.scaling_tables import policy_columns
from click.testing import CliRunner
from graphs import graph
from outputs_of import outputs

import tvm_rammer
from tvm_rammer.cli import main
from tvm_rammer.errors import InputError, PlanError
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import verify
from tvm_rammer.schedule import (
    CostModel,
    Placed,
    Placement,
    Policy,
    auto,
    choices,
    plan,
    register_policy,
)
from tvm_rammer.testing.models import get_model

registry = sys.modules["tvm_rammer.schedule.policies"]
CHAIN = graph(([], [(4, 10.0)]), ([0], [(4, 10.0)]), ([], [(2, 10.0)]))
DEVICE = VDevice("test", num_veus=2)
DEVICE_COSTS = CostModel.of(DEVICE)


def idlest(graph, num_veus, costs):
    """Operators in the order of the graph, each whole on the vEU that is free first."""
    free = [0.0] * num_veus
    ends = []
    veus = [[] for _ in range(num_veus)]
    for number, operator in enumerate(graph.operators):
        kernel = operator.candidates[0]
        ready = max((ends[before] for before in graph.predecessors[number]), default=0.0)
        veu = free.index(min(free))
        start = max(free[veu], ready + costs.point_to_point)
        free[veu] = start + kernel.num_tiles * kernel.tile_time
        ends.append(free[veu])
        veus[veu].append(Placed(number, 0, 0, kernel.num_tiles, graph.levels[number]))
    return Placement("idlest", tuple(map(tuple, veus)))


IDLEST = Policy("idlest", idlest, "whole operators, each where it starts first")


def changed(change):
    """The policy with its placement changed."""

    def place(*arguments):
        return change(idlest(*arguments))

    return replace(IDLEST, place=place)


def without_last(placement):
    return replace(placement, veus=(placement.veus[0][:-1], placement.veus[1]))


def with_last_twice(placement):
    first, second = placement.veus
    return replace(placement, veus=((*first, first[-1]), second))


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry._find_others.cache_clear()
    yield
    registry._find_others.cache_clear()


def refused(policy):
    register_policy(policy)
    with pytest.raises(PlanError) as error:
        plan(CHAIN, DEVICE, policy.name)
    return str(error.value)


def test_a_model_is_planned_by_it_and_right():
    register_policy(IDLEST)
    model = get_model("recommender").tiny()
    options = {"num_veus": 2, "oversubscribe": True}
    library = tvm_rammer.build(model, policy="idlest", **options)
    plain = tvm_rammer.build(model, policy="sequential", **options)
    (program,) = library.programs.values()
    assert program.policy == "idlest"
    (got,), (want,) = (outputs(each) for each in (library, plain))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_its_plans_are_verified():
    register_policy(IDLEST)
    assert verify(plan(CHAIN, DEVICE, "idlest")) is None


def test_whoever_lists_policies_knows_it():
    register_policy(IDLEST)
    assert choices()[-1] == "idlest"
    shown = CliRunner().invoke(main, ["compile", "--help"]).output
    assert "idlest: whole operators, each where it starts first" in " ".join(shown.split())
    _, decision = auto(CHAIN, 2, DEVICE_COSTS, registry.policies())
    assert "idlest" in [contender.name for contender in decision.contenders]


def test_benchmarks_compare_it_with_ours():
    register_policy(IDLEST)
    found = makespans([CHAIN], DEVICE, 2)
    assert found["idlest"] > 0
    scaling = SimpleNamespace(makespans={"2": found})
    assert "idlest" in policy_columns(scaling)


def test_what_it_says_of_its_limits_is_why_it_is_left_out():
    def limit(graph, num_veus):
        return f"it is for one vEU, not for {num_veus}" if num_veus > 1 else ""

    register_policy(replace(IDLEST, limit=limit))
    known = registry.policies()
    assert auto(CHAIN, 2, DEVICE_COSTS, known)[1].left_out == (
        ("idlest", "it is for one vEU, not for 2"),
    )
    assert auto(CHAIN, 1, DEVICE_COSTS, known)[1].left_out == ()
    assert plan(CHAIN, DEVICE, "idlest").policy == "idlest"


def test_other_packages_offer_theirs_by_entry_points(monkeypatch):
    entry = SimpleNamespace(name="mine", value="package:make", load=lambda: lambda: IDLEST)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry])
    assert plan(CHAIN, DEVICE, "idlest").policy == "idlest"


def test_an_entry_point_that_cannot_be_loaded_is_named(monkeypatch):
    def load():
        raise ImportError("no package here")

    entry = SimpleNamespace(name="mine", value="package:make", load=load)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry])
    with pytest.raises(InputError) as error:
        plan(CHAIN, DEVICE, "idlest")
    assert str(error.value) == (
        "the policy 'mine' of package:make cannot be loaded (ImportError: no package here): "
        "mend or uninstall its package"
    )
    assert plan(CHAIN, DEVICE, "wavefront"), "who does not use it has no error"


def test_the_name_of_its_plans_is_its_own():
    register_policy(replace(IDLEST, name="other"))
    assert plan(CHAIN, DEVICE, "other").policy == "other"


def test_an_operator_that_is_dropped_is_refused_with_its_name():
    assert refused(changed(without_last)) == (
        f"the policy 'idlest' ({__name__}.changed.<locals>.place) made a plan that is wrong: "
        "tiles [0, 2) of operator 'op2' do not run; run every tile once"
    )


def test_an_operator_that_runs_twice_is_refused_with_its_name():
    message = refused(changed(with_last_twice))
    assert message.startswith(
        f"the policy 'idlest' ({__name__}.changed.<locals>.place) made a plan that is wrong: "
        "tile 0 runs twice, in "
    )
    assert message.endswith("; run every tile once")


def test_auto_does_not_choose_a_wrong_plan():
    """A plan of which half is missing promises most."""
    register_policy(changed(without_last))
    with pytest.raises(PlanError, match="the policy 'idlest' "):
        plan(CHAIN, DEVICE)


def test_an_order_that_the_graph_forbids_is_refused_with_its_name():
    def backwards(placement):
        return replace(placement, veus=tuple(tuple(reversed(veu)) for veu in placement.veus))

    register_policy(changed(backwards))
    with pytest.raises(PlanError) as error:
        plan(CHAIN, replace(DEVICE, num_veus=1), "idlest")
    assert str(error.value).startswith(
        f"the policy 'idlest' ({__name__}.changed.<locals>.place) made a plan that is wrong: "
        "operator 'op1' in wave 1 is placed before operators that it needs"
    )


def test_a_policy_that_raises_is_named():
    def raising(placement):
        raise ValueError("no idea")

    assert refused(changed(raising)) == (
        f"the policy 'idlest' ({__name__}.changed.<locals>.place) raised ValueError: no idea; "
        "mend its package, or choose another policy"
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda placement: None, "'NoneType' and no Placement"),
        (
            lambda placement: replace(placement, veus=placement.veus[:1]),
            "a placement for 1 vEUs, where there are 2",
        ),
        (
            lambda placement: replace(placement, veus=((Placed(0, 0, 0, 4.0, 0),), ())),
            "Placed(operator=0, candidate=0, start=0, stop=4.0, wave=0) on vEU 0, which is no "
            "Placed of whole numbers",
        ),
        (
            lambda placement: replace(placement, veus=((Placed(3, 0, 0, 1, 0),), ())),
            "operator 3 of 3 on vEU 0",
        ),
        (
            lambda placement: replace(placement, veus=((Placed(1, 1, 0, 1, 0),), ())),
            "candidate 1 of 1 of operator 'op1'",
        ),
    ],
)
def test_what_is_no_placement_is_refused_with_its_name(change, problem):
    assert refused(changed(change)) == (
        f"the policy 'idlest' ({__name__}.changed.<locals>.place) returned {problem}; "
        "mend its package"
    )


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("auto", "tvm_rammer.schedule.auto"),
        ("per-op", "tvm_rammer.schedule.auto"),
        ("estf", "tvm_rammer.schedule.estf.estf"),
    ],
)
def test_a_name_that_is_taken_is_refused(name, home):
    with pytest.raises(InputError) as error:
        register_policy(replace(IDLEST, name=name))
    assert str(error.value) == (
        f"there is a policy {name!r} already, {home}: give {__name__}.idlest another name"
    )


def test_what_is_no_policy_is_refused():
    with pytest.raises(InputError) as error:
        register_policy(idlest)
    assert str(error.value) == (
        f"{__name__}.idlest is no policy: give register_policy a tvm_rammer.schedule.Policy"
    )


@pytest.mark.parametrize("text", ["", "two\nlines"])
def test_help_of_another_length_than_a_line_is_refused(text):
    with pytest.raises(InputError) as error:
        register_policy(replace(IDLEST, help=text))
    assert str(error.value) == (
        f"the help of the policy 'idlest' ({__name__}.idlest) is not one line"
    )
