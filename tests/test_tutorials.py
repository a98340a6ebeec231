"""The tutorials run, and the notebooks are made from the Markdown files beside them."""

from __future__ import annotations

import json
import shutil
import warnings

import make_tutorials
import pytest

NAMES = ("1_build_and_look", "2_policies_and_devices", "3_deploy_with_tvm_alone")


def test_all_tutorials_are_tested():
    assert sorted(path.stem for path in make_tutorials.TUTORIALS.glob("*.md")) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_its_markdown_file_executed(name):
    cells = make_tutorials.read_cells((make_tutorials.TUTORIALS / f"{name}.md").read_text())
    content = json.loads((make_tutorials.TUTORIALS / f"{name}.ipynb").read_text())
    found = [
        make_tutorials.Cell(cell["cell_type"], "".join(cell["source"])) for cell in content["cells"]
    ]
    assert found == cells, "run python python/make_tutorials.py"
    assert all("outputs" in cell for cell in content["cells"] if cell["cell_type"] == "code")


@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_runs_and_shows_what_the_notebook_shows(name):
    if name.startswith("3") and shutil.which("g++") is None:
        pytest.skip("needs g++ to link")
    cells = make_tutorials.read_cells((make_tutorials.TUTORIALS / f"{name}.md").read_text())
    content = json.loads((make_tutorials.TUTORIALS / f"{name}.ipynb").read_text())
    with warnings.catch_warnings():
        outputs = list(make_tutorials.execute(cells))
    for cell, shown in zip(content["cells"], outputs, strict=True):
        assert _kinds(cell.get("outputs", [])) == _kinds(shown)


def _kinds(outputs: list[dict]) -> list[list[str]]:
    """What a cell shows, without what differs from run to run."""
    return [sorted(output.get("data", ("text",))) for output in outputs]


# The maker of notebooks itself


def test_blocks_of_python_become_code():
    text = "# Title\n\nText.\n\n```python\nx = 1\nx\n```\n\n```sh\nls\n```\n"
    assert make_tutorials.read_cells(text) == [
        make_tutorials.Cell("markdown", "# Title\n\nText."),
        make_tutorials.Cell("code", "x = 1\nx"),
        make_tutorials.Cell("markdown", "```sh\nls\n```"),
    ]


def test_a_cell_shows_what_it_prints_and_its_last_expression():
    cells = [make_tutorials.Cell("code", "print(1)\nx = 2"), make_tutorials.Cell("code", "x + 1")]
    printed, value = make_tutorials.execute(cells)
    assert printed == [{"name": "stdout", "output_type": "stream", "text": ["1\n"]}]
    assert value[0]["data"] == {"text/plain": ["3"]}


def test_a_cell_that_fails_fails():
    with pytest.raises(ZeroDivisionError):
        list(make_tutorials.execute([make_tutorials.Cell("code", "1 / 0")]))
