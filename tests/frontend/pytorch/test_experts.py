"""Mixtures of experts, as transformers exports them, choose their experts when they run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tvm_rammer import build  # noqa: E402

_SIZES = {
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64},
}


class Logits(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, use_cache=False).logits


@pytest.mark.parametrize("tokens", [1, 21])
@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("Mixtral", {"num_local_experts": 4}),
        ("GptOss", {"num_local_experts": 4, "head_dim": 8}),
        ("Qwen3Moe", {"num_experts": 6, "moe_intermediate_size": 24, "head_dim": 8}),
    ],
)
def test_a_mixture_of_experts_gives_the_result_of_eager_mode(family, sizes, tokens):
    if not hasattr(transformers, f"{family}ForCausalLM"):
        pytest.skip(f"this version of transformers has no {family}")
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(num_experts_per_tok=2, **_SIZES, **sizes)
    model = Logits(getattr(transformers, f"{family}ForCausalLM")(config)).eval()
    given = torch.randint(0, 64, (2, tokens))
    with torch.no_grad():
        expected = model(given).numpy()
    (found,) = build(torch.export.export(model, (given,))).create()(given.numpy())
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
