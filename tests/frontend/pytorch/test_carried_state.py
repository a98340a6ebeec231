"""What a program keeps from one run to the next is kept by an instance of the compiled model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

torch = pytest.importorskip("torch")

from torch_programs import floats  # noqa: E402

import tvm_rammer  # noqa: E402
from tvm_rammer.errors import InputError  # noqa: E402

STEPS = [(floats(1, 2, 1, 4), torch.tensor([place])) for place in (3, 0, 7, -1, 3)]


class Kept(torch.nn.Module):
    """Keys of a decoder, a count, a weight that grows, and an output that is a state too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 8, 4), persistent=False)
        self.register_buffer("count", torch.tensor([5]))
        self.grown = torch.nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.keys[:, :, place] = x
        self.count.add_(1)
        self.grown.mul_(1.5)
        return self.keys.sum(2) * self.grown, self.count * 1


class Shifted(torch.nn.Module):
    """A window over the past, as voices are recognised by; it is returned as well."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("past", floats(1, 2, 3, 4))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.past.copy_(torch.cat([self.past[:, :, 1:], x], 2))
        return self.past.clone(), x + place


class Cache:
    """Keys that no module owns, as caches of transformers are."""

    def __init__(self) -> None:
        self.keys = torch.zeros(1, 2, 8, 4)

    def update(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(2, place % 8, x)
        return self.keys


class Beside(torch.nn.Module):
    """A module that registers what its cache has: to an export it is a buffer and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.register_buffer("keys", self.cache.keys, persistent=False)

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.cache.update(x, place).sum(2), self.cache.keys * 1)


MODELS: list[Callable[[], Any]] = [Kept, Shifted, Beside]


def exported(model: Callable[[], Any]) -> Any:
    return torch.export.export(model().eval(), STEPS[0], strict=False)


def built(program: Any, **options: Any) -> Any:
    return tvm_rammer.build(program, policy="wavefront", num_veus=2, **options)


