"""What is known, because it was given or belongs to the program, decides sizes of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_programs import Wrapped, floats  # noqa: E402

from tvm_rammer import build  # noqa: E402
from tvm_rammer.errors import InputError, ModelError  # noqa: E402

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


def test_what_no_constant_decides_is_refused_by_name():
    with pytest.raises(ModelError, match=r"depends on the data; fix the inputs .* constants="):
        build(exported(between_others, floats(4, 3), EDGES))
    several = exported(lambda x, e: (between_others(x, e), x[x > 0]), floats(4, 3), EDGES)
    with pytest.raises(ModelError, match=r"nonzero.*node 'nonzero'"):
        build(several, constants={names(several)[1]: EDGES.numpy()})
    with pytest.raises(ModelError, match=r"_local_scalar_dense.*leave it a tensor, without .item"):
        build(exported(number_of, floats(4, 3), EDGES))


def test_a_buffer_decides_sizes():
    x, model = floats(2, 4), Chosen(moves=False)
    (got,) = build(exported(model, x)).create()(x.numpy())
    np.testing.assert_array_equal(got.numpy(), model(x).numpy())


def test_a_buffer_that_is_written_decides_nothing():
    with pytest.raises(ModelError, match="depends on the data"):
        build(exported(Chosen(moves=True), floats(2, 4)))
