"""The pages in docs/results and the figures in the README, written from results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_rammer.errors import InputError
from tvm_rammer.testing.bench import machine, peers, verdicts
from tvm_rammer.testing.bench.ablation_tables import (
    ROOFLINE_COLUMNS,
    SLOW_KERNEL_COLUMNS,
    TABLES,
    roofline_rows,
    slow_kernel_rows,
)
from tvm_rammer.testing.bench.class_gains import class_gains
from tvm_rammer.testing.bench.findings import Findings
from tvm_rammer.testing.bench.goals import MEAN_GOAL, ROOFLINE_GOAL
from tvm_rammer.testing.bench.markdown import table
from tvm_rammer.testing.bench.records import ResultFile
from tvm_rammer.testing.bench.scaling import Scaling
from tvm_rammer.testing.bench.scaling_tables import TABLES as SCALING_TABLES
from tvm_rammer.testing.bench.study import BASE, Study
from tvm_rammer.testing.contenders import CANDIDATES

#: Between these lines of the README stands what :func:`readme_part` writes.
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


@dataclass(frozen=True)
class Results:
    """Everything that was measured; what is None was not.

    Attributes
    ----------
    peers, direct : ResultFile
        Against peers: with Winograd's algorithm, and without.
    ablations : Findings of Study
    scaling : Findings of Scaling
        More vEUs, simulated.
    """

    peers: ResultFile
    direct: ResultFile | None = None
    ablations: Findings[Study] | None = None
    scaling: Findings[Scaling] | None = None


def contenders_of(found: ResultFile) -> list[str]:
    """Contenders that took part anywhere, in the order in which they are shown."""
    seen = {name for records in found.models.values() for name in records}
    return [name for name in CANDIDATES if name in seen]


def overview(results: Results) -> str:
    """The first page: what was measured where, and how far the goals are met."""
    parts = [
        "# Results",
        _setting(results.peers),
        "\n".join(f"- {line}" for line in summary(results.peers.models)),
        _links(results),
        "![Time of every contender over that of the fastest peer](peers.svg)",
        _misses(results.peers.models),
        *_slow_kernels(results),
        _losses(results.peers.models),
        *_gains(results),
        *_rooflines(results),
        _commands(results),
    ]
    return _page(parts)


def summary(models: peers.Models) -> list[str]:
    """How far the goals are met, a sentence each."""
    found = verdicts.verdicts(models)
    mean = peers.mean_ratio(models)
    if mean is None:
        return ["No model has a time of a peer to compare with."]
    faster = sum(verdict.ratio.value <= 1.0 for verdict in found)
    chosen = verdicts.co_scheduled(models)
    sentences = [
        f"Geometric mean of the time over that of the fastest peer of each model: {mean:.2f}x "
        f"(goal: {MEAN_GOAL:.2f}x).",
        f"Not slower than the fastest peer on {faster} of {len(found)} models; own goals met on "
        f"{sum(verdict.met for verdict in found)}.",
        f"auto chose a co-scheduled plan for {len(chosen)} of {len(models)} models"
        + (f": {', '.join(chosen)}." if chosen else "."),
    ]
    slow = verdicts.slow_to_compile(models)
    sentences.append(
        f"Compiling takes longer than {verdicts.COMPILE_SECONDS:g} s for "
        + ", ".join(f"{model} ({seconds:.0f} s)" for model, seconds in slow)
        + "."
        if slow
        else f"No model takes longer than {verdicts.COMPILE_SECONDS:g} s to compile."
    )
    return sentences


def peers_page(results: Results) -> str:
    """Every contender on every model."""
    found = results.peers
    names = contenders_of(found)
    described = "\n".join(
        f"- `{name}`: {CANDIDATES[name].description}{_versions(found, name)}" for name in names
    )
    parts = [
        "# Every contender on every model",
        _setting(found),
        described,
        "## Medians, ms",
        table(peers.columns(names), peers.rows(found.models, names)),
        *_notes(found, names),
    ]
    if results.direct:
        names = contenders_of(results.direct)
        parts += [
            "## Medians without Winograd's algorithm, ms",
            "Ours alone; the peers choose their own algorithms. " + _setting(results.direct),
            table(peers.columns(names), peers.rows(results.direct.models, names)),
            *_notes(results.direct, names),
        ]
    parts.append("## Details")
    parts.append(
        "Quartiles are of all runs; the ratio and its 95 % interval are paired by rounds. Set-up "
        "is loading or compiling; auto's includes measuring kernels and plans of a model never "
        "seen before, which the others of ours then know. MB are peaks of resident memory, during "
        "set-up and afterwards. The error is relative to the outputs that most agree with. Other "
        "load: CPUs that other processes kept busy."
    )
    for model, records in found.models.items():
        parts += [f"### {model}", table(peers.DETAIL_COLUMNS, peers.detail_rows(records))]
    return _page(parts)


def ablations_page(found: Findings[Study]) -> str:
    """What single decisions are worth."""
    parts = [
        "# What single decisions are worth",
        "Plans of the same compiled kernels take turns in one process. "
        + machine.sentence(found.machine),
        *_typed(found.machine),
        "![Time of every policy over that of the sequential plan](policies.svg)",
    ]
    for item in TABLES:
        if rows := item.rows(found.found):
            parts += [f"## {item.title}", item.text, table(item.columns(found.found), rows)]
    return _page([*parts, *_failed(found)])


def scaling_page(found: Findings[Scaling]) -> str:
    """What the plans would be worth on more vEUs."""
    parts = [
        "# More vEUs, simulated",
        "Plans of the same kernels for devices with more vEUs than this machine has, with the "
        "kernels' costs as measured here, one memory and one last-level cache. "
        + machine.sentence(found.machine),
        *_typed(found.machine),
        "![Simulated speed-up of auto over sequential by number of vEUs](scaling.svg)",
    ]
    for item in SCALING_TABLES:
        if rows := item.rows(found.found):
            parts += [f"## {item.title}", item.text, table(item.columns(found.found), rows)]
    return _page([*parts, *_failed(found)])


def readme_part(results: Results, folder: str) -> str:
    """The one plot and the one table that matter, for the README."""
    found = results.peers
    names = contenders_of(found)
    return "\n\n".join(
        [
            "Median milliseconds, float32, "
            f"{found.setting.threads} threads, random weights; every contender in a process of its "
            f"own, taking turns. {machine.sentence(found.machine)}",
            f"![Time of every contender over that of the fastest peer]({folder}/peers.svg)",
            table(peers.columns(names), peers.rows(found.models, names)),
            " ".join(summary(found.models)),
            "What is lost and why, quartiles, memory and ablations: "
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


def _setting(found: ResultFile) -> str:
    sizes = "reduced sizes" if found.setting.quick else "full sizes"
    return (
        f"Float32, random weights, {sizes}, {found.setting.threads} threads. "
        f"{machine.sentence(found.machine)}"
    )


def _notes(found: ResultFile, names: Sequence[str]) -> list[str]:
    notes = peers.notes(found.models, names)
    return ["\n".join(f"- {note}" for note in notes)] if notes else []


def _versions(found: ResultFile, name: str) -> str:
    """What a contender that lives in another environment says about that."""
    told = {
        f"{package} {version}"
        for records in found.models.values()
        if name in records
        for package, version in records[name].outcome.facts.get("versions", {}).items()
    }
    return f" ({', '.join(sorted(told))})" if told else ""


def _failed(found: Findings[Any]) -> list[str]:
    if not found.failed:
        return []
    return ["## Failed", "\n".join(f"- {model}: {why}" for model, why in found.failed.items())]


def _links(results: Results) -> str:
    pages = ["[every contender on every model](peers.md)"]
    if results.ablations:
        pages.append("[what single decisions are worth](ablations.md)")
    if results.scaling:
        pages.append("[more vEUs, simulated](scaling.md)")
    return f"Pages: {', '.join(pages)}."


def _gains(results: Results) -> list[str]:
    """What auto gains by classes of models, beside what the simulation leaves."""
    if results.scaling is None:
        return []
    models = results.peers.models
    chosen = {
        model: verdicts.policy_of(records[peers.OURS].outcome.facts)
        for model, records in models.items()
        if peers.OURS in records
    }
    return class_gains(models, results.scaling.found, results.peers.setting.threads, chosen)


def _rooflines(results: Results) -> list[str]:
    """The sequential plans beside the least that all cores allow."""
    rows = roofline_rows(results.ablations.found) if results.ablations else []
    if not rows or results.ablations is None:
        return []
    good = sum(
        study.plans[BASE].milliseconds <= ROOFLINE_GOAL * study.kernels.together
        for study in results.ablations.found.values()
        if study.kernels
    )
    text = (
        "What the sequential plan takes on all vEUs over the sum of its operators' rooflines, see "
        f"[what single decisions are worth](ablations.md): at most {ROOFLINE_GOAL:.2f}x on {good} "
        f"of {len(rows)} models."
    )
    return ["## The sequential plan and its roofline", text, table(ROOFLINE_COLUMNS, rows)]


def _misses(models: peers.Models) -> str:
    missed = [verdict for verdict in verdicts.verdicts(models) if not verdict.met]
    if not missed:
        return "## What is lost, and where\n\nNo model misses its goal."
    rows = [
        [
            verdict.model,
            verdict.peer,
            verdict.policy or "-",
            verdict.limit or "-",
            f"{verdict.ratio.value:.2f}x",
            f"{verdict.ratio.low:.2f} to {verdict.ratio.high:.2f}",
            f"{verdict.goal:.2f}x",
        ]
        for verdict in sorted(missed, key=lambda verdict: -verdict.ratio.value / verdict.goal)
    ]
    columns = ("model", "fastest peer", "plan", "what holds it", "to the peer", "95 %", "goal")
    return (
        "## What is lost, and where\n\n"
        "Models that miss their goal, the farthest first, and what `tvm-rammer explain` says about "
        f"their plans.\n\n{table(columns, rows, left=4)}"
    )


def _slow_kernels(results: Results) -> list[str]:
    """For every model that misses its goal, the kernels that lose most to their roofline."""
    if results.ablations is None:
        return []
    studies, parts = results.ablations.found, []
    for verdict in verdicts.verdicts(results.peers.models):
        rows = slow_kernel_rows(studies[verdict.model]) if verdict.model in studies else []
        if rows and not verdict.met:
            heading = f"### {verdict.model}: kernels that lose most to their roofline"
            parts += [heading, table(SLOW_KERNEL_COLUMNS, rows, left=2)]
    return parts


def _losses(models: peers.Models) -> str:
    lost = verdicts.slower_than_plain(models)
    heading = "## auto against sequential and per-op\n\n"
    if not lost:
        return (
            f"{heading}On no model is auto slower than the better of the two by more than "
            f"{verdicts.NEVER_LOSES - 1:.0%} beyond noise (lower end of the 95 % interval)."
        )
    rows = [
        [
            model,
            base,
            verdicts.policy_of(models[model][peers.OURS].outcome.facts) or "-",
            f"{found.value:.2f}x",
            f"{found.low:.2f} to {found.high:.2f}",
        ]
        for model, base, found in lost
    ]
    columns = ("model", "to", "auto's plan", "ratio", "95 %")
    return (
        f"{heading}auto lost to the plans below. Where its own plan is of the same name, both ran "
        f"the same, and the difference is that between two processes.\n\n"
        f"{table(columns, rows, left=3)}"
    )


def _commands(results: Results) -> str:
    parts = (results.peers, results.direct, results.ablations, results.scaling)
    lines = [line for part in parts if part for line in machine.commands(part.machine)]
    text = "\n".join([*lines, "python python/make_results.py --readme README.md"])
    return f"## Commands\n\n```text\n{text}\n```"


def _typed(facts: Mapping[str, Any]) -> list[str]:
    lines = machine.commands(facts)
    return ["\n".join(["```text", *lines, "```"])] if lines else []


def _page(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
