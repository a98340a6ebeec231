"""A back end from outside of the package serves whoever asks for it, in every step of a build."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from outputs_of import outputs

import tvm_rammer
from tvm_rammer.backend import register_backend, registry
from tvm_rammer.backend.cpu.cpu_backend import CpuBackend
from tvm_rammer.testing.models import get_model

#: Seconds of a signal, so that no policy wants two vEUs to wait for each other, and of a launch.
DEAR = 1.0


class DearSignals(CpuBackend):
    """Processors that nobody can time, and whose cores hear of each other, and of a run, late."""

    name = "dear-signals"
    kinds = ()
    stopwatch = None

    def vdevice(self, target, num_veus=None, oversubscribe=False):
        device = super().vdevice(target, num_veus, oversubscribe)
        return replace(device, name="dear", kind=self.name)

    def costs(self, vdevice):
        return replace(super().costs(vdevice), point_to_point=DEAR, launch=DEAR)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    register_backend(DearSignals())


def test_its_costs_decide_and_its_code_runs():
    model = get_model("recommender").tiny()
    options = {"num_veus": 2, "oversubscribe": True}
    library = tvm_rammer.build(model, backend="dear-signals", **options)
    plain = tvm_rammer.build(model, policy="sequential", **options)
    (program,) = library.programs.values()
    (decision,) = library.description.decisions.values()
    assert not any(task.waits for _, _, task in program.tasks())
    assert decision.note == "not measured: the back end 'dear-signals' times nothing"
    assert library.report.vdevice == "dear"
    (got,), (want,) = (outputs(each) for each in (library, plain))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_its_costs_are_in_the_explanation():
    model = get_model("recommender").tiny()
    options = {"num_veus": 2, "oversubscribe": True, "policy": "sequential"}
    library = tvm_rammer.build(model, backend="dear-signals", **options)
    (explanation,) = library.description.explanations.values()
    assert explanation.predicted > DEAR
    assert library.report.regions[0].explanation.predicted > DEAR
