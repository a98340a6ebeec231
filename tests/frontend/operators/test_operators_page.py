"""docs/operators.md is what its script makes."""

from __future__ import annotations

from pathlib import Path

import make_operators_page
import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operators.md").read_text().splitlines()
#: Planned, outside of regions, computed, refused; ONNX's and com.microsoft's.
SAMPLE = [("", "Add"), ("", "ConvInteger"), ("", "Shape"), ("", "TfIdfVectorizer"), ("", "NonZero")]


def test_the_page_names_every_operator():
    names = [line.split()[1] for line in PAGE if line.startswith("| ")]
    heads = ["operator", *(n for _, n in make_operators_page.onnx_operators())]
    assert names == [
        *heads,
        "operator",
        *(n for _, n in make_operators_page.contributed_operators()),
    ]


@pytest.mark.filterwarnings("ignore")
def test_lines_of_some_operators_are_current():
    assert [line for line in make_operators_page.rows(SAMPLE) if line not in PAGE] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_lines_are_current():
    lines = [
        *make_operators_page.rows(make_operators_page.onnx_operators()),
        *make_operators_page.rows(make_operators_page.contributed_operators()),
    ]
    assert [line for line in lines if line not in PAGE] == []
