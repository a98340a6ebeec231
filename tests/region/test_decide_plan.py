"""``auto`` is the default: it measures where it can, keeps what it found out, and says so."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_rammer
from tvm_rammer.backend.cpu import stopwatch
from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.region import decide_plan as module_under_test
from tvm_rammer.schedule import POLICIES
from tvm_rammer.schedule.decisions import Contender, Decision

needs_two_cores = pytest.mark.skipif(host_cpu().cores < 2, reason="plans for two vEUs")


@I.ir_module
class Towers:
    """Four independent products, so that every policy but ``sequential`` promises a gain."""

    @R.function
    def main(x: R.Tensor((1, 256), "float32"), w: R.Tensor((256, 4), "float32")):
        with R.dataflow():
            a = R.nn.softmax(R.matmul(x, w))
            b = R.nn.relu(R.matmul(R.add(x, x), w))
            c = R.tanh(R.matmul(R.multiply(x, x), w))
            d = R.sigmoid(R.matmul(R.exp(x), w))
            result = (a, b, c, d)
            R.output(result)
        return result


pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def measured(monkeypatch):
    """Lets the last plan win by half; the names of the plans of every measuring."""
    calls = []

    def times(module, signature, ids, plans, constants, race):
        calls.append([program.policy for program, _ in plans])
        assert all(program.arena_bytes >= 0 for program, _ in plans)
        return [*([1.0] * 9 for _ in plans[1:]), [0.5] * 9]

    monkeypatch.setattr(stopwatch, "plans", times)
    return calls


def decision(library) -> Decision:
    (found,) = library.description.decisions.values()
    return found


@needs_two_cores
def test_memory_is_planned_once_for_plans_of_one_program(measured, monkeypatch):
    """``per-op`` runs the program of ``sequential``, and one of those measured is chosen."""
    programs = []

    def finish(program):
        programs.append(program)
        return finish_program(program)

    finish_program = module_under_test.finish
    monkeypatch.setattr(module_under_test, "finish", finish)
    tvm_rammer.build(Towers, num_veus=2)
    assert len({id(program) for program in programs}) == len(programs)
    assert len(programs) == len(measured[0]) - 1


@needs_two_cores
def test_the_collector_of_garbage_is_as_it_was_before(measured):
    assert gc.isenabled()
    tvm_rammer.build(Towers, num_veus=2)
    assert gc.isenabled()
    gc.disable()
    try:
        tvm_rammer.build(Towers, num_veus=2)
        assert not gc.isenabled()
    finally:
        gc.enable()


@needs_two_cores
def test_the_winner_is_kept_for_the_next_build(measured):
    first = decision(tvm_rammer.build(Towers, num_veus=2))
    assert (first.how, first.chosen) == ("measured", measured[0][-1])
    library = tvm_rammer.build(Towers, num_veus=2)
    again = decision(library)
    assert len(measured) == 1
    assert (again.how, again.chosen) == ("stored", first.chosen)
    (program,) = library.programs.values()
    assert program.policy == first.chosen


@needs_two_cores
@pytest.mark.parametrize("max_arena_bytes", [None, 1 << 20])
def test_only_the_winner_is_planned_again(measured, monkeypatch, max_arena_bytes):
    """Under a limit of memory, too."""
    options = {"num_veus": 2, "max_arena_bytes": max_arena_bytes}
    first = decision(tvm_rammer.build(Towers, **options))
    planned = []

    def counted(policy):
        def place(*arguments):
            planned.append(policy.name)
            return policy(*arguments)

        return replace(policy, place=place)

    counting = {name: counted(policy) for name, policy in POLICIES.items()}
    monkeypatch.setattr(module_under_test, "policies", lambda: counting)
    assert decision(tvm_rammer.build(Towers, **options)).how == "stored"
    assert set(planned) == {first.chosen}


@needs_two_cores
def test_a_stored_baseline_that_does_not_fit_has_its_stand_in_again(measured, monkeypatch):
    """Others take its place where it needs more memory than there is."""

    def within(limit, graph, num_veus, costs, policies):
        assert set(policies) == set(POLICIES)
        return policies

    monkeypatch.setattr(module_under_test, "policies_within", within)
    stored = Decision("sequential", "measured", "it was", (Contender("sequential", 1e-3),))
    monkeypatch.setattr(module_under_test, "load_decision", lambda key: (stored, ""))
    library = tvm_rammer.build(Towers, num_veus=2, max_arena_bytes=1 << 20)
    assert decision(library).how == "stored"


@needs_two_cores
def test_another_number_of_veus_is_another_decision(measured):
    tvm_rammer.build(Towers, num_veus=2)
    tvm_rammer.build(Towers, num_veus=1)
    assert decision(tvm_rammer.build(Towers, num_veus=2)).how == "stored"
    assert len(measured) <= 2


@needs_two_cores
def test_a_doubtful_decision_is_not_kept(monkeypatch):
    def noisy(module, signature, ids, plans, constants, race):
        return [*([1.0] * 9 for _ in plans[1:]), [0.5, 2.0] * 4 + [0.5]]

    monkeypatch.setattr(stopwatch, "plans", noisy)
    for _ in range(2):
        assert decision(tvm_rammer.build(Towers, num_veus=2)).how == "measured"


@needs_two_cores
def test_a_decision_of_another_version_is_ignored_with_a_note(measured, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr("tvm_rammer.schedule.decisions.FORMAT_VERSION", 0)
        tvm_rammer.build(Towers, num_veus=2)
    found = decision(tvm_rammer.build(Towers, num_veus=2))
    assert found.how == "measured"
    assert found.note == "a stored decision of version 0.1.0/0 was ignored (this is 0.1.0/3)"


def test_for_another_machine_the_simulation_decides(measured):
    target = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}
    found = decision(tvm_rammer.build(Towers, target | {"num-cores": 4}))
    assert (found.how, measured) == ("simulated", [])
    assert found.note == "not measured: the target is not this machine"
    assert all(contender.measured is None for contender in found.contenders)


def test_more_veus_than_threads_are_not_measured(measured):
    count = host_cpu().threads + 1
    with pytest.warns(UserWarning, match="the plan is correct, but slow"):
        library = tvm_rammer.build(Towers, num_veus=count, oversubscribe=True)
    found = decision(library)
    assert found.note == (
        f"not measured: {count} vEUs are planned for, and this process has {count - 1}"
    )


def test_a_policy_that_the_user_chose_is_no_decision(measured):
    library = tvm_rammer.build(Towers, policy="estf")
    assert library.description.decisions == {}
    assert measured == []


@needs_two_cores
def test_per_op_runs_with_a_launch_for_each_operator(monkeypatch):
    def times(module, signature, ids, plans, constants, race):
        return [[0.5 if by_wave else 1.0] * 9 for _, by_wave in plans]

    monkeypatch.setattr(stopwatch, "plans", times)
    library = tvm_rammer.build(Towers, num_veus=2)
    assert decision(library).chosen == "per-op"
    reference = library.replan(policy="sequential")
    for got, want in zip(_outputs(library), _outputs(reference), strict=True):
        assert (got == want).all()


@needs_two_cores
def test_the_report_says_what_was_decided(measured):
    library = tvm_rammer.build(Towers, num_veus=2)
    chosen = decision(library).chosen
    (region,) = library.report.regions
    reasons = dict(region.reasons())
    assert reasons["policy"].startswith(
        f"{chosen} took 0.50 of the time of sequential (95 %: 0.50 to 0.50, 9 rounds) (measured in "
    )
    assert "critical path" in reasons["limit"]
    assert reasons["overlap"].startswith(f"{region.explanation.co_scheduled} of ")
    contender = Contender(**library.report.to_dict()["regions"][0]["decision"]["contenders"][0])
    assert contender.predicted > 0


def _outputs(library):
    import numpy as np

    x = np.linspace(-1, 1, 256, dtype=np.float32).reshape(1, 256)
    w = np.linspace(-1, 1, 1024, dtype=np.float32).reshape(256, 4)
    return [tensor.numpy() for tensor in library.create()(x, w)]


@I.ir_module
class Divisions:
    """Whole numbers divided by an input, and by what was computed from one."""

    @R.function
    def main(x: R.Tensor((4, 8), "int32"), y: R.Tensor((4, 8), "int32")):
        with R.dataflow():
            a = R.divide(x, y)
            b = R.floor_mod(x, R.add(y, y))
            c = R.floor_divide(R.max(x), R.max(y))
            result = (a, b, c)
            R.output(result)
        return result


@pytest.mark.parametrize("form", ["program", "wavefront", "per-op"])
def test_divisions_are_measured_on_zeros(form):
    """Where these are data, all whole numbers of a measurement are zeros."""
    library = tvm_rammer.build(Divisions, form=form)
    if form != "per-op":
        assert not decision(library).note
    x, y = (np.arange(1, 33, dtype="int32").reshape(4, 8) * factor for factor in (7, 3))
    quotient, rest, of_largest = (output.numpy() for output in library.create()(x, y))
    np.testing.assert_array_equal(quotient, x // y)
    np.testing.assert_array_equal(rest, x % (2 * y))
    assert of_largest == x.max() // y.max()
