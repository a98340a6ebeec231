"""The tutorials run, and the notebooks are made from the Markdown files beside them."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "python" / "make_tutorials.py"
NAMES = ("1_build_and_look", "2_policies_and_devices", "3_deploy_with_tvm_alone")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_tutorials", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_tutorials"] = module
    spec.loader.exec_module(module)
    return module


def test_all_tutorials_are_tested(script):
    assert sorted(path.stem for path in script.TUTORIALS.glob("*.md")) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_its_markdown_file_executed(script, name):
    cells = script.read_cells((script.TUTORIALS / f"{name}.md").read_text())
    content = json.loads((script.TUTORIALS / f"{name}.ipynb").read_text())
    found = [script.Cell(cell["cell_type"], "".join(cell["source"])) for cell in content["cells"]]
    assert found == cells, "run python python/make_tutorials.py"
    assert all("outputs" in cell for cell in content["cells"] if cell["cell_type"] == "code")


@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_runs_and_shows_what_the_notebook_shows(script, name):
    if name.startswith("3") and shutil.which("g++") is None:
        pytest.skip("needs g++ to link")
    cells = script.read_cells((script.TUTORIALS / f"{name}.md").read_text())
    content = json.loads((script.TUTORIALS / f"{name}.ipynb").read_text())
    with warnings.catch_warnings():
        outputs = list(script.execute(cells))
    for cell, shown in zip(content["cells"], outputs, strict=True):
        assert _kinds(cell.get("outputs", [])) == _kinds(shown)


def _kinds(outputs: list[dict]) -> list[list[str]]:
    """What a cell shows, without what differs from run to run."""
    return [sorted(output.get("data", ("text",))) for output in outputs]


# The maker of notebooks itself


def test_blocks_of_python_become_code(script):
    text = "# Title\n\nText.\n\n```python\nx = 1\nx\n```\n\n```sh\nls\n```\n"
    assert script.read_cells(text) == [
        script.Cell("markdown", "# Title\n\nText."),
        script.Cell("code", "x = 1\nx"),
        script.Cell("markdown", "```sh\nls\n```"),
    ]


def test_a_cell_shows_what_it_prints_and_its_last_expression(script):
    cells = [script.Cell("code", "print(1)\nx = 2"), script.Cell("code", "x + 1")]
    printed, value = script.execute(cells)
    assert printed == [{"name": "stdout", "output_type": "stream", "text": ["1\n"]}]
    assert value[0]["data"] == {"text/plain": ["3"]}


def test_a_cell_that_fails_fails(script):
    with pytest.raises(ZeroDivisionError):
        list(script.execute([script.Cell("code", "1 / 0")]))
