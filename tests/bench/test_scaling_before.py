from __future__ import annotations

from dataclasses import replace

from bench.findings import Findings, FindingsSetting
from bench.pages import scaling_page
from bench.scaling import Scaling
from bench.scaling_before import before_columns, before_rows
from small_studies import small_scaling
from test_pages import MACHINE


def times(scaling: Scaling, factor: float) -> Scaling:
    """All makespans so many times as long."""
    longer = {
        count: {name: factor * seconds for name, seconds in found.items()}
        for count, found in scaling.makespans.items()
    }
    return replace(scaling, makespans=longer)


def test_a_model_is_compared_with_what_it_took_before() -> None:
    before = {"a": times(small_scaling(), 3)}
    (row,) = before_rows(before, {"a": small_scaling()})
    assert row == ["a", "3.00x", "6.00x", "3.00x", "6.00x", "12.00x", "3.00x"]
    assert len(before_columns(before)) == len(row)


def test_classes_and_all_have_means() -> None:
    before = {
        name: times(small_scaling(), factor)
        for name, factor in (("lstm_8x8x256", 2), ("gru_8x8x256", 8), ("squeezenet", 4))
    }
    rows = before_rows(before, dict.fromkeys(before, small_scaling()))
    assert [(row[0], row[1]) for row in rows[3:]] == [
        ("Recurrent networks, geometric mean", "4.00x"),
        ("all, geometric mean", "4.00x"),
    ]


def test_models_that_only_one_knows_are_left_out() -> None:
    assert before_rows({"a": small_scaling()}, {"b": small_scaling()}) == []


def test_the_page_has_the_table_where_there_was_a_checkout_before() -> None:
    now = Findings(FindingsSetting(False, (2, 64)), MACHINE, {"bert_base": small_scaling()})
    assert "earlier checkout" not in scaling_page(now)
    assert "## Beside an earlier checkout" in scaling_page(now, (now, now))
