"""Measurements of choices that are lucky once: each task's first race, and what ran alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def run_lucky_choices(
    scratch: Path, module: Any, device: Any, config: Any, arguments: Any
) -> list[float]:
    """All but the untuned one take half the time, and in a later race as long.

    Parameters and result as of :func:`tvm_rammer.tuning.worker.run_choices`.
    """
    ((place, *numbers),) = arguments
    races = scratch / f"races-{place}"
    before = len(races.read_text()) if races.exists() else 0
    if len(numbers) > 1:
        races.write_text("." * (before + 1))
    lucky = 1.0 if len(numbers) > 1 and before else 0.5
    return [1e-6 * (lucky if number > 0 else 1.0) for number in numbers] * (
        21 if len(numbers) > 1 else 1
    )
