"""The first page of docs/results: how far the goals are met, and why not."""

from __future__ import annotations

from bench import machine, peers, verdicts
from bench.ablation_tables import (
    ROOFLINE_COLUMNS,
    SLOW_OPERATOR_COLUMNS,
    roofline_rows,
    slow_operator_rows,
)
from bench.class_gains import class_gains
from bench.goals import MEAN_GOAL, ROOFLINE_GOAL
from bench.markdown import table, whole_page
from bench.pages import Results, setting_text
from bench.proofs import proofs_section
from bench.study import Study
from tvm_rammer.testing.models import MODELS


def overview(results: Results) -> str:
    """The first page: what was measured where, and how far the goals are met."""
    parts = [
        "# Results",
        setting_text(results.peers),
        "\n".join(f"- {line}" for line in summary(results.peers.models)),
        _links(results),
        "![Time of every contender over that of the fastest peer](peers.svg)",
        _misses(results.peers.models),
        *_rooflines(results),
        *_slow_operators(results),
        _losses(results.peers.models),
        *_gains(results),
        *proofs_section(results.proofs),
        _commands(results),
    ]
    return whole_page(parts)


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
    if missing := [name for name in MODELS if name not in models]:
        sentences.append(f"Not measured: {', '.join(missing)}.")
    return sentences


def _links(results: Results) -> str:
    pages = ["[every contender on every model](peers.md)"]
    if results.ablations:
        pages.append("[what single decisions are worth](ablations.md)")
    if results.scaling:
        pages.append("[more vEUs, simulated](scaling.md)")
    if results.choices:
        pages.append("[operators that have a choice of tilings](choices.md)")
    if results.kernels:
        pages.append("[single operators on one core](kernels.md)")
    if results.corpus:
        pages.append("[the models that people have](models.md)")
    if results.tuning:
        pages.append("[what tuning is worth](tuning.md)")
    if results.gpu:
        pages.append("[what a GPU took](gpu.md)")
    pages.append("[faults that were tried](reliability.md)")
    pages.append("[distance to optimal schedules](optimal.md)")
    pages.append("[what heeding contention gains](contention.md)")
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
    good = sum(_near_roofline(study) for study in results.ablations.found.values() if study.kernels)
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


def _slow_operators(results: Results) -> list[str]:
    """For every model that misses a goal, the operators that lose most to their roofline."""
    if results.ablations is None:
        return []
    studies = results.ablations.found
    missed = {v.model for v in verdicts.verdicts(results.peers.models) if not v.met}
    missed |= {model for model, study in studies.items() if not _near_roofline(study)}
    parts = []
    for model, study in studies.items():
        if model in missed and (rows := slow_operator_rows(study)):
            heading = f"### {model}: operators that lose most to their roofline"
            parts += [heading, table(SLOW_OPERATOR_COLUMNS, rows, left=3)]
    return parts


def _near_roofline(study: Study) -> bool:
    return study.roofline.ratio[0] <= ROOFLINE_GOAL


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
    parts = (results.peers, results.direct, results.ablations, results.scaling, results.choices)
    lines = [line for part in parts if part for line in machine.commands(part.machine)]
    text = "\n".join([*lines, "python python/make_results.py --readme README.md"])
    return f"## Commands\n\n```text\n{text}\n```"
