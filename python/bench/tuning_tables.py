"""Tables and sentences of tune_models.py's results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from bench.compare_spaces import STOCK, OperatorSpaces
from bench.findings import Findings
from bench.machine import sentence, typed
from bench.markdown import QuestionTable, answers, fixed, whole_page
from bench.tuning_study import (
    OF_A_QUESTION,
    UNCHANGED,
    VEUS,
    Interval,
    TunedOperator,
    TuningStudy,
)
from tvm_rammer.tuning.task import SPACES

Studies = Mapping[str, TuningStudy]
Rows = list[list[str]]

#: What of its roofline an untuned operator may lack, so that tuning is expected to gain something.
_WELL_DONE = 0.8
#: What is asked: of those operators, of what wrong numbers lost, and of fronts.
OPERATORS_GOAL, WON_BACK_GOAL, FRONTS_GOAL = 1.15, 0.8, 1.1
#: So many operators of a model are listed, those with the largest gains.
_LISTED = 8


def tuning_page(found: Findings[TuningStudy]) -> str:
    """What tuning is worth."""
    parts = [
        "# What tuning is worth",
        f"{found.setting.trials} trials for each model, and {OF_A_QUESTION:.0%} of that for wrong "
        "numbers of the machine and for fronts. " + sentence(found.machine),
        *typed(found.machine),
        "\n".join(f"- {line}" for line in verdicts(found.found)),
    ]
    if gains_by_trials(found.found):
        parts.append("![Expected gain of the plan by number of trials](tuning.svg)")
    return whole_page([*parts, *answers(TABLES, found.found), *found.failures()])


def gains_by_trials(studies: Studies) -> dict[str, tuple[tuple[int, float], ...]]:
    """Expected gain of the plan by number of trials, of each model that was tuned."""
    return {model: study.tuned.gains for model, study in studies.items() if study.tuned}


def verdicts(studies: Studies) -> list[str]:
    """How far the goals are met, a sentence each."""
    sentences = []
    operators = [each for study in studies.values() for each in _operators(study)]
    if operators:
        slower = sum(_slower(each) for each in operators)
        below = [each for each in operators if _below(each)]
        sentences.append(f"Slower than untuned beyond doubt: {slower} of {len(operators)}.")
        if below:
            sentences.append(
                f"{len(below)} operators that reach less than {_WELL_DONE:.0%} of their roofline "
                f"untuned gain {mean([1 / each.ratio[0] for each in below]):.2f}x in the "
                f"geometric mean (asked: {OPERATORS_GOAL:g}x)."
            )
    networks = [study.tuned for study in studies.values() if study.tuned]
    if networks:
        gained = mean([1 / each.ratio[0] for each in networks])
        predicted = mean([1 / each.predicted for each in networks])
        sentences.append(
            f"Networks gain {gained:.3f}x in the geometric mean, and their plans are predicted to "
            f"gain {predicted:.3f}x."
        )
    lost = [study.wrong for study in studies.values() if study.wrong]
    if lost:
        shares = [each.share for each in lost if each.share is not None]
        enough = sum(share >= WON_BACK_GOAL for share in shares)
        sentences.append(
            f"Wrong numbers of the machine lose something of {len(shares)} of {len(lost)} "
            f"networks; tuning wins back at least {WON_BACK_GOAL:.0%} of that for {enough}."
        )
    fronts = [study.fronts.gain for study in studies.values() if study.fronts]
    if fronts:
        sentences.append(
            f"Fronts gain {mean(fronts):.3f}x over fast records alone on {VEUS} simulated vEUs, in "
            f"the geometric mean (asked: {FRONTS_GOAL:g}x)."
        )
    return [*sentences, *_verdict_on_spaces(studies)]


def _verdict_on_spaces(studies: Studies) -> Iterator[str]:
    operators = [each for study in studies.values() for each in study.spaces or ()]
    for space in (*SPACES, STOCK) if operators else ():
        ratios = [one.ratio for each in operators for one in each.found if one.space == space]
        if ratios:
            better = sum(high < 1.0 for _, _, high in ratios)
            yield (
                f"The best of the space {space!r} beats the untuned choice beyond doubt for "
                f"{better} of {len(operators)} operators, and takes "
                f"{mean([middle for middle, _, _ in ratios]):.3f}x of its time in the geometric "
                f"mean of the {len(ratios)} that it has something for."
            )


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return prod(values) ** (1 / len(values))


def interval(ratio: Interval) -> str:
    """A ratio and its limits."""
    middle, low, high = ratio
    return f"{middle:.3f}x ({low:.2f} to {high:.2f})"


def _operators(study: TuningStudy) -> tuple[TunedOperator, ...]:
    return study.tuned.operators if study.tuned else ()


def _slower(operator: TunedOperator) -> bool:
    return operator.ratio[1] > 1.0


def _below(operator: TunedOperator) -> bool:
    return 0 < operator.roofline < _WELL_DONE


def _network_rows(studies: Studies) -> Rows:
    return [
        [
            model,
            f"{found.trials:,}",
            f"{found.minutes:.1f}",
            *(f"{ms:.3g}" for ms in found.ms),
            interval(found.ratio) if found.ratio != UNCHANGED else "the same",
            f"{found.predicted:.3f}x",
            found.kept or "no operator is tuned",
        ]
        for model, study in studies.items()
        if (found := study.tuned)
    ]


def _operator_rows(studies: Studies) -> Rows:
    rows = []
    for model, study in studies.items():
        operators = _operators(study)
        if not operators:
            continue
        worst = max(operators, key=lambda each: each.ratio[0])
        below = [1 / each.ratio[0] for each in operators if _below(each)]
        rows.append(
            [
                model,
                f"{len(operators):,}",
                f"{sum(each.ratio != UNCHANGED for each in operators):,}",
                f"{sum(map(_slower, operators)):,}",
                interval(worst.ratio),
                f"{len(below):,}",
                f"{mean(below):.2f}x" if below else "",
            ]
        )
    return rows


def _changed_rows(studies: Studies) -> Rows:
    return [
        [
            model,
            each.name,
            f"{each.uses:,}",
            f"{1e6 * each.seconds:.3g}",
            f"{each.roofline:.0%}" if each.roofline else "",
            each.choice,
            interval(each.ratio),
        ]
        for model, study in studies.items()
        for each in sorted(_operators(study), key=lambda each: each.ratio)[:_LISTED]
        if each.ratio != UNCHANGED
    ]


def _wrong_rows(studies: Studies) -> Rows:
    return [
        [
            model,
            *(f"{ms:.3g}" for ms in found.ms),
            interval((found.lost.value, found.lost.low, found.lost.high)),
            interval((found.tuned.value, found.tuned.low, found.tuned.high)),
            "nothing was lost" if found.share is None else f"{found.share:.0%}",
        ]
        for model, study in studies.items()
        if (found := study.wrong)
    ]


def _front_rows(studies: Studies) -> Rows:
    fronts = {model: study.fronts for model, study in studies.items() if study.fronts}
    rows = [
        [
            model,
            str(found.vector),
            f"{found.operators:,}",
            f"{found.choices:,}",
            *(f"{1e3 * each:.3g}" for each in (found.fast, found.efficient, found.fronts)),
            f"{found.gain:.3f}x",
        ]
        for model, found in fronts.items()
    ]
    if len(rows) > 1:
        whole = mean([found.gain for found in fronts.values()])
        rows.append(["geometric mean", *[""] * 6, f"{whole:.3f}x"])
    return rows


def _space_rows(studies: Studies) -> Rows:
    return [
        [
            model,
            each.operator,
            f"{each.uses:,}",
            f"{1e6 * each.seconds:.3g}",
            *(_best_of(each, space) for space in (*SPACES, STOCK)),
        ]
        for model, study in studies.items()
        for each in study.spaces or ()
    ]


def _best_of(operator: OperatorSpaces, space: str) -> str:
    """The ratio of the best choice of a space, and its rTasks."""
    found = [each for each in operator.found if each.space == space]
    return "; ".join(f"{interval(each.ratio)}, {each.tiles:,}" for each in found) or "none"


TABLES = (
    QuestionTable(
        "Networks",
        "A run without and with records, in a process each that took turns; the ratio that the "
        "plan's simulation predicts for the operators' times; and what the session itself found, "
        "which keeps only what pays in the network.",
        fixed(
            "model", "trials", "minutes", "untuned, ms", "tuned, ms", "ratio", "predicted", "kept"
        ),
        _network_rows,
    ),
    QuestionTable(
        "Operators",
        "What a build by the records takes, against what it takes without, on one core in a race "
        "that had no part in choosing: how many are slower beyond doubt, the slowest one, and what "
        f"those gain that reach less than {_WELL_DONE:.0%} of their roofline untuned.",
        fixed(
            "model",
            "operators",
            "tuned",
            "slower",
            "slowest",
            f"below {_WELL_DONE:.0%}",
            "they gain",
        ),
        _operator_rows,
    ),
    QuestionTable(
        "Operators that gain most",
        "Of each model; microseconds on one core without records, and the share of the roofline.",
        fixed("model", "operator", "uses", "us", "roofline", "choice", "ratio"),
        _changed_rows,
    ),
    QuestionTable(
        "Wrong numbers of the machine",
        "Half the registers, twice the latencies and a quarter of the second-level cache stand in "
        "for a processor that nobody calibrated: what the network takes by the true numbers and by "
        "tuning, over what it takes by the wrong ones.",
        fixed(
            "model",
            "true, ms",
            "wrong, ms",
            "tuned, ms",
            "true to wrong",
            "tuned to wrong",
            "won back",
        ),
        _wrong_rows,
    ),
    QuestionTable(
        f"Fronts, on {VEUS} simulated vEUs",
        f"Operators tuned for {VEUS} vEUs, with costs as measured, on processors with 16 or 8 "
        "floats to a vector (AVX-512, AVX2): simulated milliseconds where each has the one rKernel "
        "that is fastest with all vEUs to itself, where each has the one that takes least of them "
        "together, and where the plan may choose among all on its front: that can only pay where "
        "the first two differ.",
        fixed(
            "model",
            "floats of a vector",
            "operators",
            "with a choice",
            "fast only, ms",
            "efficient only, ms",
            "fronts, ms",
            "gain",
        ),
        _front_rows,
    ),
    QuestionTable(
        "Spaces",
        "The costliest operators, tuned in each space with as many trials: the lists of templates; "
        "sketches, which MetaSchedule's own rules make rTasks of; and MetaSchedule as it comes, "
        "with its rules, builder and runner. The best of each by its own measurements then ran in "
        "turns with the untuned choice the way rTasks run: parallel loops cut into tiles, all on "
        "one core, operands out of its caches. Ratios to the untuned time, and rTasks.",
        fixed("model", "operator", "uses", "untuned, us", *SPACES, STOCK),
        _space_rows,
    ),
)
