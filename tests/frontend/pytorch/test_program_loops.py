"""``while_loop`` and ``scan`` of PyTorch give what eager mode does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._higher_order_ops import scan, while_loop  # noqa: E402
from torch_programs import Wrapped, floats  # noqa: E402

from tvm_rammer import build  # noqa: E402
from tvm_rammer.errors import ModelError  # noqa: E402
from tvm_rammer.frontend.torch import program_loops  # noqa: E402

ZERO = torch.tensor(0)


def counted(x: Any, count: Any) -> Any:
    return while_loop(lambda i, y: i < count, lambda i, y: (i + 1, y * 2 + count), (ZERO, x))


class UntilLarge(torch.nn.Module):
    """A weight in a loop's body, of a loop that data end."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(floats(4, 4).abs())

    def forward(self, x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return i + 1, torch.relu(y @ self.weight) + 0.1

        return while_loop(lambda i, y: (y.sum() < 1e4) & (i < 90), body, (ZERO, x))


def recurrent(x: Any, weight: Any) -> Any:
    def step(state: Any, given: Any) -> Any:
        state = torch.tanh(state @ weight + given)
        return state, state.sum(0)

    return scan(step, torch.zeros(2, 4), x)


def backwards(x: Any) -> Any:
    return scan(lambda c, y: (c + y, c * y), torch.ones(3), x, reverse=True)


def chosen_as_long_as(x: Any, count: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return i + 1, y + y[y > 0].mean()

    return while_loop(lambda i, y: i < count, body, (ZERO, x))


LOOPS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "counted": (counted, [(floats(3), torch.tensor(n)) for n in (4, 0, 1, 17)]),
    "until_large": (UntilLarge(), [(floats(2, 4) * size,) for size in (1.0, 1e-3, 1e6)]),
    "recurrent": (recurrent, [(floats(7, 2, 4), floats(4, 4)), (floats(7, 2, 4), floats(4, 4))]),
    "one_step": (recurrent, [(floats(1, 2, 4), floats(4, 4))]),
    "chosen_as_long_as": (chosen_as_long_as, [(floats(6), torch.tensor(n)) for n in (3, 0, 6)]),
    "backwards": (backwards, [(floats(5, 3),)]),
}


def exported(function: Any, *inputs: Any) -> Any:
    model = function if isinstance(function, torch.nn.Module) else Wrapped(function)
    return torch.export.export(model.eval(), inputs, strict=False)


@pytest.mark.parametrize("unrolled", [True, False])
@pytest.mark.parametrize("name", LOOPS)
def test_loops(name, unrolled, monkeypatch):
    function, inputs = LOOPS[name]
    if not unrolled:
        monkeypatch.setattr(program_loops, "MOST_OPERATORS", 0)
    instance = build(exported(function, *inputs[0])).create()
    for given in inputs:
        got = instance(*(tensor.numpy() for tensor in given))
        for mine, theirs in zip(got, function(*given), strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs.detach().numpy(), 1e-4, 1e-5)


def test_states_are_of_known_sizes():
    def body(x: Any, mask: Any) -> Any:
        chosen = x[mask]
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (ZERO, chosen))[1]

    with pytest.raises(ModelError, match=r"while_loop.*its sizes are first known in a run"):
        build(exported(body, floats(4), floats(4) > 0))