def assert_steps(instance: Any, program: Any) -> None:
    """An instance goes on as the program does."""
    eager = copy.deepcopy(program).module()
    for step in STEPS:
        found = instance(*(each.numpy() for each in step))
        for got, want in zip(found, eager(*step), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


@pytest.mark.parametrize("form", ["program", "wavefront", "per-op"])
@pytest.mark.parametrize("model", MODELS)
def test_every_run_goes_on_where_the_last_one_ended(model, form):
    program = exported(model)
    library = built(program, form=form)
    assert (library.description.interfaces[0].direct is None) == (form == "per-op")
    instance, other = library.create(), library.create()
    assert_steps(instance, program)
    assert_steps(other, program)
    instance.reset_state()
    assert_steps(instance, program)


@pytest.mark.parametrize("model", MODELS)
def test_a_library_that_was_written_keeps_state(model, tmp_path):
    program = exported(model)
    library = tvm_rammer.load(built(program).export_library(tmp_path / "kept.so"))
    assert_steps(library.create(), program)


def test_another_plan_keeps_the_same_state():
    program = exported(Kept)
    assert_steps(built(program).replan(policy="sequential", num_veus=1).create(), program)


def test_the_program_itself_stays_as_it_was():
    program = exported(Kept)
    before = {name: value.clone() for name, value in program.state_dict.items()}
    built(program, check=True)
    assert set(program.constants) == {"keys"} and not program.constants["keys"].any()
    assert before.keys() == program.state_dict.keys() == {"count", "grown"}
    assert all(torch.equal(program.state_dict[name], value) for name, value in before.items())


def test_states_are_no_inputs_and_no_outputs():
    library = built(exported(Kept))
    said = library.description
    assert [info.name for info in said.inputs] == ["x", "place"]
    assert [info.shape for info in said.outputs] == [(1, 2, 4), (1,)]
    states = {state.tensor.name: state.zero for state in said.states}
    assert states == {"keys": True, "count": False, "grown": False}
    instance = library.create()
    assert instance.get_num_inputs() == 2 and instance.get_num_outputs() == 2
    with pytest.raises(InputError, match="there is no input 'keys'; the model's inputs are 'x'"):
        instance.set_input("keys", np.zeros((1, 2, 8, 4), "float32"))


def test_state_can_be_read_and_written():
    instance = built(exported(Kept)).create()
    assert {name: tuple(value.shape) for name, value in instance.state.items()} == {
        "keys": (1, 2, 8, 4),
        "count": (1,),
        "grown": (4,),
    }
    instance.state["count"].copyfrom(np.array([40]))
    step = [each.numpy() for each in STEPS[0]]
    assert instance(*step)[1].numpy() == [41]
    assert instance.state["count"].numpy() == [41]
    np.testing.assert_array_equal(instance.state["keys"].numpy()[:, :, 3:4], step[0])


@pytest.mark.parametrize("form", ["program", "per-op"])
def test_what_is_timed_leaves_the_state_as_it_is(form):
    instance = built(exported(Kept), form=form).create()
    instance.benchmark(2, 2)
    if form == "program":
        instance.profile(3)
    assert instance.state["count"].numpy() == [5]
    assert instance(*(each.numpy() for each in STEPS[0]))[1].numpy() == [6]


def test_the_machine_of_tvm_takes_and_returns_state():
    """Behind the inputs and behind the outputs, in the order of the description."""
    library = built(exported(Kept))
    machine = relax.VirtualMachine(library.executable, tvm.cpu())
    states = [torch.zeros(1, 2, 8, 4), torch.tensor([5]), torch.ones(4)]
    names = [state.tensor.name for state in library.description.states]
    order = [("keys", "count", "grown").index(name) for name in names]
    given = [*STEPS[0], *(states[number] for number in order)]
    found = machine["main"](*(tvm.runtime.tensor(each.numpy()) for each in given))
    left = dict(zip(names, list(found)[2:], strict=True))
    assert left["count"].numpy() == [6]
    np.testing.assert_array_equal(left["grown"].numpy(), np.full(4, 1.5, "float32"))


class Half(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.full((4,), 0.5, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sum += x.to(torch.bfloat16)
        return self.sum.float()


def test_state_of_bfloat16():
    program = torch.export.export(Half(), (torch.ones(4),))
    instance = built(program).create()
    for expected in (1.5, 2.5):
        assert instance(np.ones(4, "float32"))[0].numpy().tolist() == [expected] * 4


class Attention(torch.nn.Module):
    """Keys and values of a decoder, of which a step replaces a row each; keys are read before."""

    def __init__(self, looks_back: bool = False) -> None:
        super().__init__()
        self.looks_back = looks_back
        self.register_buffer("keys", torch.zeros(1, 2, 8, 4), persistent=False)
        self.register_buffer("values", torch.zeros(1, 2, 8, 4), persistent=False)

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = self.keys.sum() if self.looks_back else 1
        self.keys[:, :, place] = x
        self.values[:, :, place] = x.tanh()
        return ((x @ self.keys.transpose(2, 3)).softmax(3) @ self.values * before,)


def memory(instance: Any) -> dict[str, int]:
    return {name: np.from_dlpack(tensor).ctypes.data for name, tensor in instance.state.items()}


@pytest.mark.parametrize("looks_back", [False, True])
@pytest.mark.parametrize("form", ["program", "wavefront", "per-op"])
def test_a_row_is_replaced_where_the_others_are(form, looks_back):
    """Unless somebody else reads what was there, or the kernel is not called directly."""
    program = exported(lambda: Attention(looks_back))
    library = built(program, form=form, check=True)
    stays = {state.tensor.name: state.in_place for state in library.description.states}
    direct = form != "per-op"
    assert stays == {"keys": direct and not looks_back, "values": direct}
    instance = library.create()
    before = memory(instance)
    assert_steps(instance, program)
    instance.reset_state()
    assert_steps(instance, program)
    # An odd number of runs: what changes places is elsewhere now.
    instance(*(each.numpy() for each in STEPS[0]))
    same = {name: place == before[name] for name, place in memory(instance).items()}
    assert same == stays


def test_what_is_timed_puts_replaced_rows_back():
    instance = built(exported(Attention)).create()
    first, second = ([each.numpy() for each in step] for step in STEPS[:2])
    instance(*first)
    before = {name: tensor.numpy().copy() for name, tensor in instance.state.items()}
    for name, value in zip(("x", "place"), second, strict=True):
        instance.set_input(name, value)
    instance.benchmark(2, 2)
    instance.profile(3)
    for name, tensor in instance.state.items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])


def test_the_machine_of_tvm_leaves_what_it_is_given():
    """It returns new tensors; only who calls the kernel directly may pass one for both."""
    library = built(exported(Attention))
    machine = relax.VirtualMachine(library.executable, tvm.cpu())
    states = [tvm.runtime.tensor(np.zeros((1, 2, 8, 4), "float32")) for _ in range(2)]
    given = [tvm.runtime.tensor(each.numpy()) for each in STEPS[0]]
    _, keys, values = machine["main"](*given, *states)
    assert not any(state.numpy().any() for state in states)
    np.testing.assert_array_equal(keys.numpy()[:, :, 3:4], given[0].numpy())
    np.testing.assert_allclose(values.numpy()[:, :, 3:4], np.tanh(given[0].numpy()), rtol=1e-6)


class Returned(Attention):
    """What it keeps is an output too: who has it may keep it while the next run goes on."""

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.keys[:, :, place] = x
        return self.keys.clone(), x * place


def test_what_is_returned_as_well_changes_places():
    program = exported(Returned)
    library = built(program)
    assert [state.in_place for state in library.description.states] == [False]
    assert_steps(library.create(), program)


class Assigned(torch.nn.Module):
    """A state that is what ``how`` makes of it, and an output that depends on what it was."""

    def __init__(self, how: Callable[[Any, Any], None], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.how = how
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = sum(weight * state for weight, state in enumerate(self.buffers(), 2))
        result = (before + x,)
        self.how(self, x)
        return result


def _exchange(own: Any, x: torch.Tensor) -> None:
    first = own.a.clone()
    own.a.copy_(own.b)
    own.b.copy_(first)


def _two_alike(own: Any, x: torch.Tensor) -> None:
    own.a.copy_(x * 2)
    own.b.copy_(2 * x)


def _one_value(own: Any, x: torch.Tensor) -> None:
    value = x.tanh()
    own.a.copy_(value)
    own.b.copy_(value)


def _of_a_state(own: Any, x: torch.Tensor) -> None:
    own.a.add_(x)
    own.b.copy_(own.a)


ASSIGNMENTS: dict[str, Callable[[Any, Any], None]] = {
    "an input": lambda own, x: own.a.copy_(x),
    "a number": lambda own, x: own.a.zero_(),
    "a buffer": lambda own, x: own.a.copy_(own.b),
    "each other": _exchange,
    "two alike": _two_alike,
    "one value": _one_value,
    "of a state": _of_a_state,
}


@pytest.mark.parametrize("form", ["program", "per-op"])
@pytest.mark.parametrize("what", ASSIGNMENTS)
def test_a_state_is_a_tensor_of_its_own(what, form):
    """Whatever is assigned to it: writing to an input, or to a state, changes nothing else."""
    model = Assigned(ASSIGNMENTS[what], a=torch.full((3,), 1.0), b=torch.full((3,), 5.0))
    library = built(torch.export.export(model.eval(), (torch.zeros(3),)), form=form)
    instance, other = library.create(), library.create()
    for each in (instance, other):
        for _ in range(2):
            reference = copy.deepcopy(model)
            for step in range(4):
                x = torch.full((3,), float(step))
                np.testing.assert_allclose(each(x.numpy())[0].numpy(), reference(x)[0].numpy())
            each.reset_state()
    for name in instance.state:
        instance(np.ones(3, "float32"))
        before = {other: value.numpy() for other, value in instance.state.items() if other != name}
        instance.state[name].copyfrom(np.full(3, 9, "float32"))
        assert instance.get_input(0).numpy().tolist() == [1] * 3
        for kept, value in before.items():
            np.testing.assert_array_equal(instance.state[kept].numpy(), value)


@pytest.mark.parametrize(
    ("state", "assigned"),
    [
        (torch.zeros(4, 3), lambda own, x: own.a.copy_(x.tanh().sum(1, keepdim=True))),
        (torch.zeros(4, dtype=torch.int32), lambda own, x: own.a.copy_(x.argmax(1))),
        (torch.zeros(4, 3), lambda own, x: own.a.copy_(x.tanh().double())),
        (torch.zeros(4, 3), lambda own, x: own.a.copy_(x[0])),
        (torch.zeros(4, 3, dtype=torch.int32), lambda own, x: own.a.copy_(3 * x)),
    ],
)
def test_what_is_assigned_is_cast_and_broadcast(state, assigned):
    class Summed(Assigned):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            result = (self.a.sum() + x,)
            self.how(self, x)
            return result

    model = Summed(assigned, a=state)
    instance = built(torch.export.export(model.eval(), (torch.zeros(4, 3),))).create()
    for seed in range(3):
        x = floats(4, 3) + seed
        np.testing.assert_allclose(instance(x.numpy())[0].numpy(), model(x)[0].numpy(), rtol=1e-5)
