"""The README's figures: ten telling models, and how far the goals are met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corpus.racing import OURS, PEERS

from bench import machine, peers
from bench.corpus_page import ratio_of, timed_parts
from bench.markdown import table
from bench.overview import summary
from bench.pages import Results
from tvm_rammer.errors import InputError

#: Between these lines of the README stands what :func:`readme_part` writes.
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
#: Rows for models of our own zoo, and so many for those that people have trained.
_ROWS = 5
_SHOWN = (*PEERS, OURS)


@dataclass(frozen=True)
class _Row:
    """A model with our time over the fastest peer's, and its cells."""

    ratio: float
    cells: tuple[str, ...]


def readme_part(results: Results, folder: str) -> str:
    """The one plot and the one table that matter; ``folder`` is where all pages are."""
    found = results.peers
    own, trained = _own(results), _trained(results)
    columns = ("model", "what it is", *_SHOWN, "to the best peer")
    rows = [list(row.cells) for part in (own, trained) for row in telling(part)]
    return "\n\n".join(
        [
            f"Median milliseconds, float32, {found.setting.threads} threads, every contender in a "
            "process of its own, taking turns. From each group the fastest against the better "
            "peer, the slowest, and those at the quarters between. "
            + machine.sentence(found.machine),
            table(columns, rows, left=2),
            f"![Time of every contender over that of the fastest peer]({folder}/peers.svg)",
            " ".join([*summary(found.models), *_of_others(results)]),
            "Every model and contender, what is lost and why, quartiles, memory and ablations: "
            f"[{folder}]({folder}/README.md).",
        ]
    )


def replace_part(readme: str, part: str) -> str:
    """The README with ``part`` between its markers."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"the README has no lines {BEGIN} and {END}; add them")
    return f"{before}{BEGIN}\n{part}\n{END}{after}"


def telling(rows: Sequence[_Row]) -> list[_Row]:
    """The best, the worst, and those at equal distances between, by their ratios."""
    ordered = sorted(rows, key=lambda row: row.ratio)
    if len(ordered) <= _ROWS:
        return ordered
    return [ordered[round(k * (len(ordered) - 1) / (_ROWS - 1))] for k in range(_ROWS)]


def _own(results: Results) -> list[_Row]:
    rows = []
    for model, records in results.peers.models.items():
        if (ratio := peers.to_best_peer(records)) is None:
            continue
        times = [peers.cell(records.get(name)) for name in _SHOWN]
        cells = (model, "own, random weights", *times, f"{ratio.value:.2f}x")
        rows.append(_Row(ratio.value, cells))
    return rows


def _trained(results: Results) -> list[_Row]:
    rows = []
    for record in results.corpus.records.values() if results.corpus else ():
        ratio, race = ratio_of(record), record.race
        if ratio is None or race is None or not record.agrees or not record.trained:
            continue
        times = [f"{race.ms[name]:.3g}" if name in race.ms else "-" for name in _SHOWN]
        rows.append(_Row(ratio, (record.name, record.task, *times, f"{ratio:.2f}x")))
    return rows


def _of_others(results: Results) -> list[str]:
    """What models of others take in the geometric mean."""
    names = {
        True: "Models that others have trained",
        False: "Architectures of torchvision, timm, transformers and others with random weights",
    }
    records = list(results.corpus.records.values()) if results.corpus else []
    return [
        f"{names[trained]}, {count} of them: {mean:.2f}x in the geometric mean."
        for trained, count, mean in timed_parts(records)
    ]
