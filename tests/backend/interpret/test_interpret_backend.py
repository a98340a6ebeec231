"""Plans that are interpreted compute what the code of processors computes, in any interleaving."""

from __future__ import annotations

import numpy as np
import pytest
from fuzzing.random_graphs import SHAPES
from fuzzing.random_models import random_model
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_rammer
from tvm_rammer.backend.interpret import interleaving, runs
from tvm_rammer.errors import InputError
from tvm_rammer.schedule import POLICIES
from tvm_rammer.testing.models import get_model


def interpreted(model, **options):
    return tvm_rammer.build(model, backend="interpret", **options)


def outputs(library, seed=0):
    """What an instance computes of random inputs."""
    module = library.create()
    shapes, dtypes = module.get_input_info()
    random = np.random.default_rng(seed)
    for name, shape in shapes.items():
        values = random.standard_normal(shape) if "float" in dtypes[name] else np.zeros(shape)
        module.set_input(name, values.astype(dtypes[name]))
    module.run()
    return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


def assert_alike(left, right):
    for mine, theirs in zip(left, right, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["recommender", "lstm_8x8x256", "squeezenet", "bert_base"])
def test_models_compute_what_processors_compute(name):
    model = get_model(name).tiny()
    assert_alike(outputs(interpreted(model)), outputs(tvm_rammer.build(model, policy="sequential")))


@settings(max_examples=5)
@given(st.integers(0, 1 << 16), st.sampled_from(SHAPES), st.sampled_from(sorted(POLICIES)))
def test_random_models_compute_what_processors_compute(seed, shape, policy):
    model = random_model(seed, shape, operators=12)
    plain = tvm_rammer.build(model, policy="sequential", num_veus=1)
    for mine, theirs in zip(
        outputs(interpreted(model, policy=policy)), outputs(plain), strict=True
    ):
        scale = np.sqrt(np.mean(np.square(theirs)))
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4 * scale)


@pytest.fixture(scope="module")
def library():
    return interpreted(get_model("lstm_8x8x256").tiny(), policy="wavefront")


def test_every_interleaving_gives_the_same_bits(library):
    expected = outputs(library)
    for seed in range(8):
        with interleaving(seed):
            assert [a.tobytes() for a in outputs(library)] == [a.tobytes() for a in expected]


def test_runs_differ_unless_a_seed_is_given(library, monkeypatch):
    orders = []
    unchanged = runs.interpret_numeric

    def noted(program, order, *arguments):
        orders.append(tuple(order))
        return unchanged(program, order, *arguments)

    monkeypatch.setattr(runs, "interpret_numeric", noted)
    for _ in range(2):
        outputs(library)
    with interleaving(3):
        outputs(library)
        outputs(library)
    assert len(orders) == 4
    assert orders[0] != orders[1]
    assert orders[2] == orders[3]


def test_another_plan_needs_no_new_code(library):
    again = library.replan(policy="sequential", num_veus=64)
    assert again.description.num_veus == 64
    assert_alike(outputs(again), outputs(library))
    assert again.programs.keys() == library.programs.keys()
    assert all(program.num_veus == 64 for program in again.programs.values())


def test_operators_are_cut_into_tiles():
    library = interpreted(get_model("recommender").tiny(), policy="sequential")
    (program,) = library.programs.values()
    assert program.num_tasks > 2 * len(program.operators)


@I.ir_module
class OneOperator:
    @R.function
    def main(x: R.Tensor((4, 5), "float32")) -> R.Tensor((4, 5), "float32"):
        return R.nn.softmax(x)


def test_what_is_in_no_region_runs_too():
    library = interpreted(OneOperator)
    assert not library.programs
    (got,) = outputs(library)
    np.testing.assert_allclose(got.sum(1), np.ones(4), rtol=1e-6)


def test_the_relax_vm_runs_it():
    library = interpreted(get_model("recommender").tiny())
    machine = relax.VirtualMachine(library.executable, library.description.backend.device(None))
    module = library.create()
    values = [module.get_input(k) for k in range(module.get_num_inputs())]
    module.run()
    got = machine["main"](*values)
    np.testing.assert_array_equal(got.numpy(), module.get_output(0).numpy())


# What it cannot do


def test_it_is_not_written_to_a_file(library, tmp_path):
    path = tmp_path / "model.so"
    with pytest.raises(InputError) as refused:
        library.export_library(path)
    assert str(refused.value) == (
        f"{path}: the back end 'interpret' runs in the process that builds only; build without it "
        "for a library that can be written"
    )
    assert not path.exists()


def test_it_has_one_form():
    with pytest.raises(InputError) as refused:
        interpreted(OneOperator, form="per-op")
    assert str(refused.value) == (
        "the back end 'interpret' makes no kernels of form 'per-op': choose 'program'"
    )


def test_it_profiles_nothing(library):
    with pytest.raises(InputError) as refused:
        library.create().profile()
    assert str(refused.value) == (
        "the back end 'interpret' profiles nothing; build for another one"
    )


def test_plans_are_simulated_and_say_why():
    library = interpreted(get_model("recommender").tiny())
    (decision,) = library.description.decisions.values()
    assert decision.how == "simulated"
    assert decision.note == "not measured: the back end 'interpret' times nothing"


def test_a_replan_keeps_its_back_end(library):
    with pytest.raises(InputError) as refused:
        library.replan(backend="cpu")
    assert str(refused.value) == "another back end needs a build of its own"
