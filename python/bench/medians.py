"""What contenders took that had their turns, ours beside the best of the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tvm_rammer.testing.timing_results import Outcome, paired_ratio


class Medians(NamedTuple):
    """Median milliseconds by contender, ours over the best peer's, and why others have none."""

    ms: dict[str, float]
    ratio: float | None
    notes: dict[str, str]


def medians(outcomes: Iterable[Outcome], ours: str, peers: Sequence[str]) -> Medians:
    """Of all that ran; a ratio only where ours did, and one of the peers."""
    found = {outcome.name: outcome for outcome in outcomes}
    ok = {name: o for name, o in found.items() if o.status == "ok" and o.blocks_ns}
    ms = {name: outcome.quartiles_ms()[1] for name, outcome in ok.items()}
    best = min((name for name in peers if name in ms), key=lambda name: ms[name], default="")
    ratio = paired_ratio(ok[ours], ok[best]).value if best and ours in ok else None
    notes = {name: f"{o.status}: {o.note}" for name, o in found.items() if name not in ok}
    return Medians(ms, ratio, notes)
