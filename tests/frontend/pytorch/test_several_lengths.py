"""A decoder for prompts and for single tokens: one library, one cache, the weights once."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_programs import floats  # noqa: E402

import tvm_rammer  # noqa: E402

PLACES, WIDTH, HEADS = 24, 64, 4


class Decoder(torch.nn.Module):
    """A layer of attention with a cache of keys and values, and a count of tokens so far."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, PLACES, WIDTH // HEADS))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.project = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        parts = self.project(x).view(1, -1, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        self.keys.index_copy_(2, places, key)
        self.values.index_copy_(2, places, value)
        self.count.add_(places.shape[0])
        seen = torch.arange(PLACES)[None, :] <= places[:, None]
        found = torch.nn.functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=seen
        )
        return self.out(found.transpose(1, 2).reshape(1, -1, WIDTH)) + x


@pytest.fixture(scope="module")
def program() -> Any:
    torch.manual_seed(0)
    count = torch.export.Dim("count", min=1, max=PLACES)
    return torch.export.export(
        Decoder().eval(),
        (floats(1, 5, WIDTH), torch.arange(5)),
        dynamic_shapes=({1: count}, {0: count}),
    )


def of_length(count: int) -> dict[str, tuple[int, ...]]:
    return {"x": (1, count, WIDTH), "places": (count,)}


@pytest.mark.parametrize("form", ["program", "per-op"])
def test_tokens_follow_a_prompt(program, form, tmp_path):
    shapes = [of_length(count) for count in (1, 8, 3)]
    built = tvm_rammer.build(program, shapes=shapes, form=form, policy="wavefront", num_veus=2)
    kept = {state.tensor.name: state.in_place for state in built.description.states}
    assert kept == {"keys": form == "program", "values": form == "program", "count": False}
    loaded = tvm_rammer.load(built.export_library(tmp_path / "decoder.so"))
    for library in (built, loaded):
        instance, eager, place = library.create(), copy.deepcopy(program).module(), 0
        for count in (8, 1, 1, 3, 8, 1):
            x, places = floats(1, count, WIDTH) + place, torch.arange(place, place + count)
            place += count
            want = eager(x, places)
            (got,) = instance(x.numpy(), places.numpy())
            np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
            assert instance.state["count"].numpy() == place
        keys = dict(eager.named_buffers())["keys"].detach().numpy()
        np.testing.assert_allclose(instance.state["keys"].numpy(), keys, rtol=1e-4, atol=1e-5)


def test_a_check_of_all_lengths(program):
    shapes = [of_length(count) for count in (1, 5)]
    tvm_rammer.build(program, shapes=shapes, policy="wavefront", num_veus=2, check=True)
