"""How the pipeline is called: by its name, with options, with and without a target."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from close import assert_outputs_close
from small_graphs import TARGET, compiled, run
from tvm import relax

import tvm_rammer
from tvm_rammer.errors import DeviceError, InputError, PlanError
from tvm_rammer.frontend import load_model
from tvm_rammer.options import Options
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing import models
from tvm_rammer.testing.reference import random_inputs

FORMS = ("program", "wavefront", "per-op")


@pytest.mark.parametrize("name", ["lstm_8x8x256", "mixture_of_experts"])
def test_the_pipelines_name_is_enough(name):
    model = models.MODELS[name].tiny()
    built = relax.build(load_model(model).module, TARGET, relax_pipeline="rammer")
    inputs = random_inputs(model)
    assert_outputs_close(run(built, inputs.values()), run_onnxruntime(model, inputs))


@pytest.mark.filterwarnings("ignore::tvm_rammer.machine.OversubscriptionWarning")
@pytest.mark.parametrize("policy", ["sequential", "wavefront"])
@pytest.mark.parametrize("num_veus", [1, 2, 4])
def test_options(policy, num_veus):
    model = models.lstm(2, 2, 16)
    ours = tvm_rammer.pipeline(policy=policy, num_veus=num_veus, oversubscribe=True)
    built = relax.build(load_model(model).module, TARGET, relax_pipeline=ours)
    inputs = random_inputs(model)
    assert_outputs_close(run(built, inputs.values()), run_onnxruntime(model, inputs))


def test_options_through_the_pipelines_name():
    pipeline = relax.get_pipeline("rammer", form="per-op")
    built = relax.build(load_model(models.lstm(1, 1, 16)).module, TARGET, relax_pipeline=pipeline)
    assert isinstance(built, tvm.runtime.Executable)


def test_without_a_target_this_machine_is_used_and_said():
    model = models.lstm(1, 2, 16)
    with pytest.warns(UserWarning, match=r"^no target given: compiling for this machine, ") as said:
        built = relax.build(load_model(model).module, relax_pipeline="rammer")
    assert TARGET.attrs["mcpu"] in str(said[0].message)
    inputs = random_inputs(model)
    assert_outputs_close(run(built, inputs.values()), run_onnxruntime(model, inputs))


def test_a_target_of_the_context_is_used_and_nothing_said(recwarn):
    compiled(load_model(models.lstm(1, 1, 16)).module)
    assert not [w for w in recwarn.list if "no target" in str(w.message)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["lstm_8x8x256", "mixture_of_experts"])
def test_a_second_run_changes_nothing(name, form):
    once = compiled(load_model(models.MODELS[name].tiny()).module, form=form)
    with TARGET:
        twice = tvm_rammer.pipeline(form=form)(once)
    modules = [mod.attrs["external_mods"] for mod in (once, twice)]
    assert all(a.same_as(b) for a, b in zip(*modules, strict=True))
    # A runtime.Module has no structure to compare.
    once, twice = (mod.without_attr("external_mods") for mod in (once, twice))
    tvm.ir.assert_structural_equal(twice, once)


def test_the_model_that_was_given_stays_as_it_was():
    mod = load_model(models.lstm(2, 2, 16)).module
    before = tvm_ffi.structural_hash(mod)
    compiled(mod)
    assert tvm_ffi.structural_hash(mod) == before


def test_unknown_options_are_refused():
    with pytest.raises(InputError) as policy:
        tvm_rammer.pipeline(policy="fastest")
    known = "choose one of 'auto', 'estf', 'ios', 'locality', 'sequential', 'wavefront'"
    assert str(policy.value) == f"there is no policy 'fastest'; {known}"
    with pytest.raises(InputError) as form:
        tvm_rammer.pipeline(form="launch")
    known = "choose one of 'program', 'wavefront', 'per-op'"
    assert str(form.value) == f"there is no form 'launch'; {known}"


@pytest.mark.parametrize("tolerance", [-1, True, float("nan"), float("inf"), 10**400, "none"])
def test_a_tolerance_that_is_no_number_of_at_least_0_is_refused(tolerance):
    with pytest.raises(InputError) as refused:
        tvm_rammer.pipeline(winograd_tolerance=tolerance)
    assert str(refused.value) == (
        f"winograd_tolerance is {tolerance!r}: "
        "it must be a number of at least 0, which turns Winograd off"
    )


@pytest.mark.parametrize("given", [1, "no", None])
def test_oversubscribe_is_yes_or_no(given):
    with pytest.raises(InputError) as refused:
        tvm_rammer.pipeline(oversubscribe=given)
    assert str(refused.value) == f"oversubscribe is {given!r}: it must be True or False"


@pytest.mark.parametrize("seconds", [-1, True, float("nan"), float("inf"), 2_000_001, "never"])
def test_a_wait_limit_that_is_no_number_of_seconds_is_refused(seconds):
    with pytest.raises(InputError) as refused:
        tvm_rammer.pipeline(wait_limit=seconds)
    assert str(refused.value) == (
        f"wait_limit is {seconds!r}: it must be a number of seconds from 0, which waits for ever, "
        "to 2,000,000"
    )


def test_a_limit_of_memory_that_cannot_be_is_refused():
    with pytest.raises(InputError) as refused:
        tvm_rammer.pipeline(max_arena_bytes=0)
    assert str(refused.value) == ("max_arena_bytes is 0: it must be a whole number of at least 1")


@pytest.mark.parametrize("policy", ["auto", "wavefront"])
def test_a_limit_of_memory_holds_or_is_an_error(policy):
    mod = load_model(models.lstm(2, 2, 16)).module
    (free,) = tvm_rammer.build(mod, policy=policy).programs.values()
    (kept,) = tvm_rammer.build(
        mod, policy=policy, max_arena_bytes=free.arena_bytes
    ).programs.values()
    assert kept.arena_bytes <= free.arena_bytes
    with pytest.raises(PlanError, match=r"^rammer_region0: max_arena_bytes is 1, and the "):
        tvm_rammer.build(mod, policy=policy, max_arena_bytes=1)


def test_numpys_integers_are_integers():
    options = Options(num_veus=np.int64(2), max_arena_bytes=np.int32(1 << 20))
    assert [type(n) for n in (options.num_veus, options.max_arena_bytes)] == [int, int]


def test_an_interruption_stays_one():
    """Passes are called through TVM's C++, which knows few errors."""

    @tvm.transform.module_pass(opt_level=0)
    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tvm.transform.Sequential([interrupted])(tvm.IRModule())


def test_a_number_of_veus_that_cannot_be_is_refused():
    mod = load_model(models.lstm(1, 1, 16)).module
    with pytest.raises(InputError, match=r"^num_veus is 0: it must be a whole number of at least"):
        tvm_rammer.pipeline(num_veus=0)
    with pytest.raises(DeviceError, match=r"^num_veus is 1000, but .* has \d+ hardware thread"):
        compiled(mod, num_veus=1000)


def test_steps_that_share_a_weight_keep_it_once():
    """As importers write a recurrent network: the weight is transposed anew in every step."""
    weight = relax.const(np.ones((64, 64), "float32"))
    x = relax.Var("x", relax.TensorType((1, 64), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            state = x
            for _ in range(4):
                turned = builder.emit(relax.op.permute_dims(weight))
                product = builder.emit(relax.op.matmul(state, turned))
                state = builder.emit(relax.op.tanh(product))
            result = builder.emit_output(state)
        builder.emit_func_output(result)
    library = tvm_rammer.build(builder.get(), policy="sequential", num_veus=1)
    assert "constants 16.0 KiB" in str(library.report)
