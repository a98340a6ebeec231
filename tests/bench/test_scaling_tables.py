from __future__ import annotations

import pytest
from bench.scaling import Scaling
from bench.scaling_tables import TABLES, policy_columns, policy_rows
from small_studies import small_scaling

BY_TITLE = {table.title: table for table in TABLES}


def rows(title: str, *scalings: Scaling) -> list[list[str]]:
    return BY_TITLE[title].rows({f"model{n}": found for n, found in enumerate(scalings)})


@pytest.mark.parametrize("title", BY_TITLE)
def test_every_row_is_as_long_as_the_headings(title: str) -> None:
    scalings = {"a": small_scaling(3), "b": small_scaling()}
    table = BY_TITLE[title]
    assert table.rows(scalings)
    assert {len(row) for row in table.rows(scalings)} == {len(table.columns(scalings))}


@pytest.mark.parametrize("title", BY_TITLE)
def test_without_simulations_there_are_no_rows(title: str) -> None:
    assert BY_TITLE[title].rows({}) == []


def test_every_number_of_veus_has_its_bound() -> None:
    columns = BY_TITLE["More vEUs"].columns({"a": small_scaling()})
    assert columns == ["model", "2", "bound, 2", "64", "bound, 64"]
    assert rows("More vEUs", small_scaling()) == [["model0", "1.00x", "2.00x", "2.00x", "4.00x"]]


def test_several_models_have_a_geometric_mean() -> None:
    assert rows("More vEUs", small_scaling(), small_scaling())[-1] == [
        "geometric mean",
        "1.00x",
        "2.00x",
        "2.00x",
        "4.00x",
    ]


def test_what_is_left_is_shown_for_the_fewest_veus() -> None:
    title = "What is left on the fewest vEUs"
    assert rows(title, small_scaling()) == [["model0", "4", "4", "1", "2", "0.5", "2.00x"]]


def test_only_models_with_a_choice_of_kernels_are_compared_with_the_fast_ones_alone() -> None:
    assert rows("Fast and efficient rKernels", small_scaling(3)) == [
        ["model0", "3", "1.25x", "2.50x"]
    ]
    assert rows("Fast and efficient rKernels", small_scaling()) == []


def test_a_model_has_a_row_for_every_number_of_veus() -> None:
    found = small_scaling()
    assert policy_columns(found)[0] == "vEUs" and policy_columns(found)[-2:] == ["auto", "bound"]
    assert [(row[0], row[-2], row[-1]) for row in policy_rows(found)] == [
        ("2", "1.00x", "2.00x"),
        ("64", "2.00x", "4.00x"),
    ]
