"""docs/operators.md is what its script makes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operators.md").read_text().splitlines()
#: Planned, outside of regions, computed, refused; ONNX's and com.microsoft's.
SAMPLE = [("", "Add"), ("", "ConvInteger"), ("", "Shape"), ("", "Det"), ("", "NonZero")]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "python" / "make_operators_page.py"
    spec = importlib.util.spec_from_file_location("make_operators_page", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_operators_page"] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_names_every_operator(script):
    names = [line.split()[1] for line in PAGE if line.startswith("| ")]
    heads = ["operator", *(n for _, n in script.onnx_operators())]
    assert names == [*heads, "operator", *(n for _, n in script.contributed_operators())]


@pytest.mark.filterwarnings("ignore")
def test_lines_of_some_operators_are_current(script):
    assert [line for line in script.rows(SAMPLE) if line not in PAGE] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_lines_are_current(script):
    lines = [*script.rows(script.onnx_operators()), *script.rows(script.contributed_operators())]
    assert [line for line in lines if line not in PAGE] == []
