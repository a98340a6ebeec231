"""The page on the models that people have: what compiles, agrees, and how fast it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from corpus.difference import OF_SCALE, RELATIVE
from corpus.racing import OURS, PEERS

from bench import machine
from bench.corpus_records import CorpusResults, ModelRecord, key
from bench.markdown import table, whole_page

#: Above this ratio to the fastest peer a model is slow.
SLOW = 1.05
_COLUMNS = (
    "model",
    "form",
    "of",
    "for",
    "build, s",
    "absolute error",
    "relative",
    "of scale",
    *PEERS,
    OURS,
    "to the best peer",
)


def corpus_page(results: CorpusResults, notes: Mapping[str, str]) -> str:
    """The whole page.

    Parameters
    ----------
    results : CorpusResults
    notes : mapping of str to str
        What people found out about records, by their keys.
    """
    records = list(results.records.values())
    missed = [record for record in records if not record.agrees]
    slow = [record for record in records if (ratio_of(record) or 0) > SLOW]
    agreeing = [record for record in records if record.agrees]
    return whole_page(
        [
            "# The models that people have",
            "Trained models out of packages, and architectures with random weights, as ONNX files "
            "and as programs of torch.export. Each is compiled, run and timed in processes of its "
            f"own. It agrees if every output is within {RELATIVE:g} of the reference's norm, or "
            f"within {OF_SCALE:g} of its largest value; the reference is ONNX Runtime for ONNX "
            "files and eager PyTorch for programs.",
            machine.sentence(results.machine) if results.machine else "",
            _cpus(records),
            *machine.typed(results.machine),
            "## Summary",
            table(("form", "models", "compile", "agree", "share"), summary(records), left=1),
            _speed(records),
            *_section("Misses", [_miss(record, notes) for record in missed]),
            *_section(f"Slower than {SLOW:g}x", [_slow(record, notes) for record in slow]),
            *_table("Trained models", [r for r in agreeing if r.trained]),
            *_table("Architectures", [r for r in agreeing if not r.trained]),
        ]
    )


def summary(records: Sequence[ModelRecord]) -> list[list[str]]:
    """Models, those that compile and those that agree, by form; without those without a file."""
    rows = []
    for form in ("onnx", "torch", "all"):
        asked = [r for r in records if r.ours and form in (r.form, "all")]
        if asked:
            agree = sum(record.agrees for record in asked)
            compiled = sum(record.compiled for record in asked)
            counts = [str(len(asked)), str(compiled), str(agree)]
            rows.append([form, *counts, f"{100 * agree / len(asked):.1f} %"])
    return rows


def ratio_of(record: ModelRecord) -> float | None:
    """Our time over the fastest peer's; None where one has no time."""
    return record.race.ratio.value if record.race and record.race.ratio else None


def mean_ratio(records: Sequence[ModelRecord]) -> float | None:
    """Geometric mean of the ratios to the fastest peer."""
    found = [ratio for record in records if (ratio := ratio_of(record))]
    return geometric_mean(found) if found else None


def timed_parts(records: Sequence[ModelRecord]) -> list[tuple[bool, int, float]]:
    """Of trained models and of architectures: whether trained, how many are timed, their mean."""
    parts = [(each, [r for r in records if r.trained is each]) for each in (True, False)]
    return [
        (trained, sum(ratio_of(record) is not None for record in part), mean)
        for trained, part in parts
        if (mean := mean_ratio(part)) is not None
    ]


def _cpus(records: Sequence[ModelRecord]) -> str:
    """What was checked and timed where, if that was not in one place."""
    places = Counter(record.cpu for record in records)
    timed = Counter(record.cpu for record in records if record.race)
    if len(places) < 2:
        return ""
    parts = [f"{count} on {cpu} ({timed[cpu]} timed)" for cpu, count in places.items()]
    return f"Checks: {', '.join(parts)}."


def _speed(records: Sequence[ModelRecord]) -> str:
    means = [
        f"**{mean:.2f}x** over {count} {'trained models' if trained else 'architectures'}"
        for trained, count, mean in timed_parts(records)
    ]
    if not means:
        return ""
    slow = sum((ratio_of(record) or 0) > SLOW for record in records)
    return (
        f"Geometric mean of our time over the fastest peer's: {', '.join(means)}; {slow} of them "
        f"above {SLOW:g}x."
    )


def _miss(record: ModelRecord, notes: Mapping[str, str]) -> str:
    note = notes.get(key(record.name, record.form), "")
    cause = f"{record.checked.stage}: {_short(record.checked.cause)}"
    return f"- {record.name} ({record.form}): {note or cause}"


def _slow(record: ModelRecord, notes: Mapping[str, str]) -> str:
    note = notes.get(key(record.name, record.form), "no reason noted yet")
    return f"- {record.name} ({record.form}), {ratio_of(record):.2f}x: {note}"


def _short(text: str, most: int = 300) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= most else f"{one_line[: most - 3]}..."


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "\n".join(lines)] if lines else []


def _table(title: str, records: Sequence[ModelRecord]) -> list[str]:
    return [f"## {title}", table(_COLUMNS, [_row(r) for r in records], left=4)] if records else []


def _row(record: ModelRecord) -> list[str]:
    difference, race = record.checked.difference, record.race
    errors = ["", "", ""]
    if difference:
        errors = [
            f"{value:.0e}"
            for value in (difference.absolute, difference.relative, difference.of_scale)
        ]
    times = [f"{race.ms[n]:.3g}" if race and n in race.ms else "-" for n in (*PEERS, OURS)]
    ratio = ratio_of(record)
    return [
        record.name,
        record.form,
        record.source,
        record.task,
        f"{record.checked.build.get('build_s', 0):.1f}",
        *errors,
        *times,
        f"{ratio:.2f}x" if ratio else "-",
    ]
