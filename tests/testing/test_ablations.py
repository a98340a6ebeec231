from __future__ import annotations

import json
from dataclasses import asdict

import ablations
import pytest
from bench.study import BARRIERS, Study, study, veus
from click.testing import CliRunner

from tvm_rammer.schedule import POLICIES
from tvm_rammer.testing.models import get_model
from tvm_rammer.typed_json import read_as


def test_unknown_names_suggest_the_nearest() -> None:
    result = CliRunner().invoke(ablations.main, ["--models", "alexnett"])
    assert result.output == "Error: there is no model 'alexnett'; did you mean 'alexnet'?\n"


@pytest.mark.slow
def test_a_study_has_all_plans() -> None:
    found = study(get_model("recommender").tiny(), 0.1, 0.0)
    assert {*POLICIES, "auto", BARRIERS} <= set(found.plans)
    assert found.num_veus == 1 or veus(1) in found.plans
    assert found.dispatch_ns is not None and found.dispatch_ns > 0
    assert found.kernels is None or found.kernels.milliseconds > 0
    assert found.roofline.milliseconds > 0 and found.roofline.quiet > 0
    for ratio in (found.roofline.ratio, found.roofline.side_by_side):
        assert 0 < ratio[1] <= ratio[0] <= ratio[2]
    assert found.slowest and all(slow.milliseconds > 0 for slow in found.slowest)
    assert read_as(Study, json.loads(json.dumps(asdict(found)))) == found
    for plan in found.plans.values():
        assert plan.milliseconds > 0
        assert plan.utilisation_measured is None or 0 < plan.utilisation_measured <= 1
