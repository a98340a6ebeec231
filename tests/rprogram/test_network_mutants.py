"""``verify`` and the oracle agree on mutants of the plans of real networks."""

import numpy as np
import pytest
from fuzzing.mutants import MUTATIONS
from rprogram.test_mutants import assert_agreement
from stress.compiled_regions import Source

from tvm_rammer.frontend import load_model
from tvm_rammer.rprogram import RProgram
from tvm_rammer.testing.models import light, lstm

MUTANTS_PER_CLASS = 4


@pytest.fixture(scope="module")
def plans() -> dict[str, RProgram]:
    """Waits cost nothing to the policies: what this machine says of them is no matter."""
    models = {"LSTM": lstm(layers=4, steps=3, hidden=256), "GoogLeNet": light("inception_v1")}
    sources = {name: Source.of_module(load_model(model).module) for name, model in models.items()}
    return {
        f"{name}, {policy}": source.plan(policy, 3)
        for name, source in sources.items()
        for policy in ("sequential", "wavefront")
    }


@pytest.mark.parametrize("policy", ["sequential", "wavefront"])
@pytest.mark.parametrize("network", ["LSTM", "GoogLeNet"])
def test_mutants_of_networks(plans, network, policy):
    plan = plans[f"{network}, {policy}"]
    assert assert_agreement(plan, network)
    rng = np.random.default_rng(len(plan.operators))
    faults = 0
    for name, mutation in MUTATIONS.items():
        drawn = [mutant for _ in range(50) if (mutant := mutation(plan, rng)) is not None]
        # The LSTM concatenates nothing.
        assert len(drawn) >= MUTANTS_PER_CLASS or (name, network) == ("moved part", "LSTM"), name
        for number, mutant in enumerate(drawn[:MUTANTS_PER_CLASS]):
            faults += not assert_agreement(mutant, (network, policy, name, number))
    assert faults >= 2 * MUTANTS_PER_CLASS
