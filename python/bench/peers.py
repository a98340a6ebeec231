"""Tables of bench_peers.py's results: times, ratios to the fastest peer, what else was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from bench.contenders import CANDIDATES
from bench.goals import MEAN_GOAL, goal
from bench.records import Record, Records, ratio
from tvm_rammer.testing.timing_results import Ratio

#: Whom a user gets.
OURS = "auto"
#: From this many busy CPUs on, others were too loud for a time to be believed.
LOUD = 0.1

#: Records by model.
Models = Mapping[str, Records]


def best_peer(records: Records) -> str | None:
    """The peer with the least median."""
    return _fastest(records, [n for n in records if CANDIDATES[n].peer])


def our_name(records: Records) -> str | None:
    """``auto``, or the fastest of ours where that was not timed."""
    if OURS in records and records[OURS].good:
        return OURS
    return _fastest(records, [name for name in records if not CANDIDATES[name].peer])


def to_best_peer(records: Records) -> Ratio | None:
    """Our time over the fastest peer's."""
    ours, peer = our_name(records), best_peer(records)
    return ratio(records, ours, peer) if ours and peer else None


def to_own_baseline(records: Records) -> tuple[str, Ratio] | None:
    """``auto``'s time over that of the faster of ``sequential`` and ``per-op``, and which it is."""
    base = _fastest(records, ["sequential", "per-op"])
    found = ratio(records, OURS, base) if base else None
    return (base, found) if base and found else None


def mean_ratio(models: Models) -> float | None:
    """Geometric mean of the ratios to the fastest peer."""
    found = [made.value for records in models.values() if (made := to_best_peer(records))]
    return geometric_mean(found) if found else None


def columns(names: Sequence[str]) -> list[str]:
    """Headings of :func:`rows`."""
    return ["model", *names, "to the best peer", "goal"]


def rows(models: Models, names: Sequence[str]) -> list[list[str]]:
    """Median milliseconds of every contender by model, and the ratio that counts."""
    made = [
        [model, *(cell(records.get(name)) for name in names), *_against(records, goal(model))]
        for model, records in models.items()
    ]
    mean = mean_ratio(models)
    if mean is not None and len(models) > 1:
        made.append(["geometric mean", *("" for _ in names), f"{mean:.2f}x", f"{MEAN_GOAL:.2f}x"])
    return made


def notes(models: Models, names: Sequence[str]) -> list[str]:
    """Why there is no time, one line per contender and reason; and which times to doubt."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for model, records in models.items():
        for name in names:
            record = records.get(name)
            if record and record.outcome.status != "ok":
                reason = f"{record.outcome.status}: {record.outcome.note}"
                reasons.setdefault((name, reason), []).append(model)
    found = [f"{name} {reason} ({', '.join(on)})" for (name, reason), on in reasons.items()]
    if loud := loud_models(models):
        found.append(
            f"other processes kept more than {LOUD:g} CPUs busy while these were timed: "
            + ", ".join(loud)
        )
    return found


def loud_models(models: Models) -> list[str]:
    """Models whose times were taken beside other work."""
    return [
        model
        for model, records in models.items()
        if any(record.good and record.outcome.disturbance > LOUD for record in records.values())
    ]


DETAIL_COLUMNS = (
    "contender",
    "median, ms",
    "quartiles",
    "runs",
    "to the best peer",
    "95 %",
    "set-up, s",
    "set-up, MB",
    "running, MB",
    "error",
    "other load",
)


def detail_rows(records: Records) -> list[list[str]]:
    """Everything about every contender on a model."""
    peer = best_peer(records)
    return [_details(name, record, records, peer) for name, record in records.items()]


def _details(name: str, record: Record, records: Records, peer: str | None) -> list[str]:
    outcome = record.outcome
    if not record.good:
        return [name, cell(record), *("" for _ in DETAIL_COLUMNS[2:])]
    low, middle, high = outcome.quartiles_ms()
    found = ratio(records, name, peer) if peer else None
    return [
        name,
        f"{middle:.4g}",
        f"{low:.4g} to {high:.4g}",
        str(sum(map(len, outcome.blocks_ns))),
        f"{found.value:.2f}x" if found else "",
        f"{found.low:.2f} to {found.high:.2f}" if found else "",
        f"{outcome.set_up_s:.1f}",
        f"{outcome.set_up_peak_mb:.0f}",
        f"{outcome.peak_mb:.0f}",
        f"{outcome.error:.0e}",
        f"{outcome.disturbance:.2f}",
    ]


def _fastest(records: Records, names: Sequence[str]) -> str | None:
    timed = {n: records[n].median_ms for n in names if n in records and records[n].good}
    return min(timed, key=lambda name: timed[name] or 0.0) if timed else None


def cell(record: Record | None) -> str:
    if record is None or record.outcome.status == "missing":
        return "-"
    if record.median_ms is None:
        return record.outcome.status
    return f"{record.median_ms:.3g}"


def _against(records: Records, wanted: float) -> list[str]:
    found = to_best_peer(records)
    return [f"{found.value:.2f}x" if found else "-", f"{wanted:.2f}x"]
