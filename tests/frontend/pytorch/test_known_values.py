"""What is known, because it was given or belongs to the program, decides sizes of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_programs import Wrapped, floats  # noqa: E402

from tvm_rammer import build  # noqa: E402
from tvm_rammer.errors import InputError  # noqa: E402

EDGES = torch.tensor([[0, 1, 2, 2, 3], [1, 1, 0, 2, 0]])


def between_others(x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """What every node hears from others, as graph networks drop edges to oneself."""
    kept = edges[:, edges[0] != edges[1]]
    return torch.zeros_like(x).index_add(0, kept[1], x[kept[0]])


def number_of(x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    return x * edges.max().item()


class Chosen(torch.nn.Module):
    """Columns that a buffer chooses; it may be another buffer after each run."""

    def __init__(self, moves: bool) -> None:
        super().__init__()
        self.moves = moves
        self.register_buffer("mask", torch.tensor([True, False, True, True]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = x[:, self.mask]
        if self.moves:
            self.mask.copy_(self.mask.roll(1))
        return chosen


def exported(model: Any, *inputs: torch.Tensor) -> Any:
    model = model if isinstance(model, torch.nn.Module) else Wrapped(model)
    return torch.export.export(model.eval(), inputs, strict=False)


def names(program: Any) -> list[str]:
    return [str(name) for name in program.graph_signature.user_inputs]


@pytest.mark.parametrize("function", [between_others, number_of])
def test_a_constant_decides_sizes_and_numbers(function):
    x = floats(4, 3)
    program = exported(function, x, EDGES)
    data, edges = names(program)
    instance = build(program, constants={edges: EDGES.numpy()}).create()
    assert list(instance.get_input_info()[0]) == [data]
    (got,) = instance(x.numpy())
    np.testing.assert_allclose(got.numpy(), function(x, EDGES).numpy(), 1e-6)


def test_a_constant_that_decides_sizes_has_the_size_of_its_input():
    program = exported(between_others, floats(4, 3), EDGES)
    with pytest.raises(InputError, match=r"the constant's shape \(2, 4\) does not fit"):
        build(program, constants={names(program)[1]: EDGES[:, :4].numpy()})


@pytest.mark.parametrize("fixed", [False, True])
def test_what_no_constant_decides_the_run_does(fixed):
    def several(x: torch.Tensor, edges: torch.Tensor) -> Any:
        return between_others(x, edges), x[x > 0], number_of(x, edges)

    x = floats(4, 3)
    program = exported(several, x, EDGES)
    constants = {names(program)[1]: EDGES.numpy()} if fixed else {}
    instance = build(program, constants=constants).create()
    for data in (x, -x):
        got = instance(data.numpy()) if fixed else instance(data.numpy(), EDGES.numpy())
        for mine, theirs in zip(got, several(data, EDGES), strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), 1e-6)


def test_a_buffer_decides_sizes():
    x, model = floats(2, 4), Chosen(moves=False)
    (got,) = build(exported(model, x)).create()(x.numpy())
    np.testing.assert_array_equal(got.numpy(), model(x).numpy())


def test_a_buffer_that_is_written_decides_in_the_next_run():
    x, model = floats(2, 4), Chosen(moves=True)
    instance = build(exported(Chosen(moves=True), x)).create()
    for _ in range(3):
        np.testing.assert_array_equal(instance(x.numpy())[0].numpy(), model(x).numpy())
