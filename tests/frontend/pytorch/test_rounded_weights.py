"""Quantised weights that a program of 16-bit floats rounds to 16 bits stay integers of few bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from close import assert_close  # noqa: E402

from tvm_rammer import build  # noqa: E402

#: Of two products, whose weights come from memory.
INNER, OUTER, BLOCK = 4352, 2048, 64
#: Of a result of each type, twice: data between the products are rounded as well.
ROUNDING = {"float16": 2e-3, "bfloat16": 1.6e-2}


class Packed(torch.nn.Module):
    """A product with eight integers in a word, as GPTQ and AWQ keep them."""

    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype) -> None:
        super().__init__()
        blocks = inputs // BLOCK, outputs
        words = torch.randint(-(2**31), 2**31, (inputs // 8, outputs)).to(torch.int32)
        scales = (torch.rand(blocks) + 0.5) / inputs**0.5 / 8
        self.register_buffer("words", words)
        self.register_buffer("points", torch.randint(0, 16, blocks).to(dtype))
        self.register_buffer("scales", scales.to(dtype))
        self.register_buffer("places", torch.arange(0, 32, 4, dtype=torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (self.words[:, None] >> self.places[:, None]) & 15
        blocks = parts.reshape(-1, BLOCK, self.words.shape[1]).to(x.dtype)
        weights = (blocks - self.points[:, None]) * self.scales[:, None]
        return x @ weights.reshape(-1, self.words.shape[1])


def check(model: torch.nn.Module, dtype: torch.dtype, rows: int, nbytes: float) -> None:
    """Results are PyTorch's, and a weight takes so many bytes."""
    x = torch.randn(rows, OUTER).to(dtype)
    with torch.no_grad():
        want = model.eval()(x)
        library = build(torch.export.export(model, (x,)), num_veus=1)
    found = outputs(library.create()(x))
    name = str(dtype).removeprefix("torch.")
    assert_close(found, want.float().numpy(), ROUNDING[name])
    (region,) = library.report.regions
    assert region.constant_bytes < nbytes * 2 * INNER * OUTER


def outputs(found: Any) -> np.ndarray:
    (found,) = found if isinstance(found, list | tuple) else [found]
    return found.numpy().astype("float32")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2])
def test_weights_that_a_model_unpacks_itself(dtype, rows):
    torch.manual_seed(0)
    model = torch.nn.Sequential(Packed(OUTER, INNER, dtype), Packed(INNER, OUTER, dtype))
    check(model, dtype, rows, 0.56)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["bytes", "blocks", "blocks with zero points"])
def test_weights_of_torchao(dtype, kind):
    quantisation = pytest.importorskip("torchao.quantization")
    config = quantisation.Int8WeightOnlyConfig()
    if kind != "bytes":
        mapping = quantisation.MappingType
        config = quantisation.IntxWeightOnlyConfig(
            weight_dtype=torch.int4,
            granularity=quantisation.PerGroup(BLOCK),
            mapping_type=mapping.SYMMETRIC if kind == "blocks" else mapping.ASYMMETRIC,
        )
    torch.manual_seed(0)
    linear = torch.nn.Linear(OUTER, INNER), torch.nn.Linear(INNER, OUTER)
    model = torch.nn.Sequential(*linear).to(dtype)
    quantisation.quantize_(model, config)
    check(model, dtype, 1, 1.02 if kind == "bytes" else 0.56)
