from __future__ import annotations

from dataclasses import replace

import pytest
from bench.ablation_tables import TABLES, slow_operator_rows
from bench.study import NO_WINOGRAD, Study
from small_studies import plan, small_study

BY_TITLE = {table.title: table for table in TABLES}


def rows(title: str, *studies: Study) -> list[list[str]]:
    return BY_TITLE[title].rows({f"model{n}": study for n, study in enumerate(studies)})


@pytest.mark.parametrize("title", BY_TITLE)
def test_every_row_is_as_long_as_the_headings(title: str) -> None:
    studies = {"a": small_study(3.0), "b": small_study()}
    table = BY_TITLE[title]
    assert table.rows(studies)
    assert {len(row) for row in table.rows(studies)} == {len(table.columns(studies))}


@pytest.mark.parametrize("title", BY_TITLE)
def test_without_studies_there_are_no_rows(title: str) -> None:
    assert BY_TITLE[title].rows({}) == []


def test_policies_are_relative_to_sequential_and_a_skipped_one_is_a_dash() -> None:
    study = small_study()
    del study.plans["ios"]
    assert rows("Policies", study) == [
        [
            "model0",
            "2",
            "1.00x (1.00 to 1.00)",
            "1.00x (1.00 to 1.00)",
            "-",
            "1.00x (1.00 to 1.00)",
            "0.50x (0.50 to 0.50)",
            "estf",
        ]
    ]


def test_the_mean_is_geometric() -> None:
    assert rows("Policies", small_study(1.0), small_study(4.0))[-1][-2:] == ["1.00x", ""]


def test_barriers_are_over_waits() -> None:
    assert rows("Point-to-point waits or barriers", small_study()) == [
        ["model0", "10", "4", "2", "3", "1.50x"]
    ]


def test_a_model_without_winograd_is_left_out() -> None:
    study = small_study()
    assert rows("Winograd", study) == [["model0", "2", "5", "2.50x (2.50 to 2.50)"]]
    del study.plans[NO_WINOGRAD]
    assert rows("Winograd", study) == []


def test_more_veus_than_one_are_a_speed_up() -> None:
    assert BY_TITLE["vEUs"].columns({"a": small_study()}) == ["model", "1, ms", "2, ms", "speed-up"]
    assert rows("vEUs", small_study()) == [["model0", "4", "1", "4.00x"]]


def test_what_has_no_profile_has_a_dash() -> None:
    study = small_study()
    study.plans["auto"] = plan(1.0, measured=None)
    assert rows("Utilisation", study) == [["model0", "75%", "50%", "75%", "-"]]
    without = replace(study, dispatch_ns=None, dispatch_share=None)
    assert rows("Scheduling overhead", study, without) == [["model0", "12", "25.0%"]]


def test_kernels_and_the_sequential_plan_are_compared_with_the_roofline() -> None:
    study = small_study()
    title = "Kernels against the roofline"
    assert rows(title, study) == [
        [
            "model0",
            "4",
            "2.5",
            "1.60x",
            "2",
            "1.25",
            "1.60x (1.50 to 1.75)",
            "1.40x",
            "1.25x (1.00 to 1.50)",
        ]
    ]
    assert rows(title, replace(study, kernels=None)) == []
    slow = ["conv x 2", "convolution", "compute", "3", "0.12", "2", "1.50x"]
    assert slow_operator_rows(study) == [slow]
    assert slow_operator_rows(replace(study, slowest=())) == []
