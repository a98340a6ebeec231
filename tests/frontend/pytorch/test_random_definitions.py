"""Programs that draw random numbers draw from the distributions that eager mode does."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_rammer
from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.random_numbers import STATE

torch = pytest.importorskip("torch")

COUNT = 20_000


class Of(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def built(function, *inputs):
    program = torch.export.export(Of(function), inputs, strict=False)
    return tvm_rammer.build(program, "llvm", policy="sequential").create()


def drawn(function, *inputs):
    module = built(function, *inputs)
    (got,) = module(*(each.numpy() for each in inputs))
    eager = function(*inputs)
    assert str(got.dtype) == str(eager.dtype).removeprefix("torch.")
    assert tuple(got.shape) == tuple(eager.shape)
    return got.numpy().astype("float64")


X = torch.zeros(COUNT)
MOMENTS = {
    "rand": (lambda: torch.rand(COUNT), (0.5, 1 / 12)),
    "randn": (lambda: torch.randn(100, COUNT // 100), (0, 1)),
    "double": (lambda: torch.randn(COUNT, dtype=torch.float64), (0, 1)),
    "normal": (lambda: torch.normal(2.0, 3.0, (COUNT,)), (2, 9)),
    "randint": (lambda: torch.randint(4, (COUNT,)), (1.5, 1.25)),
    "randint far": (lambda: torch.randint(2**40, (COUNT,)) % 1000, (499.5, 83333)),
    "randint from": (lambda: torch.randint(-2, 2, (COUNT,), dtype=torch.int32), (-0.5, 1.25)),
}
MOMENTS_LIKE = {
    "rand_like": (torch.rand_like, (0.5, 1 / 12)),
    "randn_like": (lambda x: torch.randn_like(x) * 2 + x, (0, 4)),
    "randint_like": (lambda x: torch.randint_like(x, 2, 6), (3.5, 1.25)),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.25), (0.25, 3 / 16)),
    "bernoulli of one chance": (lambda x: torch.zeros_like(x).bernoulli_(0.25), (0.25, 3 / 16)),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(-3, 3), (0, 3)),
    "normal_": (lambda x: torch.empty_like(x).normal_(1, 0.5), (1, 0.25)),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(2.0), (0.5, 0.25)),
    "around": (lambda x: torch.normal(x + 1, 2.0), (1, 4)),
    "around apart": (lambda x: torch.normal(x + 1, x + 2), (1, 4)),
    "spread": (lambda x: torch.normal(1.0, x + 2), (1, 4)),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name):
    function, wanted = MOMENTS[name]
    got = drawn(function)
    np.testing.assert_allclose((got.mean(), got.var()), wanted, atol=0.05, rtol=0.04)


@pytest.mark.parametrize("name", MOMENTS_LIKE)
def test_moments_of_what_is_like_a_tensor(name):
    function, wanted = MOMENTS_LIKE[name]
    got = drawn(function, X)
    np.testing.assert_allclose((got.mean(), got.var()), wanted, atol=0.05, rtol=0.04)


def test_classes_with_and_without_replacement():
    chances = torch.tensor([[1.0, 3.0, 0.0, 6.0], [0.0, 0.0, 5.0, 0.0]])
    got = drawn(lambda x: torch.multinomial(x, COUNT, replacement=True), chances).astype(int)
    shares = [np.bincount(row, minlength=4) / COUNT for row in got]
    np.testing.assert_allclose(shares, [[0.1, 0.3, 0, 0.6], [0, 0, 1, 0]], atol=0.02)
    got = drawn(lambda x: torch.multinomial(x[0], 3), chances).astype(int)
    assert sorted(got.tolist()) == [0, 1, 3]


def test_a_permutation():
    got = drawn(lambda: torch.randperm(100)).astype(int)
    assert sorted(got.tolist()) == [*range(100)] and got.tolist() != [*range(100)]


def test_runs_and_operators_draw_apart():
    module = built(lambda: (torch.rand(50), torch.rand(50)))
    first, second = ([each.numpy() for each in module()] for _ in range(2))
    numbers = np.concatenate([*first, *second])
    assert len(np.unique(numbers)) == 200
    assert int(module.state[STATE].numpy()) == 2
    module.reset_state()
    np.testing.assert_array_equal(module()[0].numpy(), first[0])


def test_a_program_keeps_its_own_state_too():
    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("sum", torch.zeros(4))

        def forward(self, x):
            self.sum.add_(torch.rand(4) + x)
            return self.sum.clone()

    program = torch.export.export(Sum(), (torch.zeros(4),), strict=False)
    module = tvm_rammer.build(program, "llvm", policy="sequential").create()
    one, two = (module(np.full(4, 10, "float32"))[0].numpy() for _ in range(2))
    assert np.all((one >= 10) & (one < 11)) and np.all((two >= 20) & (two < 22))
    assert [*module.state] == ["sum", STATE]


def test_dropout_of_training_is_refused():
    with pytest.raises(ModelError, match=r"drops elements at random, as in training.*model.eval"):
        built(lambda x: torch.nn.functional.dropout(x, 0.2, training=True), X)


def test_a_branch_that_draws_is_refused():
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand(4), lambda x: x * 2, (x,))

    with pytest.raises(ModelError, match=r"a branch of torch.cond draws random numbers.*before"):
        built(function, torch.ones(4))
