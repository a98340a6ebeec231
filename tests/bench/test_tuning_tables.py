"""What tune_models.py's page says of what was found."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from bench.findings import Findings, FindingsSetting
from bench.tuning_study import (
    TUNINGS,
    UNCHANGED,
    VEUS,
    FrontsGain,
    Network,
    TunedNetwork,
    TunedOperator,
    TuningStudy,
    fastest_alone,
    most_efficient,
)
from bench.tuning_tables import tuning_page, verdicts
from bench.wrong_numbers import WonBack
from test_pages import MACHINE

from tvm_rammer.errors import InputError
from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel
from tvm_rammer.testing.timing_results import Ratio


def operator(ratio: float, roofline: float, low: float = 0.0) -> TunedOperator:
    ratios = (ratio, low or ratio, ratio)
    return TunedOperator(f"op {ratio}", 2, 3e-6, roofline, "matmul: 1 x 4", ratios)


def study(*operators: TunedOperator) -> TuningStudy:
    tuned = TunedNetwork(
        40, 2.5, operators, 0.8, (2.0, 1.8), (0.9, 0.85, 0.95), "kept", ((1, 1.0), (9, 1.25))
    )
    lost = WonBack("net", (1.0, 2.0, 1.2), Ratio(0.5, 0.4, 0.6), Ratio(0.6, 0.5, 0.7))
    return TuningStudy(tuned, lost, FrontsGain(12, 5, 1.32e-3, 1.3e-3, 1.2e-3, 16), ())


FOUND = {"net": study(operator(0.5, 0.6), operator(1.1, 0.9, 1.05), operator(1.0, 0.7))}


def test_how_far_the_goals_are_met():
    """Of two operators below 80 % of their roofline one is twice as fast, one as it was."""
    assert verdicts(FOUND) == [
        "Slower than untuned beyond doubt: 1 of 3.",
        "2 operators that reach less than 80% of their roofline untuned gain 1.41x in the "
        "geometric mean (asked: 1.15x).",
        "Networks gain 1.111x in the geometric mean, and their plans are predicted to gain 1.250x.",
        "Wrong numbers of the machine lose something of 1 of 1 networks; tuning wins back at "
        "least 80% of that for 1.",
        "Fronts gain 1.100x over fast records alone on 16 simulated vEUs, in the geometric mean "
        "(asked: 1.1x).",
    ]


def test_what_was_not_studied_has_no_table():
    assert verdicts({"net": TuningStudy()}) == []
    page = tuning_page(Findings(FindingsSetting(False, trials=40), MACHINE, {"net": TuningStudy()}))
    assert "## " not in page


def test_the_page():
    found = Findings(
        FindingsSetting(False, trials=40), MACHINE, FOUND, {"lost": "its process ended"}
    )
    page = tuning_page(found)
    assert (
        "40 trials for each model, and 40% of that for wrong numbers of the machine and for "
        "fronts. Some CPU"
    ) in page
    assert "| net | 40 | 2.5 | 2 | 1.8 | 0.900x (0.85 to 0.95) | 0.800x | kept |" in page
    assert "| net | 3 | 2 | 1 | 1.100x (1.05 to 1.10) | 2 | 1.41x |" in page
    assert "| net | op 0.5 | 2 | 3 | 60% | matmul: 1 x 4 | 0.500x (0.50 to 0.50) |" in page
    assert "op 1.0" not in page
    assert "| net | 1 | 2 | 1.2 | 0.500x (0.40 to 0.60) | 0.600x (0.50 to 0.70) | 80% |" in page
    assert "| net | 16 | 12 | 5 | 1.32 | 1.3 | 1.2 | 1.100x |" in page
    assert "- lost: its process ended" in page


def test_a_network_that_keeps_all_as_it_is_has_no_ratio():
    tuned = study().tuned
    assert tuned is not None
    same = TuningStudy(replace(tuned, ratio=UNCHANGED, predicted=1.0, kept=""))
    page = tuning_page(Findings(FindingsSetting(False, trials=40), MACHINE, {"net": same}))
    assert "| net | 40 | 2.5 | 2 | 1.8 | the same | 1.000x | no operator is tuned |" in page
    assert "Networks gain 1.000x in the geometric mean" in page


def test_a_study_is_read_back(tmp_path):
    found = Findings(FindingsSetting(True, trials=40), MACHINE, {**FOUND, "half": TuningStudy()})
    found.save(tmp_path / "tuning.json")
    assert asdict(TUNINGS.load(tmp_path / "tuning.json")) == asdict(found)
    with pytest.raises(InputError, match="was measured with"):
        TUNINGS.resume(tmp_path / "tuning.json", FindingsSetting(True, trials=50))


def test_fast_only_and_efficient_only():
    """The efficient kernel has 4 tiles of 10, the fine one 16 of 4: alone these take 10 and 4."""
    kernels = tuple(
        RKernel(f"k{tiles}", tiles, ("read", "write"), seconds)
        for tiles, seconds in ((4, 10e-6), (16, 4e-6), (64, 3e-6))
    )
    buffers = (
        Buffer("x", (64,), "float32", "input"),
        Buffer("y", (64,), "float32", "output", 0),
    )
    graph = OperatorGraph("test", buffers, (Operator("op", kernels, (0, 1)),))
    (alone,) = fastest_alone([graph])
    assert VEUS == 16
    assert [op.candidates for op in alone.operators] == [(kernels[1],)]
    (efficient,) = most_efficient([graph])
    assert [op.candidates for op in efficient.operators] == [(kernels[0],)]


def test_a_model_that_is_none(tmp_path):
    with pytest.raises(InputError, match="nothing: is no model of the zoo or the corpus"):
        Network.named("nothing", tmp_path)
