"""What goes wrong within a build is said in one line, with what to do about it."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_rammer
from tvm_rammer.errors import ModelError
from tvm_rammer.runtime import build as building
from tvm_rammer.testing import models

LSTM = models.lstm(1, 1, 8)
ADVICE = "end other programs, or let this one have more memory and threads"


def without_memory() -> str:
    """numpy's words."""
    with pytest.raises(MemoryError) as refused:
        np.empty((1 << 50,))
    return str(refused.value)


@pytest.mark.parametrize("kind", [MemoryError, RuntimeError])
def test_memory_that_cannot_be_had(monkeypatch, kind):
    said = without_memory()

    def refuse(*_: object) -> None:
        raise kind(said)

    monkeypatch.setattr(building, "partition_module", refuse)
    with pytest.raises(ModelError) as refused:
        tvm_rammer.build(LSTM)
    assert str(refused.value) == (f"the model cannot be compiled: out of memory ({said}): {ADVICE}")


def test_what_is_not_known_is_to_be_reported(monkeypatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("a pass\nfell over")

    monkeypatch.setattr(building, "partition_module", refuse)
    with pytest.raises(ModelError) as refused:
        tvm_rammer.build(LSTM)
    assert str(refused.value) == (
        "the model cannot be compiled: fell over; please report it with the model"
    )
